"""The cluster's page: what a daemon knows of all nodes, served to people.

A body is made when a browser asks and the last one is old, and all readers share it: ten browsers cost as much as one,
and none cost nothing. It is made in pieces, between which the daemon answers others.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from aiohttp import web

from carico_agent.extender.cluster_services import ClusterServices
from carico_agent.lib.net.address import is_loopback, split
from carico_agent.lib.net.http import Handler, HttpServer, request_tail
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.tls import TlsFiles, server_context
from carico_agent.lib.page.access import read_token
from carico_agent.lib.page.files import CLUSTER, page_routes
from carico_agent.lib.page.settings import cluster_page_errors
from carico_agent.settings import BadSettings, ClusterPageSettings

log = logging.getLogger(__name__)

LIMITS = Limits(connections=128, requests_per_s=100.0)
MIN_PERIOD_S = 2.0
NODES_PER_PERIOD_S = 1000.0
"""With 5,000 nodes the page is renewed every 5 s: a body takes some 20 ms then, beside 100 ms for workloads."""
WORKLOAD_PATH = "/v1/cluster/workloads/"
WORKLOAD_CHARS = 253

Body = dict[str, Any]


class ClusterFacts(Protocol):
    """What a daemon knows of the cluster; raises ApiError while it knows nothing."""

    def about(self) -> Body:
        """Which extender this is, and its condition."""

    def nodes(self) -> Body:
        """Every node, a list per column."""

    def workloads(self) -> Iterator[Body | None]:
        """One workload at a time, and None after other pieces of work."""

    def where(self, workload: str) -> Body:
        """How many more of a workload each node takes."""


class ClusterBodies:
    """The answers of the page's API, shared by all readers."""

    def __init__(
        self, facts: ClusterFacts, services: ClusterServices, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._facts, self._services, self._clock = facts, services, clock
        self._body: Body = {}
        self._encoded = b""
        self._until_s = float("-inf")
        self._making = asyncio.Lock()

    async def body(self) -> Body:
        """The newest body, made now if the last one is old."""
        async with self._making:
            if self._clock() >= self._until_s:
                await self._make()
        return self._body

    async def encoded(self) -> bytes:
        await self.body()
        return self._encoded

    async def _make(self) -> None:
        nodes = self._facts.nodes()
        period_s = max(MIN_PERIOD_S, len(nodes["name"]) / NODES_PER_PERIOD_S)
        workloads = []
        for workload in self._facts.workloads():
            if workload is not None:
                workloads.append(workload)
            await asyncio.sleep(0)
        panels = await self._services.panels()
        body = self._facts.about() | {"next_s": period_s, "nodes": nodes, "workloads": workloads} | panels
        self._encoded = await _encode(body)
        self._body, self._until_s = body, self._clock() + 0.9 * period_s

    def routes(self) -> dict[str, Handler]:
        return {"/v1/cluster": self._cluster, f"{WORKLOAD_PATH}{{path}}": self._where}

    async def _cluster(self, request: web.BaseRequest) -> web.StreamResponse:
        """every node as columns, and the workloads with most Pods: how many more fit, on how many nodes"""
        return _json(await self.encoded())

    async def _where(self, request: web.BaseRequest) -> web.StreamResponse:
        """how many more Pods of a workload each node takes"""
        workload = request_tail(request, WORKLOAD_PATH)[:WORKLOAD_CHARS]
        return _json(await _encode(self._facts.where(workload)))


def _json(encoded: bytes) -> web.Response:
    return web.Response(body=encoded, content_type="application/json", headers={"Cache-Control": "no-store"})


async def _encode(body: Mapping[str, Any]) -> bytes:
    """JSON of an object, a value at a time: the columns of 5,000 nodes in one go would hold everybody up for 10 ms."""
    parts = []
    for name, value in body.items():
        if isinstance(value, dict):
            parts.append(json.dumps(name).encode() + b":" + await _encode(value))
        else:
            parts.append(json.dumps({name: value}, separators=(",", ":"), allow_nan=False)[1:-1].encode())
            await asyncio.sleep(0)
    return b"{" + b",".join(parts) + b"}"


class ClusterPage:
    """The page on an address of its own, until it is stopped."""

    def __init__(self, settings: ClusterPageSettings, facts: ClusterFacts) -> None:
        """Raises OSError if the token cannot be read."""
        self.address = ""
        self._settings, self._services = settings, ClusterServices(settings.plane, settings.burst)
        token = read_token(settings.token_file) if settings.token_file else ""
        bodies, loopback = ClusterBodies(facts, self._services), is_loopback(split(settings.listen)[0])
        self._http = HttpServer(
            page_routes(bodies.routes(), bodies.body, token, loopback, CLUSTER), RateLimiter(LIMITS)
        )

    async def start(self) -> None:
        """Raises OSError if it cannot listen."""
        given = self._settings
        tls = server_context(TlsFiles(given.tls_cert, given.tls_key)) if given.tls_cert else None
        host, port = split(given.listen)
        await self._http.listen(host, port, tls)
        self.address = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self._http.port}/"
        log.info("the cluster's page: %s", self.address)

    async def stop(self) -> None:
        await self._http.stop()
        await self._services.close()


async def open_cluster_page(settings: ClusterPageSettings, facts: ClusterFacts) -> ClusterPage | None:
    """Serve it where the settings ask for it. Raises OSError if that cannot work, BadSettings if it must not."""
    if not settings.listen:
        return None
    if errors := cluster_page_errors(settings):  # of the command line, which no file's check has seen
        raise BadSettings(errors)
    page = ClusterPage(settings, facts)
    await page.start()
    return page
