"""What each Pod uses, read from its cgroup when somebody looks, at most once a second.

Descriptors of the files, not of the directory, are kept and read with pread; finding and opening them anew costs
five to ten times as much (`lab/bench/runtime.py`). A kept descriptor is the strictest identity there is: a
group that is gone answers ENODEV, even when another one has its name by now. That is the end of the Pod, not an error.

Why not all the time: on a hybrid tree (five files) a Pod costs 15 to 20 µs in a loop, but 40 µs when it is read once
a second and everything is cold again; 110 Pods take 0.4 % of a core, as much as the rest of the agent. These are
counters: whoever looks twice has the exact rate in between, and nobody pays for numbers that nobody reads.

v2: cpu.stat, memory.current, cpu.pressure, memory.pressure. v1: cpuacct.usage, cpu.stat, memory.usage_in_bytes; in a
hybrid tree pressure comes from the Pod's directory under unified/, where the runtime made one.
"""

import errno
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from carico_agent.node.pods.cgroups import Group, Locator
from carico_agent.node.pods.pods import Pod
from carico_agent.plugin_api.formats import parse_stall_total

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


COUNTERS = tuple(field.name for field in fields(PodUsage) if field.name not in ("t", "memory_current"))
Parse = Callable[[bytes, PodUsage], None]


def parse_cpu_stat(text: bytes, usage: PodUsage) -> None:
    """cpu.stat of v2 (usec) or v1 (throttled_time in ns).

    >>> usage = PodUsage(0.0)
    >>> parse_cpu_stat(b"nr_periods 3\\nnr_throttled 1\\nthrottled_time 5000\\n", usage)
    >>> usage.nr_periods, usage.nr_throttled, usage.throttled_usec
    (3, 1, 5)
    """
    if text.startswith(b"usage_usec "):
        usage.cpu_usage_usec = int(text[11 : text.index(b"\n")])
    start = text.find(b"nr_periods ")
    if start >= 0:  # absent on v2 where the cpu controller is not enabled
        _, periods, _, throttled, name, value, *_ = text[start:].split(None, 6)
        usage.nr_periods, usage.nr_throttled = int(periods), int(throttled)
        usage.throttled_usec = int(value) if name == b"throttled_usec" else int(value) // 1000


def _cpuacct_usage(text: bytes, usage: PodUsage) -> None:
    usage.cpu_usage_usec = int(text) // 1000


def _memory_current(text: bytes, usage: PodUsage) -> None:
    usage.memory_current = int(text)


def _cpu_pressure(text: bytes, usage: PodUsage) -> None:
    usage.cpu_pressure_usec = parse_stall_total(text)


def _memory_pressure(text: bytes, usage: PodUsage) -> None:
    usage.memory_pressure_usec = parse_stall_total(text)


UNIFIED_FILES: dict[str, Parse] = {
    "cpu.stat": parse_cpu_stat,
    "memory.current": _memory_current,
    "cpu.pressure": _cpu_pressure,
    "memory.pressure": _memory_pressure,
}
V1_FILES: dict[tuple[str, str], Parse] = {
    ("cpuacct", "cpuacct.usage"): _cpuacct_usage,
    ("cpu", "cpu.stat"): parse_cpu_stat,
    ("memory", "memory.usage_in_bytes"): _memory_current,
}


class GroupFiles:
    """The open files of one cgroup."""

    def __init__(self, group: Group) -> None:
        self._files: list[tuple[int, Parse]] = []
        for (controller, name), parse in V1_FILES.items():
            if controller in group.controllers:
                self._open(group.controllers[controller], name, parse)
        if group.unified:
            for name, parse in UNIFIED_FILES.items():
                # in a hybrid tree the v1 controllers have the numbers, the v2 tree only the pressure
                if not group.controllers or name.endswith(".pressure"):
                    self._open(group.unified, name, parse)

    def _open(self, directory: str, name: str, parse: Parse) -> None:
        try:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # no such controller, or no PSI: that value stays None
            return
        self._files.append((descriptor, parse))

    def read(self, usage: PodUsage) -> None:
        for descriptor, parse in self._files:
            try:
                text = os.pread(descriptor, BUFFER_BYTES, 0)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # pressure of a group switched off with cgroup.pressure
                    raise
            else:
                parse(text, usage)

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files.clear()


class PodFiles:
    """The groups of one Pod, summed (one group, unless nothing stands around its containers)."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self._files = [GroupFiles(group) for group in groups]
        self._last: PodUsage | None = None

    def read(self, now_s: float) -> PodUsage | None:
        """None: every group is gone, and so is the Pod."""
        total: PodUsage | None = None
        for files in tuple(self._files):
            usage = PodUsage(now_s)
            try:
                files.read(usage)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                files.close()
                self._files.remove(files)
                continue
            total = usage if total is None else _sum(total, usage)
        if total is not None and self._last is not None:
            _hold(total, self._last, COUNTERS if len(self.groups) > 1 else ("cpu_usage_usec",))
        self._last = total
        return total

    def close(self) -> None:
        for files in self._files:
            files.close()


def _sum(one: PodUsage, other: PodUsage) -> PodUsage:
    for name in (*COUNTERS, "memory_current"):
        value = getattr(other, name)
        if value is not None:
            setattr(one, name, (getattr(one, name) or 0) + value)
    return one


def _hold(usage: PodUsage, last: PodUsage, names: tuple[str, ...]) -> None:
    """Counters may go back: the CPU time by rounding, all of them when one of several groups has ended."""
    for name in names:
        value, before = getattr(usage, name), getattr(last, name)
        if value is not None and before is not None and value < before:
            setattr(usage, name, before)


class UsageReader:
    """Reads all Pods; one thread at a time. Opens what is new, closes what has gone."""

    def __init__(self, locator: Locator) -> None:
        self.failed = 0
        """Reads that failed for another reason than the end of the group."""
        self._locator = locator
        self._open: dict[str, tuple[Pod, PodFiles]] = {}
        raise_descriptor_limit()

    def read(self, pods: Mapping[str, Pod], now_s: float) -> dict[str, PodUsage]:
        """The counters of every Pod that has a cgroup, at `now_s`."""
        self.keep(pods)
        found = {}
        for key, pod in pods.items():
            try:
                files = self._files(key, pod)
                reading = files.read(now_s) if files else None
            except (OSError, ValueError):
                self.failed += 1
                continue
            if reading is not None:
                found[key] = reading
        return found

    def keep(self, pods: Mapping[str, Pod]) -> None:
        """Close the files of all others."""
        for key in self._open.keys() - pods.keys():
            self._open.pop(key)[1].close()

    def close(self) -> None:
        self.keep({})

    def _files(self, key: str, pod: Pod) -> PodFiles | None:
        known = self._open.get(key)
        if known is not None and known[0] is pod:  # a Pod is never changed, only replaced
            return known[1]
        if not pod.inode:
            return None
        groups = self._locator.find(pod) if pod.pids else tuple(filter(None, [self._locator.at(pod.cgroup)]))
        if known is not None and known[1].groups == groups:
            files = known[1]  # same inodes: something else about the Pod has changed
        else:
            if known is not None:
                known[1].close()
            files = PodFiles(groups)
        self._open[key] = (pod, files)
        return files


def raise_descriptor_limit() -> None:
    """110 Pods keep about 450 files open; the usual soft limit of 1024 leaves too little for the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 8192:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard) if hard != resource.RLIM_INFINITY else 8192, hard))
