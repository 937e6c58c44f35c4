"""What a Pod wants, from two readings of its counters. No I/O, no clock.

**CPU**, in cores: what the Pod would use on an empty machine. A thread that works s, waits W for a CPU and sleeps Z in
each round uses u = s/(s+W+Z) and waits w = W/(s+W+Z). Alone it would use s/(s+Z) = **u/(1 − w)**. That is exact for
busy loops (Z = 0) and for closed loops, and an upper bound for work that arrives by the clock: such a thread catches up
in the time it would have slept. A backlog looks like a busy loop, and only memory knows better (`core/pods.py`): so the
share of its demand that the Pod got, used/demand, goes with the number.

- A Pod that hardly waits (`cpu.pressure` some − time throttled, below `WAITS_RATIO`) wants what it uses.
- Of one that waits the threads are read (schedstat, `run_delay.py`): demand = Σ u/(1 − w) × used / Σ u of those read.
- Where its threads cannot be read: min(used + waited, used/(1 − waited)), with `waited` from the pressure. Pressure
  counts a Pod once however many of its threads wait.

Why not used + waited, as it was until 2026: it is right for busy loops only. Measured on 2 cores beside eight of them:
eight threads that work 30 ms and sleep 470 ms need .48 cores, used + waited says 3.06, this formula .49.

A Pod cannot use more than its quota, so demand ends there. Without that bound a container at 20 % of a core beside
three loops reads 0.63: its threads wait for a CPU at the beginning of a period and for the quota at the end, and the
kernel adds to `throttled_usec` only the second. Time throttled is part of a thread's wait, too; it is taken out of each
thread's in the proportion in which the pressure is time throttled.

**Memory**, in bytes: memory.current − inactive_file, which the kernel gives back first. **I/O**: the share of time in
which some of its threads wait for a disk, and bytes per second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

WAITS_RATIO = 0.05
"""Share of the time from which on a Pod waits noticeably. Below it what it uses is at most 5 % too little."""
SEEN_RATIO = 0.5
"""The threads that were read must have used this part of the Pod's CPU time to speak for the others."""


class ThreadTimes(NamedTuple):
    """What one thread did lately: since one of the last looks at it."""

    ran_s: float
    waited_s: float
    """For a CPU, or because a quota stopped it."""
    runs: int
    """How often it got a CPU."""
    elapsed_s: float
    ran_now: float
    """Share of the time in which it ran since the look before: how much of the Pod is seen."""

    def alone_s(self, contended_ratio: float = 1.0) -> float:
        """What it would have run on an empty machine; `contended_ratio`: part of its wait that was no quota's.

        The kernel adds a wait when it ends. So the rest that looks like sleep may be a wait that has not ended, which
        takes about as long as its others: without that term a busy loop beside eight reads 0.90.

        >>> round(ThreadTimes(0.45, 2.5, 150, 10.0, 0.045).alone_s(), 2)  # works 30 ms, sleeps 470 ms, in a crowd
        0.6
        >>> ThreadTimes(1.3, 8.6, 86, 10.0, 0.13).alone_s()  # a busy loop in the same
        10.0
        """
        waited_s = self.waited_s * contended_ratio
        slept_s = self.elapsed_s - self.ran_s - waited_s
        if contended_ratio == 1.0:
            slept_s -= waited_s / max(self.runs, 1)
        # u/(1 − w) = ran/(ran + slept), at most one core
        return self.ran_s * self.elapsed_s / (self.ran_s + max(slept_s, 0.0)) if self.ran_s > 0 else 0.0


@dataclass(slots=True)
class CounterReading:
    """One reading of one Pod; None: this kernel or driver does not count it, or it was not read."""

    t: float
    """Monotonic time of the reading [s]."""
    cpu_usec: int | None = None
    pressure_usec: int | None = None
    """`some total` of cpu.pressure, time throttled included."""
    throttled_usec: int | None = None
    threads: Sequence[ThreadTimes] | None = None
    """What those of its threads that were read did lately (threads come and go: no totals)."""
    quota_cores: float = inf
    memory_bytes: float = nan
    io_pressure_usec: int | None = None
    io_bytes: int | None = None

    def slept_since(self, before: "CounterReading") -> bool:
        """It neither ran nor waited, and its disks are not read."""
        return (
            self.cpu_usec == before.cpu_usec is not None
            and self.pressure_usec == before.pressure_usec
            and self.throttled_usec == before.throttled_usec
            and self.threads is None
            and self.io_pressure_usec is self.io_bytes is None
        )


