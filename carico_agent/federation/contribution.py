"""What a node sends to the others, what it receives, and what is believed of either.

Nothing that comes over the wire is used before it passed through here. A contribution is checked for what a true
node can send at all: finite numbers, orthonormal directions, 0 ≤ σ ≤ √m (usage is in [0,1]^m), few resources, a time
near ours. It is not checked for the sign of u (the sign of a singular vector is free) or the order of σ, because only
UΣ²Uᵀ is used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import mul

import numpy as np

from carico_agent.core import WorkloadCost
from carico_agent.core.subspace import Subspace, Vector
from carico_agent.federation.workloads import WorkloadFit

MAX_RESOURCES = 16
MAX_NAME_CHARS = 253  # a Kubernetes node name is a DNS subdomain
MAX_RESOURCE_CHARS = 63
ORTHONORMAL_TOLERANCE = 1e-6
MAX_PRECISION = 1e12
SIZES = (1e-6, 1e18)
"""What usage 1 may stand for: a thousandth of a core … an exabyte."""


class Rejected(ValueError):
    """Input that is not believed. `reason` is one of a few fixed words (it is counted), `detail` says what it was."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """A node's own local model. `cost` and `precision` follow `resources`; empty means unknown."""

    resources: tuple[str, ...]
    subspace: Subspace
    samples: int = 0
    cost: Sequence[float] | Vector = ()
    precision: Sequence[float] | Vector = ()
    pods: int = 0
    sizes: Sequence[float] | Vector = ()
    """What usage 1 of each resource stands for (cores, bytes), so that unlike nodes can share a cost. Empty: the fleet
    is taken as alike. All nodes of a cluster should do the same."""
    workloads: Sequence[WorkloadCost] = ()
    """What workloads cost by this node's own evidence, as shares of the node; at most 32 are sent."""
    room: Sequence[float] | Vector = ()
    """What is left of each resource, as a share of the node; NaN: unknown. Empty: not sent."""
    fits: Mapping[str, WorkloadFit] = field(default_factory=dict)
    """How many more of a workload this node can take, by workload; others are counted from `room`."""


@dataclass(frozen=True, slots=True, eq=False)
class GlobalView:
    """The cluster as one node sees it: everything in the order of its own resources."""

    resources: tuple[str, ...]
    subspace: Subspace
    cost: Vector
    """What one Pod uses of this node, as a share of it; NaN where it is not known."""
    precision: Vector
    """1/variance with which `cost` holds on a node that is not among those it comes from; 0 where it is not known."""
    nodes: int
    sequence: int
    aggregator: str
    received_s: float
    """Our monotonic time of its arrival [s]."""
    workloads: tuple[WorkloadCost, ...] = ()
    """What workloads cost, as shares of this node; NaN where it is not known."""

    def cost_to_learn(self) -> tuple[list[float], list[float]]:
        """Cost and precision as CapacityModel.learn_cost takes them: unknown is 0, 0; at most a whole node."""
        known = self.precision > 0
        cost = np.clip(np.where(known, self.cost, 0.0), 0.0, 1.0)
        return cost.tolist(), np.where(known, self.precision, 0.0).tolist()

    def age_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.received_s)

    def renewed(self, now_s: float) -> "GlobalView":
        """The same view, received again."""
        return replace(self, received_s=now_s)

    def with_workloads(self, workloads: tuple[WorkloadCost, ...]) -> "GlobalView":
        return replace(self, workloads=workloads)


def check_name(name: str) -> str:
    """A node's name: not empty, not long, printable (it ends up in logs and metrics)."""
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise Rejected("name", f"{len(name)} characters")
    if not name.isprintable() or name != name.strip():
        raise Rejected("name", f"not printable: {name[:60]!r}")
    return name


@lru_cache(maxsize=256)
def check_resources(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of resources: few, short, printable, each once."""
    if not 0 < len(names) <= MAX_RESOURCES:
        raise Rejected("size", f"{len(names)} resources, 1 to {MAX_RESOURCES} are allowed")
    for name in names:
        if not (0 < len(name) <= MAX_RESOURCE_CHARS and name.isprintable()):
            raise Rejected("name", f"resource {name[:60]!r}")
    if len(set(names)) != len(names):
        raise Rejected("size", "a resource is named twice")
    return names


def check_subspace(m: int, u: Sequence[float], sigma: Sequence[float], max_sigma: float | None = None) -> Subspace:
    """A subspace from its numbers, `u` row by row; raises Rejected unless it can be a true one.

    >>> check_subspace(2, [0.6, 0.8], [1.1]).unit.round(3).tolist()
    [0.66, 0.88]
    >>> check_subspace(2, [0.6, 0.7], [1.1])
    Traceback (most recent call last):
    carico_agent.federation.contribution.Rejected: orthonormal: UᵀU is off by -0.15
    """
    values, numbers = list(sigma), list(u)  # plain floats: five times faster than numpy at these sizes
    rank = len(values)
    if rank > m or len(numbers) != m * rank:
        raise Rejected("size", f"{len(numbers)} numbers for {m} resources of rank {rank}")
    limit = (math.sqrt(m) if max_sigma is None else max_sigma) * (1 + ORTHONORMAL_TOLERANCE)
    for value in values:
        if not 0 <= value <= limit:
            raise Rejected("sigma" if math.isfinite(value) else "finite", f"σ {value:.3g} is not in [0, {limit:.3g}]")
    columns = [numbers[k::rank] for k in range(rank)]
    for i, a in enumerate(columns):
        for j in range(i, rank):
            off = sum(map(mul, a, columns[j])) - (i == j)
            if not abs(off) <= ORTHONORMAL_TOLERANCE:
                raise Rejected("orthonormal" if math.isfinite(off) else "finite", f"UᵀU is off by {off:.2g}")
    return Subspace(np.array(numbers, dtype=np.float64).reshape(m, rank), np.array(values, dtype=np.float64))


def check_numbers(what: str, m: int, numbers: Sequence[float], least: float, most: float) -> list[float]:
    """m numbers within bounds; an empty sequence means "not sent" and stays empty."""
    values = list(numbers)
    if len(values) not in (0, m):
        raise Rejected("size", f"{len(values)} numbers of {what} for {m} resources")
    for number in values:
        if not least <= number <= most:  # false for NaN
            raise Rejected(what, f"{number:.3g} is not between {least:g} and {most:g}")
    return values


def check_amounts(what: str, m: int, numbers: Sequence[float]) -> list[float]:
    """m amounts in absolute units (cores, bytes): at least 0, at most an exabyte, or NaN for unknown."""
    values = list(numbers)
    if len(values) != m:
        raise Rejected("size", f"{len(values)} numbers of {what} for {m} resources")
    for number in values:
        if not (0 <= number <= SIZES[1] or math.isnan(number)):
            raise Rejected(what, f"{number:.3g} is not between 0 and {SIZES[1]:g}")
    return values
