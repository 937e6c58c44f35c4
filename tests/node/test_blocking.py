"""Whatever hangs (a plugin, the disk, the kernel's files of Pods), the event loop goes on and every route answers.

What hangs here does so until the test lets go, and notes in which thread: on the event loop it would hang the test's
own requests, and its thread would be the test's.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from carico_agent.lib.supervise import files
from carico_agent.node import counters, plugins, reload, reserve, state
from carico_agent.node.agent import Agent
from carico_agent.node.publish.publishers import status_file
from carico_agent.settings import Settings, override

BOUND_S = 120.0
"""Only a hang reaches it."""
PLUGIN = """
from dataclasses import dataclass
from carico_agent import plugin_api
@dataclass(frozen=True)
class S:
    a: int = 1
class Plugin(plugin_api.Plugin):
    name, Settings = "slow", S
    def tick(self, view, writer): pass
    def report(self): return {"value": 7}
    def answer(self, ask): return {"asked": dict(ask)}
"""


@dataclass
class Hang:
    """Calls pass until `on` is set; then they note their thread and wait for `release`."""

    on: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    threads: dict[str, set[threading.Thread]] = field(default_factory=dict)

    def around(self, name: str, call: Any) -> Any:
        def hanging(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                self.threads.setdefault(name, set()).add(threading.current_thread())
                assert threading.current_thread() is not threading.main_thread(), f"{name} on the event loop"
                self.release.wait()
            return call(*args, **kwargs)

        return hanging


@pytest.fixture
async def hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Agent, Hang, Path]]:
    """A whole agent in this event loop, whose plugin, disk and runtime can be made to hang."""
    site = tmp_path / "site/slow"
    site.mkdir(parents=True)
    (site / "__init__.py").write_text(PLUGIN)
    for folder in (site.parent, site):
        folder.chmod(0o755)
    settings = override(Settings(), "node", state=str(tmp_path / "state"))
    settings = override(settings, "socket", path=str(tmp_path / "a.sock"), status_file=str(tmp_path / "status.json"))
    settings = override(settings, "plugins", enabled=("slow",), site_folder=str(site.parent))
    settings = override(settings, "pods", usage_period_s=0.1)
    hang = Hang()
    for module in (reserve, state, status_file):
        monkeypatch.setattr(module, "replace_file", hang.around("disk", files.replace_file))
    for module, name in (
        (counters, "READ_WITHIN_S"),
        (plugins, "ANSWER_WITHIN_S"),
        (reload, "LOAD_WITHIN_S"),
        (reserve, "SAVE_WITHIN_S"),
        (state, "SAVE_WITHIN_S"),
    ):
        monkeypatch.setattr(module, name, 0.2)
    agent = Agent(settings, load=hang.around("configuration", lambda: settings))
    monkeypatch.setattr(agent._runtime, "read_usage", hang.around("runtime", agent._runtime.read_usage))
    monkeypatch.setattr(agent._reservations, "_room", lambda: 9.0)  # whatever this machine does meanwhile
    running = asyncio.create_task(agent.run())
    async with asyncio.timeout(BOUND_S):
        while not agent._latest.sequence or "slow" not in agent._plugins._host.runners:
            await asyncio.sleep(0.01)
        runner = agent._plugins._host.runners["slow"]
        while runner.state != "running":
            await asyncio.sleep(0.01)
    monkeypatch.setattr(runner.plugin, "answer", hang.around("plugin", runner.plugin.answer))
    yield agent, hang, tmp_path / "a.sock"
    hang.release.set()
    agent._stopping.set()
    async with asyncio.timeout(BOUND_S):
        await running


async def ask(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with session.request(method, f"http://localhost{path}", json=body) as response:
        if response.content_type == "application/x-ndjson":
            return response.status, None
        return response.status, await (
            response.json() if response.content_type == "application/json" else response.text()
        )


@pytest.mark.long
async def test_every_route_answers_while_everything_hangs(hang: tuple[Agent, Hang, Path]) -> None:
    agent, hung, socket = hang
    connector = aiohttp.UnixConnector(str(socket), limit=200)
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(connector=connector) as session:
        assert (await ask(session, "GET", "/v1/plugins/slow?x=y"))[1]["report"] == {"asked": {"x": "y"}}
        hung.on = True
        bodies = {"/v1/reservations": {"pods": 1, "ttl_s": 60}}
        walked = {}
        for path, methods in agent._http._routes.items():
            for method in methods:
                asked = path.replace("{id}", "slow") + "?x=y"
                walked[method, path] = await ask(session, method, asked, bodies.get(path) if method == "POST" else None)
        assert hung.threads.keys() == {"plugin", "disk", "runtime", "configuration"}
        assert threading.main_thread() not in set().union(*hung.threads.values()), "on the event loop"
        codes = {route: code for route, (code, _) in walked.items()}
        assert codes.pop(("POST", "/v1/reload")) == 503
        assert codes.pop(("GET", "/v1/reservations/{id}")) == codes.pop(("DELETE", "/v1/reservations/{id}")) == 404
        assert codes.pop(("POST", "/v1/reservations")) == 201
        assert walked["POST", "/v1/reservations"][1]["durable"] is False
        assert set(codes.values()) == {200}
        assert walked["GET", "/v1/plugins/{id}"][1]["report"] == {"value": 7}  # its last report
        assert walked["GET", "/v1/pods"][1]["source"]


@pytest.mark.long
async def test_twenty_questions_to_a_plugin_that_hangs(hang: tuple[Agent, Hang, Path]) -> None:
    """The second finds the plugin busy; beyond four threads nobody waits. All get the last report."""
    agent, hung, socket = hang
    hung.on = True
    connector = aiohttp.UnixConnector(str(socket), limit=200)
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(connector=connector) as session:
        questions = [asyncio.create_task(ask(session, "GET", "/v1/plugins/slow?x=y")) for _ in range(20)]
        before = agent._latest.sequence
        while agent._latest.sequence < before + 2:  # samples are understood and published meanwhile
            await agent._latest.changed()
        assert {(code, body["report"]["value"]) for code, body in await asyncio.gather(*questions)} == {(200, 7)}
        assert len(hung.threads["plugin"]) == 1


async def test_a_disk_that_answers_again_makes_reservations_durable(hang: tuple[Agent, Hang, Path]) -> None:
    agent, hung, _ = hang
    hung.on = True
    assert await agent._reservations._saved() is False
    hung.on = False
    hung.release.set()
    async with asyncio.timeout(BOUND_S):
        while not await agent._reservations._saved():
            await asyncio.sleep(0.01)
    assert agent._reservations._path.exists()
