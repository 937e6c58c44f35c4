"""The aggregator as a daemon: gRPC server, merging, peers, state and metrics, put together and kept running."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from carico_agent.federation import state
from carico_agent.federation.aggregator import Aggregator
from carico_agent.federation.metrics import families
from carico_agent.federation.server import AggregatorServer
from carico_agent.lib.net.address import check, split
from carico_agent.lib.net.http import Handler, HttpServer, answer, answer_metrics
from carico_agent.lib.net.tls import TlsFiles
from carico_agent.lib.supervise.memory import collect_rarely
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.settings import AggregatorSettings

log = logging.getLogger(__name__)

MERGE_SHARE = 0.05
"""Merging takes at most this share of a core."""
PIECE = 100
"""Contributions taken in at a time: about 1 ms."""
WORKLOADS_PERIOD_S = 5.0


class AggregatorDaemon:
    """`run` serves until SIGTERM, SIGINT or cancellation."""

    def __init__(self, settings: AggregatorSettings) -> None:
        """Raises BadAddress (a ValueError) if the address must not be served without TLS."""
        tls = TlsFiles.mutual(settings.tls_ca, settings.tls_cert, settings.tls_key)
        check(settings.listen, tls is not None, settings.allow_plaintext)
        self._settings, self._plaintext = settings, tls is None
        self.name = settings.name or f"{socket.gethostname()}/{settings.listen}"
        self.aggregator = Aggregator(settings, self.name)
        self.server = AggregatorServer(self.aggregator, tls)
        self.supervisor = Supervisor()

    async def run(self, ready: Callable[[str], None] | None = None) -> None:
        """`ready` gets the address it listens on. Raises OSError if it cannot listen."""
        collect_rarely()
        address = await self.server.start()
        http = await self._serve_http()
        self._restore()
        self._start_tasks()
        log.info("aggregator %s listens on %s%s", self.name, address, ", plaintext" if self._plaintext else "")
        stopping = _stop_on_signals()
        try:
            if ready is not None:
                ready(address)
            await stopping.wait()
        finally:
            await self.supervisor.stop()
            await http.stop()
            await self.server.stop()
            if self._settings.state:
                state.save(self._settings.state, self.aggregator.table)

    def _restore(self) -> None:
        path, table = self._settings.state, self.aggregator.table
        if path and state.load(path, table, self._settings.silence_s):
            table.merge()
            self.aggregator.complete()

    def _start_tasks(self) -> None:
        self.supervisor.start("merge", self._merge_loop)
        self.supervisor.start("push", self._push_loop)
        self.supervisor.start("workloads", self._workloads_loop)
        self.supervisor.start("expire", self._expire_loop)
        for peer in self.aggregator.peers:
            self.supervisor.start(f"peer {peer.address}", peer.run)
        if self._settings.state:
            self.supervisor.start("state", lambda: state.save_periodically(self._settings.state, self.aggregator.table))

    # Beside the calls

    async def _merge_loop(self) -> None:
        """Merge what was received."""
        while True:
            while self.aggregator.table.absorb(PIECE):
                await asyncio.sleep(0)
            self.aggregator.merge()
            await asyncio.sleep(max(self._settings.merge_period_s, self.aggregator.merge_s / MERGE_SHARE))

    async def _push_loop(self) -> None:
        """Push the view when it has changed noticeably."""
        while True:
            await asyncio.sleep(self._settings.merge_period_s)
            if self.aggregator.take_push():
                await self.server.push(self.aggregator.pushed_view)

    async def _workloads_loop(self) -> None:
        while True:
            await asyncio.sleep(min(WORKLOADS_PERIOD_S, 10 * self._settings.merge_period_s))
            for is_new in self.aggregator.table.merge_workloads():
                await asyncio.sleep(0)
                if is_new:
                    self.aggregator.render_workloads()

    async def _expire_loop(self) -> None:
        while True:
            now_s = time.monotonic()
            self.aggregator.expire(now_s)
            self.server.expire(now_s)
            await self.server.limit_addresses(now_s)
            await asyncio.sleep(min(1.0, self._settings.silence_s / 4))

    # HTTP

    async def _serve_http(self) -> HttpServer:
        server = HttpServer(self._routes())
        address = self._settings.http
        if address.startswith("unix:"):
            await server.start(Path(address[5:]))
        elif address:
            await server.listen(*split(address))
        return server

    def _routes(self) -> dict[str, dict[str, Handler]]:
        async def show_metrics(request: web.BaseRequest) -> web.StreamResponse:
            """the aggregator's numbers for Prometheus"""
            return answer_metrics(families(self.aggregator))

        async def healthz(request: web.BaseRequest) -> web.StreamResponse:
            """whether it serves, and how many nodes are in the view"""
            return answer({"ok": True, "nodes": self.aggregator.table.sums.nodes})

        return {"/metrics": {"GET": show_metrics}, "/healthz": {"GET": healthz}}


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
