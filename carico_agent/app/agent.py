"""The agent: sampling thread, runtime, local socket, put together and kept running."""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.app.pipeline import Pipeline, model_config
from carico_agent.app.sampling import Live, Replay, Sampling
from carico_agent.app.status import human_line, self_body, self_metrics, status_metrics, status_of
from carico_agent.publish import metrics
from carico_agent.publish.api import Handler, LocalApi, answer, status_routes
from carico_agent.publish.board import Board
from carico_agent.publish.statusfile import write_status_file
from carico_agent.settings import Settings
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.notify import Notifier
from carico_agent.supervise.tasks import Supervisor
from carico_agent.telemetry import NodeReader, Root, TraceWriter, read_trace

log = logging.getLogger(__name__)


class NoRuntime:
    """Nobody to ask who runs here."""

    count = 0
    churn_until_s = 0.0
    source = "none"
    condition = "no container runtime: Pods are counted as 0"


class Agent:
    """One node's agent. `run` returns when it is told to stop (SIGTERM, SIGINT) or a replay has ended."""

    def __init__(self, settings: Settings, record: str | None = None, replay: str | None = None, speed: float = 1.0,
                 repeat: bool = False, say: Callable[[str], None] | None = None) -> None:  # fmt: skip
        self.settings = settings
        self.node = settings.node.name or os.environ.get("NODE_NAME") or socket.gethostname()
        self.cost = OwnCost()
        self.board = Board(settings.socket.ttl_s)
        self.runtime = NoRuntime()
        self._say = say
        self._supervisor = Supervisor()
        self._notifier = Notifier()
        self._stopping = asyncio.Event()
        self._absent: dict[str, str] = {}
        self._cpu_ratio, self._looked_s = 0.0, time.monotonic()
        self._writing: asyncio.Future[None] | None = None
        self._source = self._replay(replay, speed, repeat) if replay else self._live(record)

    def _live(self, record: str | None) -> Live:
        sampling = self.settings.sampling
        reader = NodeReader(Root(self.settings.node.root), io=sampling.io, network=sampling.network)
        self._absent = reader.absent
        for why in reader.absent.values():
            log.warning("not available here: %s", why)
        self._open_pipeline(reader.resources, reader.cores)
        recorder = TraceWriter(record, self.node, reader.cores, reader.resources) if record else None
        return Live(reader, self.runtime, self._sampling, self.cost, sampling.period_s, sampling.niceness,
                    self._wake(self._publish), recorder)  # fmt: skip

    def _replay(self, path: str, speed: float, repeat: bool) -> Replay:
        header, _ = read_trace(path)
        self._open_pipeline(header.resources, header.cores)
        return Replay(lambda: read_trace(path)[1], self._sampling, speed, repeat,
                      self._wake(self._publish), self._wake(self._stopping.set))  # fmt: skip

    def _open_pipeline(self, resources: tuple[str, ...], cores: int) -> None:
        self.resources = resources
        self._sampling = Sampling(Pipeline(resources, model_config(self.settings, cores)), self.cost)

    def _wake(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call` in the event loop, from the sampling thread."""
        loop = asyncio.get_running_loop()
        return lambda: None if loop.is_closed() else void(loop.call_soon_threadsafe(call))

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        api = LocalApi(self._routes())
        await api.start(self.settings.socket_path, self.settings.socket.group)
        self._source.start()
        gc.collect()
        gc.freeze()  # what lives from here on is small: collections stay cheap
        log.info("carico agent on %s: socket %s", self.node, self.settings.socket_path)
        try:
            await self._stopping.wait()
        finally:
            self._notifier.stopping()
            self._source.stop()
            await self._supervisor.stop()
            await api.stop()

    # ---- out

    def _publish(self) -> None:
        started_s = time.perf_counter()
        estimate, usage = self._sampling.look()
        status = status_of(self.node, self.resources, estimate, usage.detail if usage else {})
        self.board.publish({**status, "runtime": self.runtime.condition, "absent": self._absent})
        if self.board.sequence == 1:
            self._notifier.ready()
        self._notifier.alive(f"Pod-Capacity {status['pod_capacity']} ({status['mode']})")
        self._write_status_file()
        if self._say is not None:
            self._say(human_line(self.board.status))
        self.cost.stage("publish").record(time.perf_counter() - started_s)

    def _write_status_file(self) -> None:
        """In a worker thread: a slow disk delays nobody. While one write is under way the next is skipped."""
        if self.settings.socket.status_file and (self._writing is None or self._writing.done()):
            path = Path(self.settings.socket.status_file)
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(None, write_status_file, path, self.board.encoded())
            self._writing.add_done_callback(self._written)

    @staticmethod
    def _written(writing: asyncio.Future[None]) -> None:
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("status file: %s", error)

    def _routes(self) -> dict[str, dict[str, Handler]]:
        return {
            **status_routes(self.board),
            "/v1/pods": {"GET": self._get_pods},
            "/v1/self": {"GET": self._get_self},
            "/metrics": {"GET": self._get_metrics},
        }

    async def _get_pods(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer({"source": self.runtime.source, "condition": self.runtime.condition, "pods": []})

    async def _get_self(self, request: web.BaseRequest) -> web.StreamResponse:
        body = self_body(self.cost, self._source.lateness, self._own_cpu_ratio(), self._source.failures)
        tasks: dict[str, Any] = {
            name: {"state": c.state, "failures": c.failures, "restarts": c.restarts, "last_error": c.last_error}
            for name, c in self._supervisor.conditions.items()
        }
        return answer({**body, "tasks": tasks, "absent": self._absent, "runtime": self.runtime.condition})

    def _own_cpu_ratio(self) -> float:
        if time.monotonic() - self._looked_s > 1.0 or not self._cpu_ratio:
            self._cpu_ratio, self._looked_s = self.cost.cpu_ratio(), time.monotonic()
        return self._cpu_ratio

    async def _get_metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        families = self_metrics(self.cost, self._source.lateness, self._source.failures)
        if self.board.sequence:
            families = status_metrics(self.board.status, self.board.age_s) + families
        absent = metrics.Family("carico_absent", "gauge", "1 for each signal this node does not offer.")
        for name in self._absent:
            absent.add(1, signal=name)
        text = metrics.render([*families, absent])
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})


def void(_: object) -> None:
    """Drop a result."""



