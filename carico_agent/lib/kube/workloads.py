"""The annotation `carico.dev/workloads`: what is left on a node, and what one Pod of each workload takes of it.

In absolute units, so that nodes of different sizes can compare: cores of CPU demand, bytes, and shares of the node for
io and network. A node's cpu ends where its agent says that it is full: where only Jobs run at twice its cores, so that
an idle node with 4 cores has room for 8 cores of demand.

Bounded to 16 workloads and 4 kB: all annotations of an object together may have 256 kB, and every write of a Node goes to
everybody who watches nodes. `pods` counts the Pods of a workload that are in `room` already, by the names of the API
server's Pods; `other` those of all workloads that are not listed. With them a scheduler knows what is on its way: the
Pods it has assigned, less these.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

RESOURCES = ("cpu", "memory", "io", "network")
"""The order of an Amounts."""

MAX_WORKLOADS, MAX_BYTES = 16, 4096
MAX_NAME_CHARS = 253

Amounts = tuple[float, float, float, float]
"""One number per resource, NaN: unknown."""

UNKNOWN: Amounts = (nan, nan, nan, nan)
MOST: Amounts = (1e5, 1e15, 1.0, 1.0)
"""No node has more of a resource: what claims to is damaged."""


@dataclass(frozen=True, slots=True)
class WorkloadOnNode:
    """One workload as one node knows it."""

    cost: Amounts = UNKNOWN
    """What one Pod takes; all NaN while the node has not learned it."""
    fits: float = nan
    """How many more of it fit."""
    pods: int = 0
    """Pods of this workload that `room` already accounts for."""


@dataclass(frozen=True, slots=True)
class NodeWorkloads:
    """What a node publishes about its room."""

    room: Amounts = UNKNOWN
    next: Amounts = UNKNOWN
    """What the next Pod to arrive is believed to take."""
    workloads: Mapping[str, WorkloadOnNode] = field(default_factory=dict)
    other: int = 0
    """Pods of workloads that are not listed, in `room` like those that are."""
    used: Amounts = UNKNOWN
    """What everything on the node takes, as measured when this was written."""


def encode(given: NodeWorkloads) -> str:
    """As JSON of at most 4 kB; the workloads that come last are left out first, and their Pods counted as others.

    >>> encode(NodeWorkloads((5.2, 1e9, nan, nan), (1.0, 2e8, nan, nan), {"shop/web": WorkloadOnNode(fits=5.2, pods=3)}))
    '{"room":{"cpu":5.2,"memory":1000000000},"next":{"cpu":1,"memory":200000000},"workloads":{"shop/web":{"fits":5.2,"pods":3}}}'
    """
    rows = {name: _workload(workload) for name, workload in list(given.workloads.items())[:MAX_WORKLOADS]}
    other = given.other + sum(workload.pods for name, workload in given.workloads.items() if name not in rows)
    while True:
        body: dict[str, Any] = {"room": _named(given.room), "next": _named(given.next), "workloads": rows}
        more = ({"other": other} if other else {}) | ({"used": used} if (used := _named(given.used)) else {})
        text = json.dumps(body | more, separators=(",", ":"))
        if len(text) <= MAX_BYTES or not rows:
            return text
        other += rows.popitem()[1]["pods"]


def decode(text: str) -> NodeWorkloads | None:
    """What a node wrote; None if that is no such annotation.

    >>> decode('{"room":{"cpu":2},"next":{},"workloads":{"a":{"cpu":0.5,"pods":1}}}').workloads["a"]
    WorkloadOnNode(cost=(0.5, nan, nan, nan), fits=nan, pods=1)
    >>> decode("[]"), decode('{"room":{"cpu":"much"}}')
    (None, None)
    """
    if len(text) > MAX_BYTES:
        return None
    try:
        body = json.loads(text)
        workloads = {str(name)[:MAX_NAME_CHARS]: _read_workload(row) for name, row in body.get("workloads", {}).items()}
        if len(workloads) > MAX_WORKLOADS:
            return None
        room, following = _read(body.get("room", {})), _read(body.get("next", {}))
        return NodeWorkloads(room, following, workloads, _count(body.get("other", 0)), _read(body.get("used", {})))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _workload(workload: WorkloadOnNode) -> dict[str, Any]:
    fits = {"fits": round(workload.fits, 2)} if isfinite(workload.fits) else {}
    return {**_named(workload.cost), **fits, "pods": workload.pods}


def _named(amounts: Amounts) -> dict[str, float | int]:
    return {name: _short(amount) for name, amount in zip(RESOURCES, amounts, strict=True) if isfinite(amount)}


def _short(amount: float) -> float | int:
    """Four digits, which is more than anybody knows."""
    short = float(f"{amount:.4g}")
    return int(short) if short == int(short) else short


def _read(row: Mapping[str, Any]) -> Amounts:
    values = [_amount(row.get(name), most) for name, most in zip(RESOURCES, MOST, strict=True)]
    return values[0], values[1], values[2], values[3]


def _amount(value: Any, most: float) -> float:
    if value is None:
        return nan
    if not isinstance(value, int | float) or isinstance(value, bool) or not -most <= value <= most:
        raise ValueError
    return float(value)


def _read_workload(row: Mapping[str, Any]) -> WorkloadOnNode:
    cost, fits = _read(row), _amount(row.get("fits"), 1e6)
    if any(c < 0 for c in cost):
        raise ValueError
    return WorkloadOnNode(cost, fits, _count(row.get("pods", 0)))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10_000:
        raise ValueError
    return value
