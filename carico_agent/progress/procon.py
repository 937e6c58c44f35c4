"""The contention of a worker as *ProCon* computes it ("Progress-based Container Scheduling for Short-lived Applications
in a Kubernetes Cluster", section V), word for word, flaws included. Pure.

f is the time between the last two reports per unit of progress, u the job's part of the CPU used on its worker, and
i = f/u·(MAX − P) the indicator of its remaining time. The contention c is the sum over seconds of the jobs that still
run then, less one: Σi − max i. Jobs that have not reported twice have i = 0. What the document leaves open: the factor
below which a worker is not at its upper limit is lost in its text; here it is 0.9.

Known flaws, which `least-left` does not have: an empty worker and one with a single job tie at c = 0, however long that
job is; f has contention in it already, and dividing by u counts it twice; two reports are noise.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from carico_agent.progress.work_left import MAX_LEFT_S, Point

LIMIT = 0.9


@dataclass(frozen=True, slots=True)
class RunningJob:
    points: Sequence[Point]
    """Its reports, oldest first."""
    total: float
    """MAX."""
    cores: float
    """R: what it uses of its worker."""


@dataclass(frozen=True, slots=True)
class WorkerContention:
    """What the scheduler is told of a worker."""

    now_s: float = 0.0
    """c with the shares that were measured (algorithm 1)."""
    with_one_more_s: float = 0.0
    """c with one job more and equal shares (algorithm 2, lines 13 to 19)."""
    below_limit: bool = True
    """Not at its upper limit (algorithm 1, lines 3 and 4)."""


def remaining_s(points: Sequence[Point], total: float, share: float) -> float:
    """i = f/u·(MAX − P), equation 3."""
    if len(points) < 2 or share <= 0:
        return 0.0
    before, last = points[-2], points[-1]
    if last.done <= before.done:
        return 0.0
    return min((last.t - before.t) / (last.done - before.done) / share * (total - last.done), MAX_LEFT_S)


def contention(remaining: Collection[float]) -> float:
    """c = Σi − max i.

    >>> contention([]), contention([7.0]), contention([3.0, 5.0, 9.0])
    (0.0, 0.0, 8.0)
    """
    return sum(remaining) - max(remaining) if remaining else 0.0


def worker(jobs: Collection[RunningJob], limit_cores: float, factor: float = LIMIT) -> WorkerContention:
    """Algorithm 1 for one worker, and what algorithm 2 asks of it.

    >>> steps = [Point(0.0, 1.0, 0.0), Point(10.0, 2.0, 0.0)]
    >>> worker([RunningJob(steps, 6.0, 1.0), RunningJob(steps, 6.0, 1.0)], 2.0)
    WorkerContention(now_s=80.0, with_one_more_s=120.0, below_limit=False)
    """
    used = sum(job.cores for job in jobs if job.cores > 0)
    now = [remaining_s(job.points, job.total, job.cores / used if used > 0 else 0.0) for job in jobs]
    later = [remaining_s(job.points, job.total, 1 / (len(jobs) + 1)) for job in jobs]
    return WorkerContention(contention(now), contention(later), used < factor * limit_cores)
