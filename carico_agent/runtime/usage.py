"""What each Pod uses, read from its cgroup once a second.

Descriptors are kept and read with pread: opening anew would cost about twice as much (`tests/runtime/lab_latency.py`
prints both). A group that is gone answers ENODEV on a kept descriptor: that is the end of the Pod, not an error.

v2: cpu.stat, memory.current, cpu.pressure, memory.pressure. v1: cpuacct.usage, cpu.stat, memory.usage_in_bytes; in a
hybrid tree pressure comes from the Pod's directory under unified/, where the runtime made one.
"""

import errno
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from carico_agent.runtime.cgroups import Group, Locator
from carico_agent.runtime.pods import Pod

GONE = frozenset({errno.ENODEV, errno.ENOENT})
BUFFER_BYTES = 4096


@dataclass(slots=True)
class PodUsage:
    """Counters of one Pod since its start, as read; None where this kernel or driver offers nothing."""

    t: float
    """Monotonic time of the reading [s]."""
    cpu_usage_usec: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    throttled_usec: int | None = None
    memory_current: int | None = None
    cpu_pressure_usec: int | None = None
    """`some total` of cpu.pressure. Throttling by the Pod's own quota is part of it."""
    memory_pressure_usec: int | None = None


Values = dict[str, int]


def parse_cpu_stat(text: bytes) -> Values:
    """cpu.stat of v2 (usec) or v1 (throttled_time in ns).

    >>> parse_cpu_stat(b"nr_periods 3\\nnr_throttled 1\\nthrottled_time 5000\\n")
    {'nr_periods': 3, 'nr_throttled': 1, 'throttled_usec': 5}
    """
    words = text.split()
    row = dict(zip(words[::2], words[1::2], strict=False))
    values = {}
    if b"usage_usec" in row:
        values["cpu_usage_usec"] = int(row[b"usage_usec"])
    if b"nr_periods" in row:  # absent on v2 where the cpu controller is not enabled
        values["nr_periods"], values["nr_throttled"] = int(row[b"nr_periods"]), int(row[b"nr_throttled"])
        usec = row.get(b"throttled_usec")
        values["throttled_usec"] = int(usec) if usec is not None else int(row.get(b"throttled_time", 0)) // 1000
    return values


def parse_pressure(text: bytes) -> int:
    """The total of the `some` line [usec].

    >>> parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=42\\nfull avg10=0.00 total=7\\n")
    42
    """
    start = text.index(b"total=") + 6
    return int(text[start : text.index(b"\n", start)])


def _number(name: str, divisor: int = 1) -> Callable[[bytes], Values]:
    return lambda text: {name: int(text) // divisor}


def _pressure(name: str) -> Callable[[bytes], Values]:
    return lambda text: {name: parse_pressure(text)}


UNIFIED_FILES = {
    "cpu.stat": parse_cpu_stat,
    "memory.current": _number("memory_current"),
    "cpu.pressure": _pressure("cpu_pressure_usec"),
    "memory.pressure": _pressure("memory_pressure_usec"),
}
V1_FILES = {
    ("cpuacct", "cpuacct.usage"): _number("cpu_usage_usec", 1000),
    ("cpu", "cpu.stat"): parse_cpu_stat,
    ("memory", "memory.usage_in_bytes"): _number("memory_current"),
}


class GroupFiles:
    """The open files of one cgroup."""

    def __init__(self, group: Group) -> None:
        self._files: list[tuple[int, Callable[[bytes], Values]]] = []
        for (controller, name), parse in V1_FILES.items():
            if controller in group.controllers:
                self._open(group.controllers[controller], name, parse)
        if group.unified is not None:
            for name, parse in UNIFIED_FILES.items():
                # in a hybrid tree the v1 controllers have the numbers, the v2 tree only the pressure
                if not group.controllers or name.endswith(".pressure"):
                    self._open(group.unified, name, parse)

    def _open(self, directory: Path, name: str, parse: Callable[[bytes], Values]) -> None:
        try:
            descriptor = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # no such controller, or no PSI: that value stays None
            return
        self._files.append((descriptor, parse))

    def read(self) -> Values:
        values: Values = {}
        for descriptor, parse in self._files:
            try:
                values.update(parse(os.pread(descriptor, BUFFER_BYTES, 0)))
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # pressure of a group switched off with cgroup.pressure
                    raise
        return values

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files.clear()


class PodFiles:
    """The groups of one Pod, summed (one group, unless nothing stands around its containers)."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self._files = [GroupFiles(group) for group in groups]
        self._most: Values = {}

    def read(self, now_s: float) -> PodUsage | None:
        """None: every group is gone, and so is the Pod."""
        total: Values = {}
        for files in list(self._files):
            try:
                values = files.read()
            except OSError as error:
                if error.errno not in GONE:
                    raise
                files.close()
                self._files.remove(files)
                continue
            for name, value in values.items():
                total[name] = total.get(name, 0) + value
        return self._steady(now_s, total) if self._files else None

    def _steady(self, now_s: float, total: Values) -> PodUsage:
        """Counters may go back by rounding (or when one of several groups ends): hold them."""
        for name, value in total.items():
            if name != "memory_current":
                total[name] = self._most[name] = max(value, self._most.get(name, 0))
        return PodUsage(now_s, **total)

    def close(self) -> None:
        for files in self._files:
            files.close()


class UsageReader:
    """Reads every Pod; one thread at a time. Opens what is new, closes what has gone."""

    def __init__(self, locator: Locator) -> None:
        self.failed = 0
        """Reads that failed for another reason than the end of the group."""
        self._locator = locator
        self._open: dict[str, tuple[tuple[int, ...], PodFiles]] = {}
        _raise_descriptor_limit()

    def read(self, pods: Mapping[str, Pod], now_s: float) -> dict[str, PodUsage]:
        for key in self._open.keys() - pods.keys():
            self._open.pop(key)[1].close()
        usage = {}
        for key, pod in pods.items():
            try:
                files = self._files(key, pod)
                reading = files.read(now_s) if files else None
            except OSError:
                self.failed += 1
                continue
            if reading is not None:
                usage[key] = reading
        return usage

    def close(self) -> None:
        for _, files in self._open.values():
            files.close()
        self._open.clear()

    def _files(self, key: str, pod: Pod) -> PodFiles | None:
        if not pod.inode:
            return None
        identity = (pod.inode, *pod.pids)
        known = self._open.get(key)
        if known is not None and known[0] == identity:
            return known[1]
        groups = self._locator.find(pod) if pod.pids else tuple(filter(None, [self._locator.at(pod.cgroup)]))
        if known is not None and known[1].groups == groups:
            files = known[1]  # a container came or went inside the same Pod directory
        else:
            if known is not None:
                known[1].close()
            files = PodFiles(groups)
        self._open[key] = (identity, files)
        return files


def _raise_descriptor_limit() -> None:
    """110 Pods keep about 450 files open; the usual soft limit of 1024 leaves too little for the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 8192:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard) if hard != resource.RLIM_INFINITY else 8192, hard))
