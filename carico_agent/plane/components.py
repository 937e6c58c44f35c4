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


def _now(family: str) -> Callable[[Window], float | None]:
    return lambda window: window.now(family)


def _nothing(window: Window) -> float | None:
    return None


KINDS = {
    API: ComponentKind(api_requests, _now("apiserver_current_inqueue_requests")),
    "etcd": ComponentKind(_unary, _nothing),
    "kube-scheduler": ComponentKind(_grown("scheduler_schedule_attempts_total"), _now("scheduler_pending_pods")),
    "kube-controller-manager": ComponentKind(_grown("workqueue_work_duration_seconds_count"), _now("workqueue_depth")),
}


def load_of(name: str, window: Window) -> Load | None:
    """n_r, c and Δt of one component; None when its metrics do not say."""
    requests = KINDS[name].requests(window)
    core_s = window.grown("process_cpu_seconds_total")
    return None if requests is None or core_s is None else Load(requests, core_s, window.length_s)


def executing(window: Window) -> float | None:
    """How many requests the API server executed at once, on average over the window.

    By Little's law: the time requests spent executing, divided by the window. A gauge read once a minute would say
    what one moment was like."""
    spent_s = window.grown("apiserver_flowcontrol_request_execution_seconds_sum")
    return None if spent_s is None else spent_s / window.length_s


def levels(window: Window) -> dict[str, int]:
    """Seats per priority level that requests can take, as the API server applies them now; the newer name first.

    Not of our own level: nobody can take those, and 1.20 goes on showing them after the level is deleted."""
    for family in ("apiserver_flowcontrol_nominal_limit_seats", "apiserver_flowcontrol_request_concurrency_limit"):
        if found := window.gauges.get(family):
            return {level: round(seats) for (level,), seats in found.items() if level != RESERVE and seats > 0}
    return {}


def needs(window: Window) -> dict[str, int]:
    """Seats that each level needs for what it executes and what waits in it; the busiest one is left out: it is the one
    to be limited.

    A level whose requests come at random executes a Poisson number of them; three standard deviations above its mean
    are enough for all but one in a thousand. Why: seats are taken from all levels in proportion. In a run of
    lab/plane.py with 16 seats in all `system` had 2 for the Leases of 300 nodes, and their p99 was 11 s, against 1.9 s
    without a reserve."""
    spent_s: dict[str, float] = {}
    for (level, _), value in window.counted.get("apiserver_flowcontrol_request_execution_seconds_sum", {}).items():
        spent_s[level] = spent_s.get(level, 0.0) + value
    limited = {level: value / window.length_s for level, value in spent_s.items() if level in levels(window)}
    waiting = window.gauges.get("apiserver_flowcontrol_current_inqueue_requests", {})
    busiest = max(limited, key=lambda level: limited[level], default="")
    return {
        level: math.ceil(mean + 3 * math.sqrt(mean) + waiting.get((level,), 0.0))
        for level, mean in limited.items()
        if level != busiest and mean > 0
    }


def one_process(window: Window) -> bool:
    """Whether the API server's process is all components at once, as with k3s."""
    return window.grown("scheduler_schedule_attempts_total") is not None
