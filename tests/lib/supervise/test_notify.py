"""sd_notify over a real datagram socket."""

import socket
from pathlib import Path

import pytest

from carico_agent.lib.supervise.notify import Notifier


def test_messages_reach_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notifier = Notifier()
        notifier.ready()
        notifier.alive("fine")
        notifier.stopping()
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1\nSTATUS=fine", b"STOPPING=1"]
    notifier.alive("nobody listens any more")


def test_outside_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    Notifier().ready()
