"""What the metrics of each component mean: which count is its requests, which gauge its queue.

One row per component; a new one is a row.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from carico_agent.plane.queueing import Load
from carico_agent.plane.shares import RESERVE
from carico_agent.plane.window import Window

API = "kube-apiserver"
LONG_RUNNING = frozenset({"WATCH", "WATCHLIST", "CONNECT"})
"""Verbs whose duration is the length of a conversation."""
INQUEUE = "apiserver_flowcontrol_current_inqueue_requests"
MIN_QUEUED = 1.0
"""A level in which fewer requests wait on average has seats enough."""
MIN_EXECUTING = 0.05
"""Below this the width of a level's requests is a quotient of two small numbers."""


@dataclass(frozen=True, slots=True)
class ComponentKind:
    """How one component is read."""

    requests: Callable[[Window], float | None]
    waiting: Callable[[Window], float | None]


def api_requests(window: Window) -> float | None:
    counts = window.counted.get("apiserver_request_duration_seconds_count")
    return sum(n for (verb, *_), n in counts.items() if verb not in LONG_RUNNING) if counts else None


def _unary(window: Window) -> float | None:
    """etcd's own count: reads and transactions; streams are watches."""
    handled = window.counted.get("grpc_server_handled_total")
    return (
        sum(n for (method,), n in handled.items() if method in ("Range", "Txn", "Put", "DeleteRange"))
        if handled
        else None
    )


def _grown(family: str) -> Callable[[Window], float | None]:
    return lambda window: window.grown(family)


def _attempts(window: Window) -> float:
    """The scheduler shows this counter from its first attempt on: one that has scheduled no Pod yet has made none."""
    return window.grown("scheduler_schedule_attempts_total") or 0.0


def _now(family: str) -> Callable[[Window], float | None]:
    return lambda window: window.now(family)


def _nothing(window: Window) -> float | None:
    return None


KINDS = {
    API: ComponentKind(api_requests, _now("apiserver_current_inqueue_requests")),
    "etcd": ComponentKind(_unary, _nothing),
    "kube-scheduler": ComponentKind(_attempts, _now("scheduler_pending_pods")),
    "kube-controller-manager": ComponentKind(_grown("workqueue_work_duration_seconds_count"), _now("workqueue_depth")),
}


def load_of(name: str, window: Window) -> Load | None:
    """n_r, c and Δt of one component; None when its metrics do not say."""
    requests = KINDS[name].requests(window)
    core_s = window.grown("process_cpu_seconds_total")
    return None if requests is None or core_s is None else Load(requests, core_s, window.length_s)


def _by_level(window: Window, family: str) -> dict[str, float]:
    """What a counter grew by, per priority level."""
    found: dict[str, float] = {}
    for (level, *_), value in window.counted.get(family, {}).items():
        found[level] = found.get(level, 0.0) + value
    return found


def executing_requests(window: Window) -> dict[str, float]:
    """How many requests of each level executed at once, on average over the window.

    By Little's law: the time requests spent executing, divided by the window. A gauge read once a minute would say
    what one moment was like."""
    spent_s = _by_level(window, "apiserver_flowcontrol_request_execution_seconds_sum")
    return {level: value / window.length_s for level, value in spent_s.items()}


def executing_seats(window: Window) -> dict[str, float]:
    """Seats of each level that were taken, on average over the window. A LIST takes several: since 1.26 the server
    says so in a histogram of the share of taken seats, which it observes at every nanosecond. What that is a share of,
    the level's limit with what it has borrowed, is a gauge. A level without that histogram: one seat per request."""
    name, now = "apiserver_flowcontrol_priority_level_seat_utilization", "apiserver_flowcontrol_current_limit_seats"
    limits = {level: seats for (level,), seats in window.gauges.get(now, {}).items()}
    shares, counts = _by_level(window, f"{name}_sum"), _by_level(window, f"{name}_count")
    found = executing_requests(window)
    for level in found:
        if counts.get(level) and limits.get(level):
            found[level] = shares[level] / counts[level] * limits[level]
    return found


def executing(window: Window) -> float | None:
    """Requests that executed at once, all levels together, on average over the window; None: unknown. Requests and
    not seats are what the concurrency curve is learned from: how many seats a LIST takes changes with a reserve."""
    found = executing_requests(window)
    return sum(found.values()) if found else None


def widths(window: Window) -> dict[str, float]:
    """Seats per executing request by level, weighted with time. 1 where no LIST is wide."""
    requests, seats = executing_requests(window), executing_seats(window)
    return {level: max(1.0, seats[level] / mean) for level, mean in requests.items() if mean > MIN_EXECUTING}


def queued_requests(window: Window) -> dict[str, float]:
    """How many requests of each level waited in its queues, on average over the window (Little's law, too)."""
    waited_s = _by_level(window, "apiserver_flowcontrol_request_wait_duration_seconds_sum")
    return {level: value / window.length_s for level, value in waited_s.items()}


def held_up(window: Window) -> str:
    """The level whose requests wait or are rejected most, in words; empty: none. A request that waits is not counted
    before it is dispatched, so that the gauge of those that wait now is looked at, too."""
    limited = levels(window)
    waiting = {level: n for (level,), n in window.gauges.get(INQUEUE, {}).items()}
    queued = {
        level: max(mean, waiting.get(level, 0.0)) for level, mean in {**waiting, **queued_requests(window)}.items()
    }
    rejected = _by_level(window, "apiserver_flowcontrol_rejected_requests_total")
    tight = {
        level: (rejected.get(level, 0.0), queued.get(level, 0.0))
        for level in limited
        if rejected.get(level, 0.0) > 0 or queued.get(level, 0.0) >= MIN_QUEUED
    }
    if not tight:
        return ""
    level = max(tight, key=lambda one: tight[one])
    return f"{tight[level][1]:.0f} requests wait in level {level}, and it rejected {tight[level][0]:.0f}"


def levels(window: Window) -> dict[str, int]:
    """Seats per priority level that requests can take, as the API server applies them now; the newer name first.

    Not of our own level: no request can take those, and 1.20 goes on showing them after the level is deleted."""
    for family in ("apiserver_flowcontrol_nominal_limit_seats", "apiserver_flowcontrol_request_concurrency_limit"):
        if found := window.gauges.get(family):
            return {level: round(seats) for (level,), seats in found.items() if level != RESERVE and seats > 0}
    return {}


def needs(window: Window) -> dict[str, int]:
    """Seats that each level needs for what it executes and what waits in it; the busiest one is left out: it is the one
    to be limited.

    A level whose requests come at random executes a Poisson number of them; three standard deviations above its mean
    are enough for all but one in a thousand. Why: seats are taken from all levels in proportion. In a run of
    lab/plane with 16 seats in all `system` had 2 for the Leases of 300 nodes, and their p99 was 11 s, against 1.9 s
    without a reserve."""
    limited = {level: seats for level, seats in executing_seats(window).items() if level in levels(window)}
    waiting, width = window.gauges.get(INQUEUE, {}), widths(window)
    busiest = max(limited, key=lambda level: limited[level], default="")
    return {
        level: math.ceil(mean + 3 * math.sqrt(mean) + waiting.get((level,), 0.0) * width.get(level, 1.0))
        for level, mean in limited.items()
        if level != busiest and mean > 0
    }


def one_process(window: Window) -> bool:
    """Whether the API server's process is all components at once, as with k3s."""
    return window.grown("scheduler_schedule_attempts_total") is not None
