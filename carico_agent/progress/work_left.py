"""How much a job still needs: CPU seconds, and the time until its end. Pure: times are arguments.

What it believes. Jobs of the same code need the same CPU per unit of progress, whatever shares the node with them.
So CPU seconds left = (total − done) × the median of Δcpu/Δdone over the last 8 reports, and the expected end is that
over the cores the job gets now. A job that waits for a GPU, a disk or a network needs the same *time* per unit instead;
its end is (total − done) × the median of Δt/Δdone. Which of both holds is not asked for and not guessed from the name
of the job: the steadier one is taken, by the spread of its slopes. Where both are as steady they say the same.

The interval of the end is what the second fastest and the second slowest of those slopes would make of it: two of nine
reports may be off (a checkpoint, an evaluation). It holds for a pace that stays as it was; a job that becomes slower
after half of its steps is not known in advance.

Why not the original's wall time per report divided by the job's share (*ProCon*, equation 3): the time between two
reports has contention in it already, and dividing by the share counts it twice. Two jobs on one core: twice the truth.
In CPU time contention cancels out. Why a median: one slow report moves a mean of 8 by an eighth of its length and the
median not at all.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, nan

SLOPES = 8
"""Slopes in the median; 9 reports."""
MIN_SLOPES = 2
"""An estimate of fewer is uncertain."""
MAX_LEFT_S = 1e8
"""No job counts for more, three years of a core: one that reports nonsense must not hide all others of its cluster."""
MAX_SPREAD = 0.5
"""Quartiles of the slopes further apart than this share of the median: uncertain."""
SAME_SPREAD = 0.05
"""Spreads that differ by less are the same: CPU time goes first, for it does not change with the neighbours."""


@dataclass(frozen=True, slots=True)
class Point:
    """One report, and the CPU the Pod had used by then."""

    t: float
    """Monotonic [s]."""
    done: float
    cpu_s: float
    """CPU seconds since the Pod's start; NaN unknown."""


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What is believed of one job; NaN unknown."""

    cpu_s: float = nan
    """CPU seconds left."""
    cores: float = nan
    """What it gets now."""
    end_s: float = nan
    """Seconds until its expected end, if it goes on getting that."""
    uncertain: bool = True
    low_s: float = nan
    high_s: float = nan
    """The interval of `end_s`."""
    basis: str = ""
    """What the end follows from: "cpu", "time", "first report", "history"; empty: it is unknown."""
    per_s: float = nan
    """Units of progress per second, now."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """What one unit of progress took, over the last reports."""

    middle: float = nan
    low: float = nan
    high: float = nan
    spread: float = inf
    """Between the quartiles, as a share of the median."""
    count: int = 0


@dataclass(frozen=True, slots=True)
class JobPace:
    """What the reports of one run show; made once per report, asked once a second."""

    last: Point
    cpu: Slopes
    """CPU seconds per unit of progress."""
    time: Slopes = Slopes()
    """Seconds per unit of progress."""
    cores: float = nan
    interval_s: float = 0.0
    by_cpu: bool = False
    """Whether the work is CPU: then its CPU per unit is at least as steady as its time."""
    uncertain: bool = True
    unit_s: tuple[float, float, float] = (nan, nan, nan)
    """Seconds per unit of progress, by the steadier of both: the median, low, high."""
    per_s: float = nan


def pace(points: Collection[Point], from_start: bool = True) -> JobPace | None:
    """Of the last reports, oldest first; None without any."""
    if not points:
        return None
    recent = list(points)[-SLOPES - 1 :]
    last, moved = recent[-1], [(a, b) for a, b in pairwise(recent) if b.done > a.done]
    time = _slopes([(b.t - a.t) / (b.done - a.done) for a, b in moved if b.t > a.t])
    cpu = _slopes([(b.cpu_s - a.cpu_s) / (b.done - a.done) for a, b in moved if b.cpu_s >= a.cpu_s])
    if not cpu.count and from_start and last.done > 0 and last.cpu_s > 0 and not time.count:
        cpu = Slopes(last.cpu_s / last.done)
    if not time.count:
        return JobPace(last, cpu)
    cores = _cores(recent)
    by_cpu = cores > 0 and cpu.spread <= time.spread + SAME_SPREAD
    ruling, share = (cpu, cores) if by_cpu else (time, 1.0)
    return JobPace(
        last,
        cpu,
        time,
        cores,
        (last.t - recent[0].t) / (len(recent) - 1),
        by_cpu,
        ruling.count < MIN_SLOPES or ruling.spread > MAX_SPREAD,
        (ruling.middle / share, ruling.low / share, ruling.high / share),
        1 / time.middle if time.middle > 0 else nan,
    )


def _slopes(found: Sequence[float]) -> Slopes:
    if not found:
        return Slopes()
    ordered, middle = sorted(found), median(found)
    aside = 1 if len(ordered) >= 5 else 0
    return Slopes(middle, ordered[aside], ordered[-1 - aside], _spread(ordered, middle), len(ordered))


def left(shown: JobPace | None, total: float, now_s: float) -> WorkLeft:
    """What is left at `now_s` of a run that has shown this."""
    if shown is None:
        return WorkLeft()
    last, cores = shown.last, shown.cores
    if last.done >= total:
        return WorkLeft(0.0, nan, 0.0, False, 0.0, 0.0, "reports", shown.per_s)
    # between two reports a job works on: for at most one interval, for then it would have reported
    since_s, units = min(max(0.0, now_s - last.t), shown.interval_s), total - last.done
    cpu_s = _bounded(units * shown.cpu.middle - (since_s * cores if cores == cores else 0.0))
    if not shown.time.count:
        return WorkLeft(cpu_s, cores, nan, True, basis="first report" if isfinite(cpu_s) else "")
    middle_s, low_s, high_s = shown.unit_s
    return WorkLeft(
        cpu_s,
        cores,
        _bounded(units * middle_s - since_s),
        shown.uncertain,
        _bounded(units * low_s - since_s),
        _bounded(units * high_s - since_s),
        "cpu" if shown.by_cpu else "time",
        shown.per_s,
    )


def _bounded(seconds: float) -> float:
    """NaN stays NaN."""
    return seconds if 0.0 <= seconds <= MAX_LEFT_S or seconds != seconds else 0.0 if seconds < 0.0 else MAX_LEFT_S


def estimate(points: Collection[Point], total: float, now_s: float, from_start: bool = True) -> WorkLeft:
    """From the last reports of one run, oldest first. `from_start`: the run began with the Pod, so that even the first
    report has a slope, all CPU so far over all progress so far; an uncertain one.

    A job that needs 3 CPU seconds for 1 % and gets half a core:

    >>> points = [Point(6.0 * n, float(n), 3.0 * n) for n in range(10)]
    >>> found = estimate(points, 100.0, now_s=54.0)
    >>> found.cpu_s, found.cores, found.end_s, found.uncertain
    (273.0, 0.5, 546.0, False)
    """
    return left(pace(points, from_start), total, now_s)


def _cores(points: Sequence[Point]) -> float:
    """What it got over the last half of `points`: the present share, not that of a minute ago."""
    known = [point for point in points if isfinite(point.cpu_s)]
    if len(known) < 2:
        return nan
    first, last = known[max(0, len(known) - 5)], known[-1]
    return (last.cpu_s - first.cpu_s) / (last.t - first.t) if last.t > first.t else nan


def median(values: Collection[float]) -> float:
    """Why not statistics.median: importing it takes 0.5 MB of every agent.

    >>> median([3.0, 1.0, 2.0]), median([4.0, 1.0])
    (2.0, 2.5)
    """
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _spread(slopes: Sequence[float], middle: float) -> float:
    """Between the quartiles, as a share of the median."""
    ordered = sorted(slopes)
    wide = ordered[(3 * len(ordered)) // 4 if len(ordered) > 1 else 0] - ordered[len(ordered) // 4]
    return wide / middle if middle > 0 else inf if wide > 0 else 0.0


MIN_RUNS = 3
MAX_RUNS = 32
MAX_WORKLOADS = 256


class RunTimes:
    """How long Pods of each workload ran: the work of those that report nothing.

    What it believes: a Pod that has run for `age_s` ends like the runs of its workload that lasted longer. So its time
    left is the median of those, less its age; unknown once it is older than all of them, for then it is not like them.

    >>> runs = RunTimes()
    >>> for seconds in (90.0, 100.0, 130.0): runs.ended("train", seconds)
    >>> runs.left_s("train", 40.0), runs.left_s("train", 95.0), runs.left_s("other", 1.0)
    (60.0, 20.0, nan)
    """

    def __init__(self, max_workloads: int = MAX_WORKLOADS) -> None:
        self._max_workloads = max_workloads
        self._runs: dict[str, deque[float]] = {}

    def ended(self, workload: str, seconds: float) -> None:
        """A Pod of this workload has ended after `seconds`. Beyond so many workloads the one that ended longest ago
        goes."""
        if not (workload and isfinite(seconds) and seconds > 0):
            return
        runs = self._runs.pop(workload, None) or deque(maxlen=MAX_RUNS)
        runs.append(seconds)
        self._runs[workload] = runs
        while len(self._runs) > self._max_workloads:
            del self._runs[next(iter(self._runs))]

    def knows(self, workload: str) -> bool:
        return len(self._runs.get(workload, ())) >= MIN_RUNS

    def left_s(self, workload: str, age_s: float) -> float:
        """Time left for a Pod of this workload and age; NaN unknown."""
        runs = self._runs.get(workload, ())
        longer = [run for run in runs if run > age_s]
        return median(longer) - age_s if longer and len(runs) >= MIN_RUNS else nan
