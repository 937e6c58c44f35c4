"""What the agent answers about workloads: which there are, what one costs, how many more fit."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from carico_agent.core import Estimate
from carico_agent.lib.net.http import ApiError, Handler, answer, request_tail
from carico_agent.lib.net.openapi import Operation, operation
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.status import by_name, known

PATH = "/v1/workloads/"
MAX_NAME_CHARS = 253
MAX_HORIZON_S = 604_800.0


class WorkloadRoutes:
    """Handlers over the latest status (all workloads) and the model (any workload, also one that never ran here)."""

    def __init__(
        self, latest: LatestStatus, resources: Sequence[str], estimate: Callable[[str, float | None], Estimate]
    ) -> None:
        """`estimate(workload, horizon_s)` asks the model; without a horizon, for as long as Pods of that workload
        stay."""
        self._latest, self._resources, self._estimate = latest, tuple(resources), estimate

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/workloads": {"GET": self._list}, "/v1/workloads/{path}": {"GET": self._show}}

    @operation(Operation(errors={503: "no number, or an old one"}))
    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        """workloads: what one costs, how many run and how many more fit"""
        await self._latest.current()
        status = self._latest.valid
        if status is None:
            raise ApiError(503, "no valid number now; ask again in a second", {"Retry-After": "1"})
        workloads = [asdict(workload) for workload in status.workloads]
        return answer(
            {
                "pods_measured": status.pods_measured,
                "sizes": dict(status.sizes),
                "room": dict(status.room),
                "workloads": workloads,
            }
        )

    @operation(Operation(errors={503: "no number, or an old one"}))
    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """one workload: how many more of it fit now and for as long as they stay (`horizon`: seconds), and what
        limits"""
        name = request_tail(request, PATH)
        if not name or len(name) > MAX_NAME_CHARS:
            raise ApiError(400, f"the name of a workload is expected after {PATH}, like {PATH}shop/web")
        await self._latest.current()
        status = self._latest.valid
        if status is None:
            raise ApiError(503, "no valid number now; ask again in a second", {"Retry-After": "1"})
        horizon_s = read_horizon(request.query.get("horizon"))
        return answer(
            {"workload": name, **self._body(name, horizon_s), "sizes": dict(status.sizes), "room": dict(status.room)}
        )

    def _body(self, name: str, horizon_s: float | None) -> dict[str, Any]:
        found, held = self._estimate(name, 0.0), self._estimate(name, horizon_s)
        return {
            "fits": known(found.pod_capacity, 3),
            "low": known(found.low, 3),
            "high": known(found.high, 3),
            "limiting": found.limiting,
            "mode": found.mode,
            "pods": next((workload.pods for workload in found.workloads if workload.workload == name), 0),
            "cost": by_name(self._resources, found.cost_vector),
            "fits_held": known(held.pod_capacity, 3),
            "limiting_held": held.limiting,
            "horizon_s": held.horizon_s,
            "outlook": held.outlook,
        }


def read_horizon(text: str | None) -> float | None:
    """Seconds between 1 and a week; None: not asked for."""
    if text is None:
        return None
    try:
        horizon_s = float(text)
    except ValueError as error:
        raise ApiError(400, f"horizon: {text!r} is no number of seconds") from error
    if not 1 <= horizon_s <= MAX_HORIZON_S:
        raise ApiError(400, f"horizon: {text} is not between 1 and {MAX_HORIZON_S:.0f} seconds")
    return horizon_s
