"""The node's page in front of `carico demo`, on loopback and with a token, for as long as the demo runs."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer
from carico_agent.lib.page.files import page_routes
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.node.counters import PodCounters
from carico_agent.node.history import StatusHistory
from carico_agent.node.own_cost import self_body
from carico_agent.node.pods.events import Event
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.status import AgentFacts, as_json, by_name, known, status_of, workload_status
from carico_agent.node.publish.status_routes import status_routes
from carico_agent.node.routes import PodRoutes
from carico_agent.node.source import Source

TTL_S = 5.0
COUNTERS_S = 1.0
EMPTY: Mapping[str, Mapping[str, Any]] = {
    "/v1/progress": {"jobs": []},
    "/v1/reservations": {"available": 0, "reservations": []},
    "/v1/plugins": {"dry_run": True, "plugins": [], "owners": [], "recent": []},
}
"""What a demo does not have."""


class DemoPage:
    """`take` once a second, `mark` for every event."""

    def __init__(self, source: Source, runtime: Runtime, cost: OwnCost) -> None:
        self._source, self._runtime, self._cost = source, runtime, cost
        self._latest, self._history = LatestStatus(TTL_S), StatusHistory(source.resources)
        self._token = secrets.token_urlsafe(24)
        self._http = HttpServer(page_routes(self._api(), self._facts, self._token))

    async def start(self) -> str:
        """The address to open. Raises OSError if it cannot listen."""
        await self._http.listen("127.0.0.1", 0)
        return f"http://127.0.0.1:{self._http.port}/#token={self._token}"

    async def stop(self) -> None:
        await self._http.stop()

    def take(self) -> None:
        """The answer of the last step."""
        source = self._source
        estimate, usage = source.feed.estimate(), source.feed.usage
        if usage is None:
            return
        facts = AgentFacts(
            sizes=by_name(source.resources, source.sizes),
            available=int(known(estimate.pod_capacity, 3) or 0.0),
            absent=source.absent,
            runtime=self._runtime.condition,
            sampling=source.status(),
        )
        workloads = tuple(workload_status(source.resources, one) for one in source.feed.table())
        self._latest.publish(status_of("demo", source.resources, estimate, usage.detail, facts, workloads=workloads))
        self._history.record(self._latest.status)

    def mark(self, event: Event) -> None:
        self._history.mark(event)

    def _api(self) -> dict[str, Handler]:
        pods = PodRoutes(self._runtime, PodCounters(self._runtime, lambda: COUNTERS_S, self._cost))
        routes = status_routes(self._latest) | self._history.routes() | pods.routes()
        own = dict.fromkeys(EMPTY, self._empty) | {"/v1/self": self._self}
        return {path: methods["GET"] for path, methods in routes.items()} | own

    async def _facts(self) -> Mapping[str, Any]:
        if not self._latest.sequence:
            raise ApiError(503, "no sample yet; look again in a second")
        return as_json(self._latest.status) | {"age_s": self._latest.age_s}

    async def _empty(self, request: web.BaseRequest) -> web.StreamResponse:
        """nothing: a demo has none"""
        return answer(EMPTY[request.path])

    async def _self(self, request: web.BaseRequest) -> web.StreamResponse:
        """what the demo's own measuring costs"""
        producer = self._source.producer
        own = self_body(self._cost, producer.lateness, producer.worked, self._cost.cpu_ratio(), producer.failures)
        rest = {"tasks": {}, "absent": self._source.absent, "runtime": self._runtime.condition}
        return answer({**own, **rest, "sampling": asdict(self._source.status())})
