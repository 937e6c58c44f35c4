"""Where a socket may be: a folder that nobody else rules."""

import os
import socket
import threading
from pathlib import Path

import pytest

from carico_agent import client
from carico_agent.lib.net.sockets import bind_unix


def test_a_folder_of_our_own(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "made/agent.sock") as listener:
        assert (tmp_path / "made/agent.sock").stat().st_mode & 0o777 == 0o660
        assert listener.getsockname() == str(tmp_path / "made/agent.sock")


def full_queue(path: Path) -> list[socket.socket]:
    """A socket that somebody listens on and never accepts from, its queue full."""
    held = [socket.socket(socket.AF_UNIX)]
    held[0].bind(str(path))
    held[0].listen(0)
    while True:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        held.append(client)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return held


def within(seconds: float, path: Path, **more: bool) -> OSError | socket.socket:
    """What bind_unix makes of it, in time."""
    found: list[OSError | socket.socket] = []

    def bind() -> None:
        try:
            found.append(bind_unix(path, **more))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=bind, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"bind_unix has not returned within {seconds} s"
    return found[0]


def test_a_living_socket_with_a_full_queue_is_not_waited_for(tmp_path: Path) -> None:
    """connect() to it blocked, and with it the start of the agent, for as long as a Pod liked."""
    held = full_queue(tmp_path / "agent.sock")
    assert isinstance(within(10, tmp_path / "agent.sock"), FileExistsError)
    taken = within(10, tmp_path / "agent.sock", replace=True)
    assert isinstance(taken, socket.socket)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "agent.sock"))
        taken.accept()[0].close()
    for one in (*held, taken):
        one.close()


@pytest.mark.parametrize("replace", [False, True])
def test_a_link_to_nothing_is_replaced(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "agent.sock").symlink_to(tmp_path / "nothing")
    bind_unix(tmp_path / "agent.sock", replace=replace).close()
    assert (tmp_path / "agent.sock").is_socket() and not (tmp_path / "agent.sock").is_symlink()


def test_everybodys_folder_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="can be written by every user"):
        bind_unix(tmp_path / "agent.sock")
    tmp_path.chmod(0o1777)
    bind_unix(tmp_path / "agent.sock").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of somebody else is made")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "carico-0").mkdir(mode=0o700)
    os.chown(tmp_path / "carico-0", 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to user 65534"):
        bind_unix(tmp_path / "carico-0/agent.sock")
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    bind_unix(tmp_path / "link/agent.sock").close()
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="link belongs to user 65534"):
        bind_unix(tmp_path / "link/agent.sock")


def test_a_client_looks_into_its_own_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the temporary folder under our name may be somebody else's, who would send us any number."""
    monkeypatch.delenv("CARICO_SOCKET", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(client, "SYSTEM", str(tmp_path / "system.sock"))
    monkeypatch.setattr(client, "TEMPORARY", str(tmp_path))
    folder = tmp_path / f"carico-{os.geteuid()}"
    folder.mkdir(mode=0o700)
    (folder / "agent.sock").touch()
    assert client.default_path() == f"{folder}/agent.sock"
    folder.chmod(0o777)
    assert client.default_path() == client.SYSTEM
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert client.default_path() == client.SYSTEM


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of somebody else is made")
def test_a_client_believes_nobody_elses_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARICO_SOCKET", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(client, "SYSTEM", str(tmp_path / "system.sock"))
    monkeypatch.setattr(client, "TEMPORARY", str(tmp_path))
    (tmp_path / "carico-0").mkdir(mode=0o700)
    (tmp_path / "carico-0/agent.sock").touch()
    os.chown(tmp_path / "carico-0", 65534, 65534)
    assert client.default_path() == client.SYSTEM