@dataclass(slots=True)  # not frozen: that alone costs 5 µs per Pod
class Demand:
    """What a Pod wants between two readings; NaN where unknown."""

    cpu_cores: float = nan
    cpu_usage_cores: float = nan
    """What it got of it."""
    throttled_ratio: float = nan
    """Share of the time in which its quota stopped it; above 1 where it was stopped on several CPUs at once."""
    memory_bytes: float = nan
    io_ratio: float = nan
    io_bytes_per_s: float = nan
    waited_cores: float = nan
    """Time its threads waited for a CPU that others had, per time; 0 where it hardly did."""

    @property
    def got_ratio(self) -> float:
        """Part of its CPU demand that it got; 1 where nothing is known to be missing."""
        return self.cpu_usage_cores / self.cpu_cores if self.cpu_cores > 0 else 1.0


def demand(before: CounterReading, after: CounterReading) -> Demand:
    """What the Pod wanted between two readings.

    >>> first = CounterReading(0.0, cpu_usec=0, pressure_usec=0, throttled_usec=0)
    >>> demand(first, CounterReading(5.0, cpu_usec=2_000_000, pressure_usec=3_000_000, throttled_usec=0)).cpu_cores
    1.0
    >>> throttled = CounterReading(5.0, 1_000_000, pressure_usec=3_350_000, throttled_usec=1_950_000, quota_cores=0.2)
    >>> demand(first, throttled).cpu_cores
    0.2
    """
    elapsed_s = after.t - before.t
    if elapsed_s <= 0:
        return Demand(memory_bytes=after.memory_bytes)
    if after.slept_since(before):  # the same as below, in a third of the time
        throttled = 0.0 if after.throttled_usec is not None else nan
        return Demand(0.0, 0.0, throttled, after.memory_bytes, waited_cores=0.0)
    usage_s = _increase_s(before.cpu_usec, after.cpu_usec)
    throttled_s = _increase_s(before.throttled_usec, after.throttled_usec)
    alone_s, waited_s = _alone_s(before, after, usage_s, throttled_s)
    # at most the quota; what was used was wanted
    wanted_s = max(usage_s, min(alone_s, after.quota_cores * elapsed_s))
    return Demand(
        wanted_s / elapsed_s,
        usage_s / elapsed_s,
        throttled_s / elapsed_s,
        after.memory_bytes,
        min(_increase_s(before.io_pressure_usec, after.io_pressure_usec) / elapsed_s, 1.0),
        _increase_s(before.io_bytes, after.io_bytes) * 1e6 / elapsed_s,
        waited_s / elapsed_s,
    )


def _alone_s(before: CounterReading, after: CounterReading, usage_s: float, throttled_s: float) -> tuple[float, float]:
    """CPU time that it would have used alone, and time its threads waited for a CPU that others had."""
    elapsed_s = after.t - before.t
    pressure_s = _increase_s(before.pressure_usec, after.pressure_usec)
    throttled_s = throttled_s if throttled_s > 0 else 0.0
    pressed_s = min(max(pressure_s - throttled_s, 0.0), elapsed_s) if pressure_s >= 0 else nan
    if pressed_s < WAITS_RATIO * elapsed_s:
        return usage_s, 0.0
    contended_ratio = 1.0
    if throttled_s > 0:
        delayed_s = pressure_s if pressure_s > 0 else sum([one.waited_s for one in after.threads or ()])
        contended_ratio = max(delayed_s - throttled_s, 0.0) / delayed_s if delayed_s > 0 else 1.0
    if found := _by_threads(after.threads, usage_s, elapsed_s, contended_ratio):
        return found
    if pressed_s != pressed_s:
        return usage_s, 0.0
    left_s = elapsed_s - pressed_s
    by_round_s = usage_s * elapsed_s / left_s if left_s > 0 else inf
    return min(usage_s + pressed_s, by_round_s), pressed_s


def _by_threads(
    threads: Sequence[ThreadTimes] | None, usage_s: float, elapsed_s: float, contended_ratio: float
) -> tuple[float, float] | None:
    """The same from its threads; None: those that were read are too small a part of it."""
    if not threads:
        return None
    # as rates, since a look covers more time than a reading does: neighbours that came a moment ago change what the Pod
    # uses at once, and what its threads would use alone not at all
    seen, used = sum([one.ran_now for one in threads]), usage_s / elapsed_s
    if not seen > SEEN_RATIO * used:
        return None
    for_all = max(used / seen, 1.0) * elapsed_s
    alone = sum([one.alone_s(contended_ratio) / one.elapsed_s for one in threads])
    waited = sum([one.waited_s / one.elapsed_s for one in threads]) * contended_ratio
    return for_all * alone, for_all * waited


def _increase_s(before: int | None, after: int | None) -> float:
    """Of a counter in microseconds [s]; a counter that went back or is missing is unknown."""
    return (after - before) / 1e6 if before is not None and after is not None and after >= before else nan


def working_set(memory_bytes: int, inactive_file: int) -> float:
    """Bytes that cannot be taken back cheaply.

    >>> working_set(100, 30), working_set(100, 130)
    (70.0, 0.0)
    """
    return float(max(memory_bytes - inactive_file, 0))
