"""One running Pod: what it uses now, and whether it has shown yet what it costs.

A Pod that has just started says little about itself: its images load, its caches fill, its clients do not know it. It
has *shown itself* when its usage stops rising, and has reached what its workload costs or is older than its workload's ramp.
Until then it counts at what its workload costs, and teaches its workload nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

RISE_RATIO = 0.12
"""A reading this much above the one before means that the Pod still rises: 1.7 standard deviations of the difference
of two readings with 5 % noise, so that noise alone delays one Pod in twenty by one reading."""

MIN_RISE, MIN_RISE_CORES = 0.002, 0.016
"""And by at least this share of the node, or so many cores if that is less: what an idle Pod does is no rise. With the
share alone half a core that ramps up on 32 was taken for steady: relative error .20, not .02."""

RISE_S = 3.0
"""Readings nearer together than this are not compared [s]: the kernel averages pressure over 2 s."""

UNKNOWN_SHOWN_S = 8.0
"""A Pod of a workload that nothing is known about has shown itself at this age at the earliest [s]."""

REACHED_RATIO = 0.75
"""A young Pod at this share of what its workload costs has arrived, however young it is."""

MEMORY_READINGS = 12
"""Readings that a Pod's mean goes back: a minute at one reading in 5 s brings 5 % of noise down to 1 %."""

JUMP_RATIO, MIN_JUMP, JUMP_READINGS = 0.25, 0.003, 5
"""Five readings in a row beyond the mean by this much, in one direction: the Pod has changed, the mean starts anew.
With two in a row the mean followed the waves of Pods whose demand swings by a third: relative error .07, not .05,
on "bursty Pods" of lab/nodes.py."""

BLOCK_READINGS, BLOCK_S = 3, 10.0
"""A block has at least so many readings and lasts at least this long [s]."""

BLOCK_RISE_RATIO = 0.08
"""A block this much above the one before: the Pod still rises. Two standard deviations of the difference of two."""

MEAN_AGE_S = 25.0
"""The mean is about this old [s]."""

MARK_S, MIN_WATCHED_S = 25.0, 30.0
"""Growth is measured from what the mean was this long after the Pod changed [s], when a step is over, and is visible
after this long [s]."""

SAME_RATIO = 0.15
"""A reading within three standard deviations (5 % each) of the mean is the mean, seen with noise."""


@dataclass(frozen=True, slots=True)
class PodSample:
    """What one Pod uses: `usage` in the node's unit and order of resources, NaN where unknown.

    `workload` names the template the Pod came from. A `per_node` Pod (DaemonSet, static Pod) is never the next Pod to arrive.
    """

    uid: str
    workload: str
    usage: tuple[float, ...]
    per_node: bool = False

    def check(self, m: int) -> None:
        """Raise ValueError if this is no reading of `m` resources."""
        if len(self.usage) != m:
            raise ValueError(f"Pod {self.uid}: {len(self.usage)} values of usage for {m} resources")
        for value in self.usage:
            if value == value and not (isfinite(value) and value >= -1e-6):
                raise ValueError(f"Pod {self.uid}: usage {value} is neither at least 0 nor NaN (unknown)")


class SlowRise:
    """Sees that a Pod still rises when two readings no longer show it: compares means of blocks of readings.

    Why: near its end a ramp of a minute rises by 8 % between two readings, which are off by 7 %. Pods that need long to
    warm up would teach their workload what they used half-way.
    """

    def __init__(self, m: int) -> None:
        self.total = [0.0] * m
        self.readings = 0
        self.since_t = inf
        self.mean: list[float] | None = None  # of the last whole block
        self.middle_t = -inf  # of it

    def take(self, t: float, usage: Sequence[float], least: Sequence[float]) -> list[int] | None:
        """Take a reading. Resources in which the block that it completes is above the one before, by `least` or more;
        None: no two yet."""
        self.total = [a + x for a, x in zip(self.total, usage, strict=True)]
        self.readings += 1
        self.since_t = min(self.since_t, t)
        if self.readings < BLOCK_READINGS or t - self.since_t < BLOCK_S:
            return None
        before, self.mean = self.mean, [a / self.readings for a in self.total]
        self.middle_t = (self.since_t + t) / 2
        self.total, self.readings, self.since_t = [0.0] * len(self.mean), 0, inf
        if before is None:
            return None
        pairs = enumerate(zip(self.mean, before, least, strict=True))
        return [i for i, (x, old, by) in pairs if x - old > BLOCK_RISE_RATIO * old + by]

    def state(self) -> list[Any]:
        totals, mean = ([x if x == x else None for x in row] for row in (self.total, self.mean or []))
        return [totals, self.readings, self.since_t if isfinite(self.since_t) else None, mean]

    @classmethod
    def from_state(cls, state: Sequence[Any], m: int) -> "SlowRise":
        totals, readings, since_t, mean = state
        rise = cls(m)
        rise.total, rise.readings = [nan if x is None else float(x) for x in totals], int(readings)
        rise.since_t = inf if since_t is None else float(since_t)
        rise.mean = [nan if x is None else float(x) for x in mean] or None
        if len(rise.total) != m or len(rise.mean or rise.total) != m:
            raise ValueError(f"damaged model state: a Pod without {m} resources")
        return rise


