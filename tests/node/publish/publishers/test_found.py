"""Publishers are found, opened as the settings ask, and each does its one thing."""

import asyncio
import json
import os
import pkgutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from carico_agent.client import AsyncAgentClient
from carico_agent.lib.net.http import HttpServer
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node.publish import publisher, publishers
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.publisher import PublisherContext, open_all
from carico_agent.node.publish.publishers import status_file
from carico_agent.node.publish.status import Status
from carico_agent.settings import Settings, override

BOUND_S = 60.0
"""Only a hang reaches it."""
STATUS = Status(node="a", time="2024-01-01T10:00:00.000Z", pod_capacity=3.2, low=2.0, pods=1, usage={"cpu": 0.5})


@pytest.fixture
async def context(tmp_path: Path) -> PublisherContext:
    settings = override(Settings(), "socket", path=str(tmp_path / "a.sock"))
    return PublisherContext(
        node="a",
        latest=LatestStatus(5.0),
        http=HttpServer({}),
        settings=lambda: settings,
        families=lambda: [Family("carico_own", "gauge", "Of the agent.").add(1)],
        counted=dict,
        disk=Workers("the disk", 1),
    )


def test_every_module_there_can_be_opened() -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(publishers.__path__)]
    assert len(publisher.found()) == len(names) >= 6


MQTT = """
class MqttPublisher:
    name, condition, counters = "mqtt", "connected", {}
    def __init__(self, context): self.latest, self.sent = context.latest, []
    async def run(self):
        async for status in self.latest.updates():
            self.sent.append(status.pod_capacity)
    async def stop(self): self.sent.append("stopped")
async def open_publisher(context): return MqttPublisher(context)
"""


async def test_a_new_one_is_one_file(context: PublisherContext, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "mqtt.py").write_text(MQTT)
    monkeypatch.setattr(publishers, "__path__", [*publishers.__path__, str(tmp_path)])
    opened = {one.name: one for one in await open_all(context)}
    task = asyncio.create_task(opened["mqtt"].run())
    context.latest.publish(STATUS)
    async with asyncio.timeout(BOUND_S):
        while not opened["mqtt"].sent:
            await asyncio.sleep(0)
    task.cancel()
    for one in opened.values():
        await one.stop()
    assert opened["mqtt"].sent == [3.2, "stopped"]


async def test_only_what_the_settings_ask_for_is_opened(context: PublisherContext, monkeypatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    opened = await open_all(context)
    assert [one.name for one in opened] == ["metrics", "socket", "status_file"]
    assert all(isinstance(one.condition, str) and isinstance(dict(one.counters), dict) for one in opened)
    for one in opened:
        await one.stop()


async def test_one_that_cannot_be_opened_stops_those_before_it(
    context: PublisherContext, monkeypatch, tmp_path
) -> None:
    async def fail(given: PublisherContext) -> None:
        raise OSError("no way out")

    monkeypatch.setattr(publisher, "found", lambda before=publisher.found: [*before(), fail])
    with pytest.raises(OSError, match="no way out"):
        await open_all(context)
    assert not (tmp_path / "a.sock").exists()


async def test_a_client_that_comes_before_the_agent_serves_waits_and_is_answered(context: PublisherContext) -> None:
    opened = {one.name: one for one in await open_all(context)}
    context.latest.publish(STATUS)
    asked = asyncio.create_task(AsyncAgentClient(str(context.settings().socket_path)).status())
    await asyncio.sleep(0.05)
    assert not asked.done() and opened["socket"].condition == "not listening yet"
    await opened["socket"].run()
    assert (await asked)["pod_capacity"] == 3.2 and opened["socket"].condition == "listening"
    for one in opened.values():
        await one.stop()


@pytest.mark.long
async def test_the_status_file_follows_the_board_and_its_setting(context: PublisherContext, tmp_path: Path) -> None:
    path, now = tmp_path / "status.json", [context.settings()]
    context = replace(context, settings=lambda: now[0])
    one = await status_file.open_publisher(context)
    task = asyncio.create_task(one.run())
    context.latest.publish(STATUS)
    await asyncio.sleep(0)
    assert one.condition == "off" and not path.exists()
    now[0] = override(now[0], "socket", status_file=str(path))
    async with asyncio.timeout(BOUND_S):
        for sequence in (2, 3):
            context.latest.publish(STATUS)
            while not path.exists() or json.loads(path.read_text())["sequence"] != sequence:
                await asyncio.sleep(0.01)
        now[0] = override(now[0], "socket", status_file=str(tmp_path / "status.json/under-a-file"))
        context.latest.publish(STATUS)
        while "Not a directory" not in one.condition and "File exists" not in one.condition:
            await asyncio.sleep(0.01)
    task.cancel()


async def test_a_status_that_comes_during_a_write_is_written_after_it(
    context: PublisherContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings, written = override(context.settings(), "socket", status_file=str(tmp_path / "status.json")), []
    loop, real = asyncio.get_running_loop(), status_file.replace_file

    def slow(path: Path, encoded: bytes) -> None:
        real(path, encoded)
        written.append(json.loads(encoded)["sequence"])
        if len(written) == 1:  # the second status comes before the publisher knows that the first is on disk
            loop.call_soon_threadsafe(context.latest.publish, STATUS)

    monkeypatch.setattr(status_file, "replace_file", slow)
    context.latest.publish(STATUS)
    one = await status_file.open_publisher(replace(context, settings=lambda: settings))
    task = asyncio.create_task(one.run())
    async with asyncio.timeout(5.0):
        while written != [1, 2]:
            await asyncio.sleep(0.01)
    task.cancel()


async def test_systemd_gets_ready_once_and_a_sign_of_life_at_its_own_pace(
    context: PublisherContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from carico_agent.node.publish.publishers import systemd

    path, now_s = str(tmp_path / "notify"), 0.0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", path)
        monkeypatch.setitem(os.environ, "WATCHDOG_USEC", "30000000")
        assert await systemd.open_publisher(context) is not None
        one = systemd.SystemdPublisher(context, clock=lambda: now_s)
        task, received = asyncio.create_task(one.run()), []
        receiver.setblocking(False)
        async with asyncio.timeout(BOUND_S):
            for now_s, count in ((0.0, 2), (1.0, 2), (5.9, 2), (6.0, 3), (11.0, 3), (12.5, 4)):  # noqa: B007
                context.latest.publish(replace(STATUS, pods=count))
                while len(received) < count:
                    received.append(await asyncio.get_running_loop().sock_recv(receiver, 1000))
                await asyncio.sleep(0)
        await one.stop()
        task.cancel()
        assert received == [b"READY=1", *[b"WATCHDOG=1\nSTATUS=Pod-Capacity 3.2 (learning)"] * 3]
        assert receiver.recv(1000) == b"STOPPING=1"


async def test_the_terminal_gets_a_line_per_status(context: PublisherContext) -> None:
    from carico_agent.node.publish.publishers import terminal

    lines: asyncio.Queue[str] = asyncio.Queue()
    one = await terminal.open_publisher(replace(context, print_line=lines.put_nowait))
    assert one is not None
    task = asyncio.create_task(one.run())
    for _ in range(2):
        context.latest.publish(STATUS)
        assert await lines.get() == "10:00:00  cpu 50.0%  Pods 1  Pod-Capacity 3.2 [2.0–∞] learning, no limit seen"
    task.cancel()
