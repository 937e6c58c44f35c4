"""One running Pod: what it uses now, and whether it has shown yet what it costs.

A Pod that has just started says little about itself: its images load, its caches fill, its clients do not know it. It
has *shown itself* when its usage stops rising, and has reached what its workload costs or is older than its workload's
ramp. Until then it counts at what its workload costs, and teaches its workload nothing.

What a Pod wants of the CPU while it waits for one is known less well: at least what it got, at most what the reading
says. So each reading comes with the share of its demand that the Pod got. What was read while it hardly waited counts
for much, what was read while it waited for little. A reading is news only where it contradicts: where the Pod *got*
more than it was believed to want, or wants less. A busy neighbour changes neither.
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

MEMORY_READINGS = 12.0
"""Readings that a Pod's mean goes back: a minute at one reading in 5 s brings 5 % of noise down to 1 %."""

JUMP_RATIO, MIN_JUMP, JUMP_READINGS = 0.25, 0.003, 5
"""Five readings in a row beyond the mean by this much, in one direction: the Pod has changed, the mean starts anew.
With two in a row the mean followed the waves of Pods whose demand swings by a third: relative error .07, not .05,
on "bursty Pods" of lab/sim/nodes.py."""

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


SLEPT_RATIO, MIN_SLEPT = 1e-3, 5e-5
"""A Pod that slept on since it was read uses what it used then: a mean within this ratio, or this share of the node, of
that is it."""

GOT_POWER, MIN_CERTAINTY = 6, 1e-4
"""A reading of a Pod that got the share g of the CPU it wanted weighs g⁶: .53 at .9, .26 at .8, .02 at .5, .0001 at .2.
Measured on 2 CPUs: beside two busy loops one that works 10 ms in every 50 reads 1.25 times what it wants (g = .8),
beside eight 4.1 times (g = .19). With g⁴ half an hour of the latter moved what was known before by 14 %."""


def certainty(got_ratio: float) -> float:
    """Weight of a reading of the CPU.

    >>> certainty(1.0), round(certainty(0.5), 4), certainty(0.0)
    (1.0, 0.0156, 0.0001)
    """
    return max(got_ratio**GOT_POWER, MIN_CERTAINTY)


