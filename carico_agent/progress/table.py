"""What jobs have reported: a table by Pod, bounded. Pure: times are arguments, in monotonic seconds.

Less done than before is a new run, except from another process of the Pod than the one that is ahead, while that one
lives: of the ranks of a training the first counts. A job is stale after ten of its own intervals without a report, or
of those it was asked for, and its work is then unknown. The table holds Pods that run, at most `most`, and the last
nine reports of each.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

from carico_agent.progress.work_left import SLOPES, JobPace, Point, WorkLeft, left, median, pace

MAX_JOBS = 1024
STALE_INTERVALS = 10
FIRST_INTERVAL_S = 30.0
"""Taken for the interval of a job that has reported once."""
MIN_INTERVAL_S = 1.0
LARGEST = 1e15
"""Beyond this, one step more is no difference to a double."""


class BadReport(ValueError):
    """Not a report; the text says what is wrong."""


def parse(body: Mapping[str, Any]) -> tuple[float, float]:
    """(done, total) of a report, or of Kubeflow Trainer's status. Raises BadReport.

    >>> parse({"done": 120, "total": 5000}), parse({"trainerStatus": {"progressPercentage": 45}})
    ((120.0, 5000.0), (45.0, 100.0))
    """
    if "trainerStatus" in body:
        status = body["trainerStatus"]
        if not isinstance(status, dict):
            raise BadReport("trainerStatus: an object is expected")
        done, total = _number(status, "progressPercentage", "trainerStatus."), 100.0
    else:
        done, total = _number(body, "done"), _number(body, "total")
    if total <= 0:
        raise BadReport(f"total: {total:g} is not above 0")
    if not 0 <= done <= total:
        raise BadReport(f"done: {done:g} is not between 0 and {total:g}")
    return done, total


def _number(body: Mapping[str, Any], name: str, where: str = "") -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadReport(f"{where}{name}: a number is expected")
    if not abs(value) <= LARGEST:  # NaN too
        raise BadReport(f"{where}{name}: a finite number up to {LARGEST:g} is expected")
    return float(value)


@dataclass(slots=True)
class Job:
    """The present run of one Pod."""

    total: float
    runs: int = 1
    """How often it began, as far as was seen."""
    last_s: float = nan
    """Its last report."""
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=SLOPES + 1))
    """Reports in which it had moved on."""
    gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=SLOPES))
    asked_s: float = MIN_INTERVAL_S
    """When its next report was asked for: with many jobs on a node, later than the last ones came."""
    reporter: Hashable = None
    """The process that reported last."""
    shown: JobPace | None = None
    """What `points` show."""

    @property
    def done(self) -> float:
        return self.points[-1].done

    @property
    def interval_s(self) -> float:
        return max(self.asked_s, median(self.gaps_s)) if self.gaps_s else FIRST_INTERVAL_S

    def is_stale(self, now_s: float) -> bool:
        return self.done < self.total and self._is_silent(now_s)

    def is_over(self, now_s: float) -> bool:
        """It has reported its end, and its Pod runs on: a container that never ends is no job with 0 s left."""
        return self.done >= self.total and self._is_silent(now_s)

    def _is_silent(self, now_s: float) -> bool:
        return now_s - self.last_s > STALE_INTERVALS * self.interval_s

    def left(self, now_s: float) -> WorkLeft:
        return WorkLeft() if self.is_stale(now_s) else left(self.shown, self.total, now_s)


class ProgressTable:
    """All jobs that report.

    >>> table = ProgressTable()
    >>> for n in range(4): table.report("uid-1", 10.0 * n, done=n, total=8, cpu_s=5.0 * n)
    >>> table.left("uid-1", 30.0).cpu_s, table.left("uid-1", 131.0).cpu_s
    (25.0, nan)
    """

    def __init__(self, most: int = MAX_JOBS) -> None:
        self._most = most
        self._jobs: dict[str, Job] = {}
        self.reports = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[tuple[str, Job]]:
        return iter(self._jobs.items())

    def get(self, key: str) -> Job | None:
        return self._jobs.get(key)

    def report(
        self, key: str, t: float, done: float, total: float, cpu_s: float = nan, reporter: Hashable = None
    ) -> None:
        """A report of the Pod `key` at `t`, when it had used `cpu_s`; `reporter`: the process it came from."""
        self.reports += 1
        job = self._jobs.get(key)
        if job is None or done < job.done or cpu_s < job.points[-1].cpu_s:
            job = self._begin(key, total, job)
        else:
            job.gaps_s.append(t - job.last_s)
        job.total, job.last_s, job.reporter = total, t, reporter
        if not job.points or done > job.done:
            job.points.append(Point(t, done, cpu_s))
            job.shown = pace(job.points, from_start=job.runs == 1)

    def _begin(self, key: str, total: float, before: Job | None) -> Job:
        self._jobs.pop(key, None)
        while len(self._jobs) >= self._most:
            del self._jobs[min(self._jobs, key=lambda one: self._jobs[one].last_s)]
        job = self._jobs[key] = Job(total, before.runs + 1 if before else 1)
        return job

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others: their Pods have gone."""
        for key in [key for key in self._jobs if key not in keys]:
            del self._jobs[key]

    def left(self, key: str, now_s: float) -> WorkLeft:
        job = self._jobs.get(key)
        return WorkLeft() if job is None else job.left(now_s)


@dataclass(frozen=True, slots=True)
class WorkSummary:
    """All work left on a node [CPU seconds]."""

    jobs: int = 0
    """Pods whose work left is known."""
    unknown: int = 0
    """Pods that have reported, of which nothing is known now: stale, or too new."""
    uncertain: int = 0
    """Of `jobs`, those whose estimate is uncertain."""
    total_s: float = 0.0
    longest_s: float = 0.0


def summary(found: Collection[WorkLeft]) -> WorkSummary:
    known = [left for left in found if isfinite(left.cpu_s)]
    return WorkSummary(
        len(known),
        len(found) - len(known),
        sum(left.uncertain for left in known),
        sum(left.cpu_s for left in known),
        max((left.cpu_s for left in known), default=0.0),
    )
