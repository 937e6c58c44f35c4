"""Workers that share their processors among the jobs on them, and what the jobs report meanwhile.

Each worker has 16 threads, as in *ProCon*, section VI-A. A job that wants t of them gets min(t, its fair share); the
deep learning jobs of the document want all. Progress is linear in CPU time. A job reports after each of its steps, but
at most once a second; the CPU counter it is read with has an error of a tenth of an interval.
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from random import Random

from carico_agent.progress.work_left import SLOPES, Point

THREADS = 16.0
JITTER = 0.1


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """A model of the document's table II; `solo_s` is how long it takes alone on a worker."""

    name: str
    steps: int
    solo_s: float
    threads: float = THREADS

    @property
    def work_s(self) -> float:
        """CPU seconds in all."""
        return self.solo_s * self.threads


@dataclass(slots=True)
class WorkerJob:
    workload: TrainingModel
    arrives_s: float
    worker: int = -1
    used_s: float = 0.0
    """CPU seconds so far."""
    ends_s: float = inf
    reports: deque[Point] = field(default_factory=lambda: deque(maxlen=SLOPES + 1))

    @property
    def left_s(self) -> float:
        return self.workload.work_s - self.used_s


def shares(wanted: list[float], threads: float = THREADS) -> list[float]:
    """Max-min fair: nobody gets more than wanted, the rest is shared evenly.

    >>> shares([16.0, 16.0]), shares([2.0, 16.0, 16.0])
    ([8.0, 8.0], [2.0, 7.0, 7.0])
    """
    given, left, waiting = [0.0] * len(wanted), threads, sorted(range(len(wanted)), key=lambda at: wanted[at])
    while waiting:
        at = waiting.pop(0)
        given[at] = min(wanted[at], left / (len(waiting) + 1))
        left -= given[at]
    return given


class Worker:
    """One worker; time goes on with `advance` only."""

    def __init__(self, rng: Random) -> None:
        self.jobs: list[WorkerJob] = []
        self.contention = 0.0
        """∫ (jobs − 1) dt while it was busy: the document's contention rate, as it came true."""
        self._now_s, self._rng = 0.0, rng
        self.images: set[str] = set()
        """What it has pulled."""
        self.decisions = 0
        """Of the first worker: how often one was chosen."""

    def next_end_s(self) -> float:
        rates = shares([job.workload.threads for job in self.jobs])
        return min((self._now_s + job.left_s / rate for job, rate in zip(self.jobs, rates, strict=True)), default=inf)

    def advance(self, now_s: float) -> None:
        """Up to `now_s`, which is not after the next end."""
        step_s, rates = now_s - self._now_s, shares([job.workload.threads for job in self.jobs])
        for job, rate in zip(self.jobs, rates, strict=True):
            self._report(job, rate, step_s)
            job.used_s += rate * step_s
        self.contention += max(0, len(self.jobs) - 1) * step_s
        self._now_s = now_s
        for job in [job for job in self.jobs if job.left_s <= 1e-6 * job.workload.work_s]:
            job.ends_s = now_s
            self.jobs.remove(job)

    def _report(self, job: WorkerJob, rate: float, step_s: float) -> None:
        """The reports of this stretch; only the last nine matter."""
        per_step = job.workload.work_s / job.workload.steps
        every = max(1, -int(-rate // per_step)) if rate > per_step else 1  # steps between two reports
        first, last = int(job.used_s / per_step) + 1, int((job.used_s + rate * step_s) / per_step)
        done = list(range(last - (last - first) // every * every, last + 1, every)) if last >= first else []
        for n in done[-SLOPES - 1 :]:
            cpu_s = n * per_step
            t = self._now_s + (cpu_s - job.used_s) / rate
            if job.reports and t - job.reports[-1].t < 1.0:
                continue
            error_s = self._rng.gauss(0.0, JITTER) * every * per_step
            job.reports.append(Point(t, float(n), max(0.0, cpu_s + error_s)))
