"""One reading of the kernel's counters at one instant: what a trace keeps."""

from collections.abc import Mapping
from dataclasses import dataclass

Link = tuple[int, int, int]
"""rx_bytes, tx_bytes, speed in bits per second."""


@dataclass(slots=True)  # not frozen: that alone costs 2 µs per tick
class Reading:
    """Raw counters at one instant; None is "unknown at this tick"."""

    t: float
    """Monotonic seconds."""
    cores: int | None = None
    cpu_total: int | None = None
    """Ticks of all CPUs since boot; `cpu_idle`: those in idle or iowait."""
    cpu_idle: int | None = None
    cpu_pressure_usec: int | None = None
    runnable: int | None = None
    """Runnable tasks; only read where there is no cpu pressure."""
    memory_total_kb: int | None = None
    memory_available_kb: int | None = None
    io_pressure_usec: int | None = None
    disks: Mapping[str, int] | None = None
    """Busy milliseconds since boot, by physical disk."""
    links: Mapping[str, Link] | None = None
    """By physical link of known speed."""
    lacks: tuple[str, ...] = ()
    """Signals that this node never has; the others, when None, only failed at this tick."""
    memory_percpu_kb: int | None = None
    """Free memory in the CPUs' own lists, which is not in `memory_available_kb`."""
