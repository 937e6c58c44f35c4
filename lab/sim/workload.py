"""What runs: workloads and when they arrive. Numbers of the paper's two workloads are derived from its tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SimulatedWorkload:
    """Pods that are alike. `threads` is how many CPUs one keeps busy while it runs."""

    name: str
    work_core_s: float
    """CPU time one Pod needs [core seconds]."""
    work_cv: float = 0.05
    """Standard deviation of that over its mean."""
    threads: float = 1.0
    memory_mib: float = 10.0
    memory_ramp_s: float = 2.0
    request_mcpu: int = 100
    """What its author asks for, or guesses [milliCPU]; only schedulers that believe requests look at it."""
    request_mib: int = 0

    def asking(self, mcpu: int, mib: int | None = None) -> "SimulatedWorkload":
        parts = vars(self) | {"request_mcpu": mcpu, "request_mib": self.request_mib if mib is None else mib}
        return SimulatedWorkload(**parts)


PI = SimulatedWorkload("pi-2000", work_core_s=5.9, work_cv=0.08)
"""Table 5.1: the fastest Pod takes 5 s; 1000 of them keep 76 cores busy for 66 s."""

SKLEARN = SimulatedWorkload(
    "sklearn", work_core_s=97.0, threads=3.6, memory_mib=650, memory_ramp_s=5.0, request_mcpu=200, request_mib=750
)
"""Tables 5.2 and 5.3: 5.3 Pods on 4 cores take 127 s, one alone 22–27 s, so 97 core seconds on ≈3.6 threads."""

LIGHT = SimulatedWorkload("light", work_core_s=4.0, work_cv=0.1, threads=0.2)
HEAVY = SimulatedWorkload("heavy", work_core_s=20.0, work_cv=0.1, threads=2.0)
"""The workload that suddenly turns heavy (paper 5.9): a tenth of the CPU before, twice a core after."""


@dataclass(frozen=True)
class PodBatch:
    workload: SimulatedWorkload
    pods: int
    at_s: float = 0.0
    over_s: float = 0.0
    """Pods arrive evenly over this long; 0 is all at once (parallelism = completions, as in the paper)."""


@dataclass
class DrawnPods:
    """Every Pod of a run, one row each; drawn in advance, so that all schedulers meet the same Pods."""

    workload: NDArray[np.int64]
    created_s: NDArray[np.float64]
    work: NDArray[np.float64]
    threads: NDArray[np.float64]
    memory: NDArray[np.float64]
    ramp_s: NDArray[np.float64]
    startup_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.workload)


def draw(
    jobs: Sequence[PodBatch], startup_s: tuple[float, float], rng: np.random.Generator
) -> tuple[list[SimulatedWorkload], DrawnPods]:
    """All Pods of all jobs; startup latency is triangular in `startup_s` with its mode at one third (paper: 1–4 s)."""
    workloads = list(dict.fromkeys(job.workload for job in jobs))
    parts = []
    for job in jobs:
        n, k = job.pods, job.workload
        spread = np.maximum(rng.normal(1.0, k.work_cv, n), 0.3)
        created = job.at_s + np.linspace(0, job.over_s, n, endpoint=False)
        parts.append(
            (
                np.full(n, workloads.index(k)),
                created,
                k.work_core_s * spread,
                np.full(n, k.threads),
                np.full(n, k.memory_mib) * rng.normal(1, 0.02, n),
                np.full(n, k.memory_ramp_s),
            )
        )
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    low, high = startup_s
    startup = (
        rng.triangular(low, low + (high - low) / 3, high, len(columns[0]))
        if high > low
        else np.full(len(columns[0]), low)
    )
    # Pods of the same instant come in any order: the controllers of two Jobs work side by side.
    order = np.lexsort((rng.permutation(len(columns[0])), columns[1]))
    return workloads, DrawnPods(*(column[order] for column in columns), startup_s=startup)