class PodReadings:
    """The readings of one Pod, in bounded memory. `since_t` is −inf for a Pod older than our knowledge; `min_rise` is
    what counts as a rise, per resource."""

    def __init__(self, workload: str, since_t: float, m: int, min_rise: Sequence[float] | None = None) -> None:
        self.workload = workload
        self._min_rise = [MIN_RISE] * m if min_rise is None else min_rise
        self.since_t = since_t
        self.t = -inf  # of the last reading
        self.sample: PodSample | None = None
        self.now = [nan] * m  # what it uses, noise removed where possible
        self.mean = [nan] * m  # since it has shown itself, or since it changed
        self.shown = False
        self.shown_t = -inf
        self.first = [nan] * m  # the mean from which on growth is watched, MARK_S after it had shown itself or changed
        self.marked = False  # that is known
        self.readings = [0] * m  # in the mean
        self.off = [0] * m  # readings in a row beyond the mean, signed
        self.mark = [nan] * m  # an earlier reading, to see whether it rises
        self.mark_t = -inf
        self.calm_age_s = 0.0  # its age when it was last seen to rise
        self.rise: SlowRise | None = None  # while it may still rise slowly
        self.remembered = False  # what it uses was read before a restart

    def read(self, t: float, usage: Sequence[float], ramp_s: float, cost: Sequence[float]) -> bool:
        """Take a reading; `ramp_s` and `cost` (NaN: unknown) are its workload's.

        True when `calm_age_s` has news: it has just shown itself, or was seen to rise after that.
        """
        self.t = t
        self.remembered &= any(x != x and old == old for x, old in zip(usage, self.now, strict=True))
        known = [x if x == x else old for x, old in zip(usage, self.now, strict=True)]
        if self.shown:
            if self.shown_t == -inf:  # a new clock
                self._watch_anew()
            self._follow(usage)
            if not self.marked and t - self.shown_t >= MARK_S:
                self.first, self.shown_t, self.marked = list(self.mean), t, True
            return self.rise is not None and self._still_rises(self.rise, known)
        self.now = known
        if not self._has_shown(t, usage, ramp_s, cost):
            return False
        self.shown, self.readings, self.mean = True, [1] * len(known), list(usage)
        self._watch_anew()
        if self.since_t > -inf:
            self.rise = SlowRise(len(known))
            self.rise.take(t, known, self._min_rise)
        return True

    def _watch_anew(self) -> None:
        """It is watched anew whether it grows."""
        self.first, self.shown_t, self.marked = [nan] * len(self.mean), self.t, False

    def _still_rises(self, rise: SlowRise, known: Sequence[float]) -> bool:
        """The mean starts anew with each block that is above the one before; the first that is not ends it."""
        risen = rise.take(self.t, known, self._min_rise)
        if risen is None or rise.mean is None:
            return False
        if not risen:
            self.rise = None
            return False
        for i in risen:
            self.mean[i], self.readings[i] = rise.mean[i], BLOCK_READINGS
        self._watch_anew()
        self.calm_age_s = rise.middle_t - self.since_t
        return True

    @property
    def watched_s(self) -> float:
        """For how long it is known how much it grew: from `first` to `mean` [s]."""
        return self.t - self.shown_t - MEAN_AGE_S

    def _has_shown(self, t: float, usage: Sequence[float], ramp_s: float, cost: Sequence[float]) -> bool:
        age_s = t - self.since_t
        if self.since_t == -inf:
            return any(x == x for x in usage)
        if self.mark_t == -inf or t - self.mark_t < RISE_S:
            if self.mark_t == -inf and any(x == x for x in usage):
                self.mark, self.mark_t = list(usage), t
            return False
        moved = zip(usage, self.mark, self._min_rise, strict=True)
        rises = any(x > old * (1 + RISE_RATIO) + by for x, old, by in moved)
        self.mark, self.mark_t = list(usage), t
        if rises:
            self.calm_age_s = age_s
            return False
        known = [(x, c) for x, c in zip(usage, cost, strict=True) if c == c]
        if not known:
            return age_s >= UNKNOWN_SHOWN_S
        return age_s >= ramp_s or all(x >= REACHED_RATIO * c for x, c in known)

    def _follow(self, usage: Sequence[float]) -> None:
        """The mean takes one reading more, resource by resource; a lasting change starts it anew."""
        mean, now, off, readings, woke = self.mean, self.now, self.off, self.readings, False
        for i, x in enumerate(usage):
            if x != x:
                continue
            old, readings[i] = mean[i], min(readings[i] + 1, MEMORY_READINGS)
            if old != old or readings[i] == 1:
                mean[i], now[i], readings[i] = x, x, 1
                self._watch_anew()
                continue
            deviation = x - old
            size = deviation if deviation > 0 else -deviation
            if size <= JUMP_RATIO * old + MIN_JUMP:
                off[i] = 0
                mean[i] = old + deviation / readings[i]
                now[i] = mean[i] if size <= SAME_RATIO * old + MIN_RISE else x
                continue
            now[i] = x
            off[i] = off[i] + 1 if deviation > 0 and off[i] >= 0 else off[i] - 1 if deviation < 0 and off[i] <= 0 else 0
            if deviation > old + MIN_JUMP:  # twice as much is believed at once: it woke
                self._start_mean(i, x, 0)
                woke = True
            elif abs(off[i]) >= JUMP_READINGS:
                self._start_mean(i, x, 2)
            else:
                mean[i] = old + deviation / readings[i]
        if woke:  # in the midst of this reading: the next one replaces it, in all that it uses
            self.readings, self.rise = [0] * len(mean), None

    def _start_mean(self, i: int, x: float, readings: int) -> None:
        self.mean[i], self.off[i], self.readings[i] = x, 0, readings
        self._watch_anew()

    def state(self) -> list[Any]:
        numbers = (self.since_t, self.t, self.mark_t, self.shown_t, self.calm_age_s)
        rows = (self.now, self.mean, self.mark, self.first)
        return [
            self.workload,
            [x if isfinite(x) else None for x in numbers],
            [[x if x == x else None for x in row] for row in rows],
            list(self.off),
            list(self.readings),
            self.shown,
            self.rise.state() if self.rise is not None else None,
        ]

    @classmethod
    def from_state(cls, state: Sequence[Any], m: int, min_rise: Sequence[float] | None = None) -> "PodReadings":
        workload, numbers, rows, off, readings, shown, *rise = (
            state  # older states have one count of readings, and no rise
        )
        pod = cls(str(workload), -inf, m, min_rise)
        pod.since_t, pod.t, pod.mark_t, pod.shown_t = (-inf if x is None else float(x) for x in numbers[:4])
        pod.calm_age_s = float(numbers[4])
        pod.now, pod.mean, pod.mark, pod.first = ([nan if x is None else float(x) for x in row] for row in rows)
        pod.off = [int(x) for x in off]
        pod.readings = [readings] * m if isinstance(readings, int) else [int(x) for x in readings]
        if any(len(row) != m for row in (pod.now, pod.mean, pod.mark, pod.first, pod.off, pod.readings)):
            raise ValueError(f"damaged model state: a Pod without {m} resources")
        pod.shown, pod.marked = bool(shown), any(x == x for x in pod.first)
        pod.rise = SlowRise.from_state(rise[0], m) if rise and rise[0] is not None else None
        return pod


def pods_from_state(state: Mapping[str, Any], m: int, min_rise: Sequence[float]) -> dict[str, PodReadings]:
    return {str(uid): PodReadings.from_state(saved, m, min_rise) for uid, saved in state.items()}
