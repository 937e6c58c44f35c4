"""What follows from two readings (lib/trace/reading.py): Usage. Deltas are made here and nowhere else.

Every rate is divided by the measured time between the readings. A counter that went backwards, a field that is
missing at either end, or no time between them: unknown (NaN), never 0. What rounding puts outside [0, 1] is cut.

Why io is the *mean* of pressure and the busiest disk, as cpu is of pressure and utilisation: either alone calls a node
full that is not. A disk busy with write-back that no thread waits for has room; a container stopped by its own io.max,
or by a remote file system, lifts the pressure while the disks idle. Both at 1 is full. Where a node permanently has
only one of the two (`Reading.lacks`), that one is the channel.
"""

from dataclasses import dataclass, field
from math import nan

from carico_agent.lib.trace.reading import Reading
from carico_agent.node.sampling.contention import contention, contention_of_runnable


@dataclass(slots=True)
class Usage:
    """Usage between two readings: `values` in the order of the resources, in [0, 1]; NaN is unknown."""

    t: float
    values: tuple[float, ...]
    detail: dict[str, float] = field(default_factory=dict)
    """The parts the values are made of; `cpu_raw` is the paper's metric, without the correction of contention.py."""


def derive(previous: Reading, current: Reading, resources: tuple[str, ...]) -> Usage:
    """
    >>> a = Reading(0.0, 2, 100, 50, 0)
    >>> b = Reading(0.1, 2, 120, 60, 10_000)
    >>> u = derive(a, b, ("cpu", "memory"))
    >>> u.values, round(u.detail["cpu_pressure_raw"], 3)
    ((0.3, nan), 0.1)
    """
    detail: dict[str, float] = {}
    values = tuple([_CHANNELS[name](previous, current, detail) for name in resources])
    return Usage(current.t, values, detail)


def _cpu(a: Reading, b: Reading, detail: dict[str, float]) -> float:
    utilisation = 1.0 - _ratio(a.cpu_idle, b.cpu_idle, _delta(a.cpu_total, b.cpu_total))
    raw = corrected = nan
    if b.cores and "cpu.pressure" not in b.lacks:
        raw = _ratio(a.cpu_pressure_usec, b.cpu_pressure_usec, (b.t - a.t) * 1e6)
        corrected = contention(raw, utilisation, b.cores) if raw == raw else nan
    elif b.cores and b.runnable is not None:
        raw = corrected = contention_of_runnable(b.runnable, b.cores)
    value = (utilisation + corrected) / 2
    detail["cpu_utilisation"], detail["cpu_pressure_raw"] = utilisation, raw
    detail["cpu_pressure"], detail["cpu_raw"] = corrected, (utilisation + raw) / 2
    return value


def _memory(a: Reading, b: Reading, detail: dict[str, float]) -> float:
    value = nan
    if b.memory_total_kb and b.memory_available_kb is not None:
        free_kb = b.memory_available_kb + (b.memory_percpu_kb or 0)
        value = 1.0 - min(free_kb / b.memory_total_kb, 1.0)
    detail["memory"] = value
    return value


def _io(a: Reading, b: Reading, detail: dict[str, float]) -> float:
    pressure = _ratio(a.io_pressure_usec, b.io_pressure_usec, (b.t - a.t) * 1e6)
    before = a.disks or {}
    # A disk that was not there before has no delta yet; one that went backwards makes the channel unknown.
    busy = _largest(
        [_ratio(before[name], ms, (b.t - a.t) * 1e3) for name, ms in (b.disks or {}).items() if name in before]
    )
    detail["io_pressure"], detail["io_busy"] = pressure, busy
    if "io.pressure" in b.lacks:
        return busy
    return pressure if "io.disks" in b.lacks else (pressure + busy) / 2


def _network(a: Reading, b: Reading, detail: dict[str, float]) -> float:
    before, shares = a.links or {}, []
    for name, (rx_bytes, tx_bytes, speed_bits) in (b.links or {}).items():
        if name in before:
            could_bytes = (b.t - a.t) * speed_bits / 8
            shares += [_ratio(before[name][0], rx_bytes, could_bytes), _ratio(before[name][1], tx_bytes, could_bytes)]
    detail["network"] = _largest(shares)
    return detail["network"]


_CHANNELS = {"cpu": _cpu, "memory": _memory, "io": _io, "network": _network}


def _delta(before: int | None, after: int | None) -> float:
    return nan if before is None or after is None or after < before else after - before


def _ratio(before: int | None, after: int | None, whole: float) -> float:
    """(after − before) / whole in [0, 1], or NaN."""
    delta = _delta(before, after)
    if not (whole > 0 and delta >= 0):  # also when either is NaN
        return nan
    return 1.0 if delta >= whole else delta / whole


def _largest(shares: list[float]) -> float:
    return nan if not shares or any(share != share for share in shares) else max(shares)
