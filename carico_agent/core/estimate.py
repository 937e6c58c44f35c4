"""What the model answers: plain values, of one instant."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadEstimate:
    """One workload on this node: what one costs, and how many more of it fit."""

    workload: str
    cost: tuple[float, ...]
    """Mean usage of one Pod per resource, in the node's unit; NaN where unknown."""
    spread: tuple[float, ...]
    """Standard deviation of one Pod around it."""
    pods: int
    """Running now."""
    arrivals: float
    """Chance that the next Pod to arrive is of this workload, 0 to 1."""
    fits: float
    low: float
    high: float
    limiting: str | None
    per_node: bool
    trusted: bool
    """False: nothing is known yet about its cost but the prior."""
    cost_sd: tuple[float, ...] = ()
    """Standard deviation of `cost` itself: more where its Pods were measured while they waited for a CPU."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many more Pods fit, at one instant. Unknown numbers are NaN, never guessed."""

    pod_capacity: float
    low: float
    high: float
    slots: float
    """Pods counted + Pod-Capacity, both of this instant: consumers subtract all they have assigned."""
    capacity: float
    """Capacity k, in units of `direction` × `sigma`; this, `baseline`, `per_pod_cost` and `sigma` are NaN, and
    `direction` is empty, unless the estimator is one of the method carico."""
    baseline: float
    per_pod_cost: float
    cost_vector: tuple[float, ...]
    mode: str
    """learning (not yet to be trusted), measured (from usage) or predicted (usage is unreliable: churn)."""
    limiting: str | None
    pods: int
    sigma: float
    direction: tuple[float, ...]
    usage: tuple[float, ...]
    measured: bool = False
    """Every Pod is measured: the fields below are known, and Pod-Capacity is that of the next Pod to arrive."""
    host: tuple[float, ...] = ()
    """Usage that is no Pod's, per resource."""
    room: tuple[float, ...] = ()
    """limit − host − Σ Pods per resource, young Pods counted at what their workload costs; below 0 when overloaded."""
    horizon_s: float = 0.0
    """For how long the number holds [s]; 0: it is that of this instant."""
    outlook: str = ""
    """What is known about the coming hours, where they were asked for: unknown, first day or known."""
    workloads: tuple[WorkloadEstimate, ...] = ()
    limits: tuple[float, ...] = ()
    """Usage at which each resource counts as full, by who runs here."""
    mix_changed: str = ""
    """Which workload arrives more or less often than some minutes ago, where that moved the number by a quarter."""
