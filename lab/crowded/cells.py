"""The cells: which workloads, beside how many busy neighbours, and what one cell may be off by."""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

WORKLOADS = {"busy": 1.0, "think": 0.06, "open": 0.2}
"""What one thread uses alone [cores]; the truth of a cell is measured, this is what its quota is made of."""
THREADS = (1, 4, 8)
NEIGHBOURS = (0, 2, 4, 8)
QUOTA_RATIO = {"busy": 0.5, "think": 1.5, "open": 1.5}
"""A quota in parts of what the workload uses alone: half of what loops want; what others want in the mean and half as
much again, which is less than they want in a burst."""
OFF_RATIO, OFF_CORES, OPEN_OFF_RATIO = 0.15, 0.03, 0.30
INTERVAL_SD = 1.645
"""Standard deviations of an interval that holds nine truths of ten."""


@dataclass(frozen=True)
class CrowdLoad:
    """One workload."""

    workload: str
    threads: int
    quota: bool

    @property
    def quota_cores(self) -> float:
        return QUOTA_RATIO[self.workload] * WORKLOADS[self.workload] * self.threads

    @property
    def name(self) -> str:
        return f"{self.workload}{self.threads}{'q' if self.quota else ''}"


LOADS = tuple(
    CrowdLoad(workload, threads, quota) for quota in (False, True) for workload in WORKLOADS for threads in THREADS
)


@dataclass(frozen=True)
class CrowdedCell:
    """What was found in one of them."""

    workload: str
    threads: int
    quota: bool
    seen_as: str
    """container (its cgroup) or process (its pid alone)"""
    neighbours: int
    started_crowded: bool
    """The Pod began beside these neighbours; else it was there before they came."""
    truth: float
    cost: float
    cost_sd: float
    used: float
    """What it got [cores]."""
    by_waiting: float
    """used + waited, as demand was made before."""
    seen_quiet: bool = True
    """It got at least nine tenths of what it wants before neighbours came: other load here may prevent that."""

    @property
    def allowed(self) -> float:
        ratio = OPEN_OFF_RATIO if self.workload == "open" else OFF_RATIO
        return max(ratio * self.truth, OFF_CORES)

    @property
    def within(self) -> bool:
        if isnan(self.cost):
            return False
        off = abs(self.cost - self.truth)
        if self.workload == "open" and (self.started_crowded or not self.seen_quiet):
            return off <= max(INTERVAL_SD * self.cost_sd, OFF_CORES)
        return off <= self.allowed

    def state(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}
