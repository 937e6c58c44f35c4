"""Workloads on the wire: what one costs in absolute units (cores, bytes), so that unlike nodes can compare.

A node counts in shares of itself; the size of a resource is what the whole share stands for. Everything that is
received is checked here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from carico_agent.core import WorkloadCost
from carico_agent.core.profile import moved as profile_moved
from carico_agent.core.subspace import Vector

MAX_WORKLOADS_PER_NODE = 32
MAX_WORKLOAD_CHARS = 253
MAX_PODS = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkloadFit:
    """How many more Pods of a workload a node can take, and the resource of which there is too little for another."""

    fits: int
    limiting: str


@dataclass(frozen=True, slots=True)
class SentProfile:
    """A profile in absolute units as it travels; lifetimes NaN where unknown."""

    day: bytes
    median_s: float
    p90_s: float
    ended: int


@dataclass(frozen=True, slots=True, eq=False)
class ReportedWorkloads:
    """What one node reported, compactly: a row per workload, in absolute units and in the order of `resources`.

    Why one table: thousands of nodes are kept, and an array of a few numbers is mostly the array itself.
    """

    resources: tuple[str, ...]
    names: tuple[str, ...]
    table: Vector
    """workloads×(2m + 2): cost and spread per resource, Pods seen, arrivals."""
    digest: bytes
    """Of the report as it was received: the same bytes need not be read again."""
    fits: tuple[int, ...] = ()
    """Per workload: 1 + how many more fit, 0 where the node did not count; empty: not sent."""
    limiting: tuple[int, ...] = ()
    """Per workload: index of the resource that limits."""
    room: tuple[float, ...] = ()
    """Per resource, NaN: unknown; empty: not sent."""
    profiles: tuple["SentProfile | None", ...] = ()
    """Per workload; as it was sent, because a day of floats would be four times as much."""


def digest(raw: bytes) -> bytes:
    """By which two reports are compared: a report of eight workloads has 600 bytes, and thousands of nodes are kept."""
    return blake2b(raw, digest_size=16).digest() if raw else b""


def to_absolute(shares: Sequence[float], sizes: Sequence[float] | Vector) -> list[float]:
    """Shares of a node in cores and bytes. What is no share (below 0, infinite) becomes unknown.

    >>> to_absolute([0.5, -1.0, float("nan")], [8.0, 1e9, 1.0])
    [4.0, nan, nan]
    """
    units = sizes if len(sizes) else [1.0] * len(shares)
    return [
        float(share * unit) if 0 <= share < math.inf else math.nan for share, unit in zip(shares, units, strict=True)
    ]


def to_shares(amounts: Vector, sizes: Sequence[float] | Vector) -> tuple[float, ...]:
    """Cores and bytes as shares of a node; more than a whole node stays more than 1."""
    units = np.asarray(sizes, dtype=np.float64) if len(sizes) else np.ones(len(amounts))
    return tuple((amounts / units).tolist())


def moved(old: Sequence[WorkloadCost], new: Sequence[WorkloadCost]) -> bool:
    """Whether workloads came or went, one costs 10 % of itself more or less, or is known from twice as many Pods."""
    if len(old) != len(new):
        return True
    before: Mapping[str, WorkloadCost] = {workload.workload: workload for workload in old}
    return any(workload.workload not in before or _moved(before[workload.workload], workload) for workload in new)


def _moved(old: WorkloadCost, new: WorkloadCost) -> bool:
    if new.pods_seen > 2 * old.pods_seen or len(old.cost) != len(new.cost):
        return True
    for was, now in zip(old.cost, new.cost, strict=True):
        if math.isnan(was) != math.isnan(now) or abs(now - was) > 0.1 * abs(was) + 1e-3:
            return True
    return profile_moved(old.profile, new.profile)