@dataclass(frozen=True, slots=True)
class PodSample:
    """What one Pod uses: `usage` in the node's unit and order of resources, NaN where unknown.

    `workload` names the template the Pod came from. A `per_node` Pod (DaemonSet, static Pod) is never the next Pod to
    arrive. `got_ratio` is the part of its CPU usage that it got: `usage` is what it would use alone, and below 1 it
    waited. A `service` answers requests, and cares how long it waits.
    """

    uid: str
    workload: str
    usage: tuple[float, ...]
    per_node: bool = False
    got_ratio: float = 1.0
    service: bool = False

    def check(self, m: int) -> None:
        """Raise ValueError if this is no reading of `m` resources."""
        if len(self.usage) != m:
            raise ValueError(f"Pod {self.uid}: {len(self.usage)} values of usage for {m} resources")
        for value in self.usage:
            if value == value and not (isfinite(value) and value >= -1e-6):
                raise ValueError(f"Pod {self.uid}: usage {value} is neither at least 0 nor NaN (unknown)")
        if not 0 <= self.got_ratio <= 1:
            raise ValueError(f"Pod {self.uid}: it got {self.got_ratio} of what it wanted, which is not in [0, 1]")


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
    what counts as a rise, per resource; `cpu` is which of the resources it may have to wait for."""

    def __init__(
        self, workload: str, since_t: float, m: int, min_rise: Sequence[float] | None = None, cpu: int | None = 0
    ) -> None:
        self.workload = workload
        self._cpu = cpu
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
        self.readings = [0.0] * m  # in the mean, each at its weight
        self.waited = 0.0  # part of the cpu in the mean that it did not get
        self.off = [0] * m  # readings in a row beyond the mean, signed
        self.mark = [nan] * m  # an earlier reading, to see whether it rises
        self.mark_t = -inf
        self.calm_age_s = 0.0  # its age when it was last seen to rise
        self.rise: SlowRise | None = None  # while it may still rise slowly
        self.remembered = False  # what it uses was read before a restart

    def read(
        self, t: float, usage: Sequence[float], ramp_s: float, cost: Sequence[float], got_ratio: float = 1.0
    ) -> bool:
        """Take a reading; `ramp_s` and `cost` (NaN: unknown) are its workload's.

        True when `calm_age_s` has news: it has just shown itself, or was seen to rise after that.
        """
        self.t = t
        self.remembered &= any(x != x and old == old for x, old in zip(usage, self.now, strict=True))
        known = [x if x == x else old for x, old in zip(usage, self.now, strict=True)]
        if self.shown:
            if self.shown_t == -inf:  # a new clock
                self._watch_anew()
            if got_ratio < 1 and self._cpu is not None:
                known[self._cpu] = _proven(known[self._cpu], got_ratio, self.mean[self._cpu])
            self._follow(usage, got_ratio)
            self._mark()
            return self.rise is not None and self._still_rises(self.rise, known)
        self.now = known
        if not self._has_shown(t, usage, ramp_s, cost, got_ratio):
            return False
        self.shown, self.readings, self.mean = True, [1.0] * len(known), list(usage)
        if self._cpu is not None:
            self.readings[self._cpu], self.waited = certainty(got_ratio), 1 - got_ratio
        self._watch_anew()
        if self.since_t > -inf:
            self.rise = SlowRise(len(known))
            self.rise.take(t, known, self._min_rise)
        return True

    def repeats(self, t: float, sample: PodSample) -> bool:
        """Take the reading that it has once more, if all that it says is that time has passed: the Pod slept on.

        Why: on a node of 110 Pods of which most sleep, taking it as any other reading was half of the model's work.
        """
        if not self.shown or self.rise is not None or self.remembered or self.shown_t == -inf or any(self.off):
            return False
        if sample.got_ratio < 1 or self.waited or not all(self.readings):
            return False
        usage = list(sample.usage)
        if usage != self.mean or usage != self.now:
            if all(abs(x - old) <= SLEPT_RATIO * x + MIN_SLEPT for x, old in zip(usage, self.mean, strict=True)):
                self.mean = usage
            return False
        self.t = t
        self.readings = [min(n + 1.0, MEMORY_READINGS) for n in self.readings]
        self._mark()
        return True

    def _mark(self) -> None:
        if not self.marked and self.t - self.shown_t >= MARK_S:
            self.first, self.shown_t, self.marked = list(self.mean), self.t, True

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

    def _has_shown(
        self, t: float, usage: Sequence[float], ramp_s: float, cost: Sequence[float], got_ratio: float
    ) -> bool:
        age_s = t - self.since_t
        if self.since_t == -inf:
            return any(x == x for x in usage)
        if self.mark_t == -inf or t - self.mark_t < RISE_S:
            if self.mark_t == -inf and any(x == x for x in usage):
                self.mark, self.mark_t = list(usage), t
            return False
        got = list(usage)
        if self._cpu is not None:
            got[self._cpu] *= got_ratio  # what it did not get may have been a backlog: no proof that it rises
        moved = zip(got, self.mark, self._min_rise, strict=True)
        rises = any(x > old * (1 + RISE_RATIO) + by for x, old, by in moved)
        self.mark, self.mark_t = list(usage), t
        if rises:
            self.calm_age_s = age_s
            return False
        known = [(x, c) for x, c in zip(usage, cost, strict=True) if c == c]
        if not known:
            return age_s >= UNKNOWN_SHOWN_S
        return age_s >= ramp_s or all(x >= REACHED_RATIO * c for x, c in known)

    def _follow(self, usage: Sequence[float], got_ratio: float) -> None:
        """The mean takes one reading more, resource by resource; a lasting change starts it anew."""
        mean, now, off, readings, woke = self.mean, self.now, self.off, self.readings, False
        for i, x in enumerate(usage):
            if x != x:
                continue
            got = got_ratio if i == self._cpu else 1.0
            old, weight = mean[i], certainty(got) if got < 1 else 1.0
            before, readings[i] = readings[i], min(readings[i] + weight, MEMORY_READINGS)
            if old != old or before == 0:
                mean[i], now[i] = x, x
                self._forget_readings(i, weight, got)
                self._watch_anew()
                continue
            believed = _proven(x, got, old) if got < 1 else x
            deviation = believed - old
            size = deviation if deviation > 0 else -deviation
            if size <= JUMP_RATIO * old + MIN_JUMP:
                off[i] = 0
                self._take(i, x, weight, got)
                now[i] = mean[i] if size <= SAME_RATIO * old + MIN_RISE else believed
                continue
            now[i] = x
            off[i] = off[i] + 1 if deviation > 0 and off[i] >= 0 else off[i] - 1 if deviation < 0 and off[i] <= 0 else 0
            if deviation > old + MIN_JUMP:  # twice as much is believed at once: it woke
                self._start_mean(i, x, 0.0, got)
                woke = True
            elif abs(off[i]) >= JUMP_READINGS:
                self._start_mean(i, x, 2 * weight, got)
            else:
                self._take(i, x, weight, got)
        if woke:  # in the midst of this reading: the next one replaces it, in all that it uses
            self.readings, self.rise = [0.0] * len(mean), None

    def _take(self, i: int, x: float, weight: float, got: float) -> None:
        self.mean[i] += (x - self.mean[i]) * weight / self.readings[i]
        if i == self._cpu:
            self.waited += (1 - got - self.waited) * weight / self.readings[i]

    def _forget_readings(self, i: int, readings: float, got: float) -> None:
        self.readings[i] = readings
        if i == self._cpu:
            self.waited = 1 - got

    def _start_mean(self, i: int, x: float, readings: float, got: float) -> None:
        self.mean[i], self.off[i] = x, 0
        self._forget_readings(i, readings, got)
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
            self.waited,
        ]

    @classmethod
    def from_state(
        cls, state: Sequence[Any], m: int, min_rise: Sequence[float] | None = None, cpu: int | None = 0
    ) -> "PodReadings":
        workload, numbers, rows, off, readings, shown, *newer = state
        rise, waited = (*newer, None, None)[:2]  # older states have one count of readings, no rise, and did not wait
        pod = cls(str(workload), -inf, m, min_rise, cpu)
        pod.since_t, pod.t, pod.mark_t, pod.shown_t = (-inf if x is None else float(x) for x in numbers[:4])
        pod.calm_age_s = float(numbers[4])
        pod.now, pod.mean, pod.mark, pod.first = ([nan if x is None else float(x) for x in row] for row in rows)
        pod.off = [int(x) for x in off]
        pod.readings = [float(readings)] * m if isinstance(readings, int) else [float(x) for x in readings]
        if any(len(row) != m for row in (pod.now, pod.mean, pod.mark, pod.first, pod.off, pod.readings)):
            raise ValueError(f"damaged model state: a Pod without {m} resources")
        pod.shown, pod.marked = bool(shown), any(x == x for x in pod.first)
        pod.rise = SlowRise.from_state(rise, m) if rise is not None else None
        pod.waited = 0.0 if waited is None else float(waited)
        if not all(map(isfinite, (*pod.readings, pod.waited))):
            raise ValueError("damaged model state: a Pod's readings")
        return pod


def _proven(x: float, got_ratio: float, believed: float) -> float:
    """What is believed of a Pod, within what a reading proves: it wants what it got at least, the reading at most."""
    return min(max(believed, x * got_ratio), x) if believed == believed else x


def pods_from_state(
    state: Mapping[str, Any], m: int, min_rise: Sequence[float], cpu: int | None
) -> dict[str, PodReadings]:
    return {str(uid): PodReadings.from_state(saved, m, min_rise, cpu) for uid, saved in state.items()}
