"""What a Pod wants, from two readings of its counters. No I/O, no clock.

**CPU**, in cores: demand = (Δusage + waiting) / elapsed, however crowded the node is. Waiting is what the kernel has:

- `cpu.pressure` some − time throttled. It counts a Pod once however many of its threads wait, and too little when a
  thread changes the CPU between two looks of the kernel: a lower bound. Measured (2 cores, 40 s): a busy loop beside
  three others read 0.98, four busy threads beside a loop 1.40 instead of 4.
- the run delay of its threads (schedstat), where somebody looked: exact for any number of threads (1.00 and 3.99 in the
  same run), but read thread by thread (`run_delay.py`), so only while a Pod waits.

A Pod cannot use more than its quota, so demand ends there. Without that bound a container at 20 % of a core beside
three loops reads 0.63: its threads wait for a CPU at the beginning of a period and for the quota at the end, and the
kernel adds to `throttled_usec` only the second.

**Memory**, in bytes: memory.current − inactive_file, which the kernel gives back first. **I/O**: the share of time in
which some of its threads wait for a disk, and bytes per second.
"""

from dataclasses import dataclass
from math import inf, nan


@dataclass(slots=True)
class CounterReading:
    """One reading of one Pod; None: this kernel or driver does not count it, or nobody looked."""

    t: float
    """Monotonic time of the reading [s]."""
    cpu_usec: int | None = None
    pressure_usec: int | None = None
    """`some total` of cpu.pressure, time throttled included."""
    throttled_usec: int | None = None
    delay_usec: int | None = None
    """What its threads waited for a CPU since the reading before (an increase, no total: threads come and go)."""
    quota_cores: float = inf
    memory_bytes: float = nan
    io_pressure_usec: int | None = None
    io_bytes: int | None = None

    def slept_since(self, before: "CounterReading") -> bool:
        """It neither ran nor waited, and nobody looks at its disks."""
        return (
            self.cpu_usec == before.cpu_usec is not None
            and self.pressure_usec == before.pressure_usec
            and self.throttled_usec == before.throttled_usec
            and self.delay_usec is self.io_pressure_usec is self.io_bytes is None
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
        return Demand(0.0, 0.0, 0.0 if after.throttled_usec is not None else nan, after.memory_bytes)
    usage_s = _increase_s(before.cpu_usec, after.cpu_usec)
    throttled_s = _increase_s(before.throttled_usec, after.throttled_usec)
    waiting_s = _waiting_s(before, after, elapsed_s, throttled_s)
    # demand = (usage + waiting) / elapsed, at most the quota; what was used was wanted
    wanted_s = max(usage_s, min(usage_s + waiting_s, after.quota_cores * elapsed_s))
    return Demand(
        wanted_s / elapsed_s,
        usage_s / elapsed_s,
        throttled_s / elapsed_s,
        after.memory_bytes,
        min(_increase_s(before.io_pressure_usec, after.io_pressure_usec) / elapsed_s, 1.0),
        _increase_s(before.io_bytes, after.io_bytes) * 1e6 / elapsed_s,
    )


def _waiting_s(before: CounterReading, after: CounterReading, elapsed_s: float, throttled_s: float) -> float:
    """Time its threads waited for a CPU that others had; 0 where the kernel does not count it."""
    pressure_s = _increase_s(before.pressure_usec, after.pressure_usec)
    throttled_s = throttled_s if throttled_s > 0 else 0.0
    waiting_s = min(max(pressure_s - throttled_s, 0.0), elapsed_s) if pressure_s >= 0 else 0.0
    if after.delay_usec is not None and throttled_s == 0:  # being throttled is part of the run delay, too
        waiting_s = max(waiting_s, after.delay_usec / 1e6)
    return waiting_s


def _increase_s(before: int | None, after: int | None) -> float:
    """Of a counter in microseconds [s]; a counter that went back or is missing is unknown."""
    return (after - before) / 1e6 if before is not None and after is not None and after >= before else nan


def working_set(memory_bytes: int, inactive_file: int) -> float:
    """Bytes that cannot be taken back cheaply.

    >>> working_set(100, 30), working_set(100, 130)
    (70.0, 0.0)
    """
    return float(max(memory_bytes - inactive_file, 0))
