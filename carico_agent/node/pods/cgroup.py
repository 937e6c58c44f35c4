"""One cgroup, read: the only reader of cgroup counters, for v1, v2 and hybrid trees. One parser per file.

The caller chooses fields and cadence. What it names in the constructor is opened once and read with pread: finding and
opening a file anew costs five to ten times as much (`lab/bench/runtime.py`), and a kept descriptor is the strictest
identity there is, because a group that is gone answers ENODEV even when another one has its name by now. All other
files are opened for one read, and raise FileNotFoundError when the group is gone. A file that this tree does not have
(no such controller, no PSI) reads as nothing.

In a hybrid tree the v1 controllers have the numbers, and the group's directory under unified/ only the pressure.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

from carico_agent.node.pods.cgroups import Group
from carico_agent.node.pods.small_files import read_once
from carico_agent.plugin_api.formats import parse_flat, parse_stall_total

BUFFER_BYTES = 4096
STAT_BYTES = 8192
MAX_COUNTER = 1 << 64


@dataclass(frozen=True, slots=True, eq=False)
class CgroupFile:
    """Where one thing stands: its name in the v2 tree, and in which v1 hierarchy under which name."""

    v2: str
    controller: str = ""
    v1: str = ""
    is_pressure: bool = False
    """The v2 tree has it also where v1 controllers count."""
    max_bytes: int = BUFFER_BYTES


CPU_USAGE = CgroupFile("cpu.stat", "cpuacct", "cpuacct.usage")
CPU_STAT = CgroupFile("cpu.stat", "cpu", "cpu.stat")
CPU_MAX = CgroupFile("cpu.max")
CPU_QUOTA, CPU_PERIOD = CgroupFile("", "cpu", "cpu.cfs_quota_us"), CgroupFile("", "cpu", "cpu.cfs_period_us")
CPU_PRESSURE = CgroupFile("cpu.pressure", is_pressure=True)
MEMORY_CURRENT = CgroupFile("memory.current", "memory", "memory.usage_in_bytes")
MEMORY_STAT = CgroupFile("memory.stat", "memory", "memory.stat", max_bytes=STAT_BYTES)
MEMORY_MAX = CgroupFile("memory.max", "memory", "memory.limit_in_bytes")
MEMORY_EVENTS = CgroupFile("memory.events", "memory", "memory.oom_control")
MEMORY_PRESSURE = CgroupFile("memory.pressure", is_pressure=True)
IO_STAT = CgroupFile("io.stat")
IO_PRESSURE = CgroupFile("io.pressure", is_pressure=True)


class CpuStat(NamedTuple):
    """cpu.stat; None where this kernel or tree has no such line."""

    usage_usec: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    throttled_usec: int | None = None


def parse_cpu_stat(text: bytes) -> CpuStat:
    """cpu.stat of v2 (usec) or v1 (throttled_time in ns, and no usage).

    >>> parse_cpu_stat(b"nr_periods 3\\nnr_throttled 1\\nthrottled_time 5000\\n")
    CpuStat(usage_usec=None, nr_periods=3, nr_throttled=1, throttled_usec=5)
    """
    usage_usec = _counter(text[11 : text.index(b"\n")]) if text.startswith(b"usage_usec ") else None
    start = text.find(b"nr_periods ")
    if start < 0:  # absent on v2 where the cpu controller is not enabled
        return CpuStat(usage_usec)
    _, periods, _, throttled, name, value, *_ = text[start:].split(None, 6)
    throttled_usec = int(value) if name == b"throttled_usec" else int(value) // 1000
    return CpuStat(usage_usec, int(periods), int(throttled), throttled_usec)


def parse_cpuacct_usage(text: bytes) -> int:
    """cpuacct.usage of v1 (ns), in microseconds.

    >>> parse_cpuacct_usage(b"2500000000\\n")
    2500000
    """
    return _counter(text) // 1000


def _counter(text: bytes) -> int:
    """The kernel counts in 64 bits; what is longer is no counter (and no float)."""
    value = int(text)
    if not 0 <= value < MAX_COUNTER:
        raise ValueError(f"not a counter: {text[:80]!r}")
    return value


def parse_inactive_file(data: bytes) -> int:
    """memory.stat: page cache not used lately [bytes]. v1 has a line for the group alone, too, which is not wanted.

    >>> parse_inactive_file(b"anon 1\\ninactive_file 7\\n")
    7
    >>> parse_inactive_file(b"cache 5\\ninactive_file 1\\ntotal_inactive_file 9\\n")
    9
    """
    for name in (b"\ntotal_inactive_file ", b"\ninactive_file "):
        start = data.find(name)
        if start >= 0:
            return int(data[start + len(name) : data.index(b"\n", start + 1)])
    raise ValueError("memory.stat has no line inactive_file")


def parse_quota(data: bytes) -> float:
    """cpu.max of v2, or v1's quota and period in one line [cores]; infinite without a quota.

    >>> parse_quota(b"20000 100000\\n"), parse_quota(b"max 100000\\n"), parse_quota(b"-1 100000")
    (0.2, inf, inf)
    """
    quota, period = data.split()
    if quota in (b"max", b"-1"):
        return inf
    quota_usec, period_usec = int(quota), int(period)
    # the kernel's period is 1 ms to 1 s; anything else is no quota but a damaged text
    if not (0 < quota_usec < 1 << 50 and 0 < period_usec < 1 << 50):
        raise ValueError(f"quota {quota_usec} of {period_usec}")
    return quota_usec / period_usec


def parse_memory_limit(text: bytes) -> float:
    """memory.max or v1's limit [bytes]: "max", and v1's largest number of whole pages, are no limit.

    >>> parse_memory_limit(b"1048576\\n"), parse_memory_limit(b"max\\n"), parse_memory_limit(b"9223372036854771712")
    (1048576.0, inf, inf)
    """
    text = text.strip()
    return float(limit) if text.isdigit() and len(text) < 20 and (limit := int(text)) < 1 << 62 else inf


def parse_io_bytes(data: bytes) -> int:
    """io.stat: bytes read and written on all disks.

    >>> parse_io_bytes(b"8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\\n")
    15
    """
    pairs = (field.partition(b"=") for field in data.split())
    return sum(int(value) for name, _, value in pairs if name in (b"rbytes", b"wbytes"))


class Cgroup:
    """One cgroup. `kept`: files whose descriptors stay open until `close`."""

    def __init__(self, group: Group, *kept: CgroupFile) -> None:
        self.v2 = not group.controllers
        self._group = group
        self._kept: dict[CgroupFile, int] = {}  # -1: this tree has no such file
        opened: dict[str, int] = {}
        try:
            for file in kept:
                path = self.path(file)
                if path not in opened:
                    opened[path] = _open(path)
                self._kept[file] = opened[path]
        except OSError:  # no descriptors left: not one is kept
            self.close()
            raise

    def path(self, file: CgroupFile) -> str:
        """Where the file is; empty: this tree has none."""
        group = self._group
        if self.v2 or file.is_pressure:
            return f"{group.unified}/{file.v2}" if group.unified and file.v2 else ""
        folder = group.controllers.get(file.controller, "")
        return f"{folder}/{file.v1}" if folder else ""

    def read(self, file: CgroupFile) -> bytes:
        """Its text; empty where this tree has none. OSError: the group is gone (ENODEV, or ENOENT if not kept)."""
        try:
            descriptor = self._kept.get(file)
            if descriptor is None:
                path = self.path(file)
                return read_once(path, file.max_bytes) if path else b""
            return os.pread(descriptor, file.max_bytes, 0) if descriptor >= 0 else b""
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # pressure of a group switched off with cgroup.pressure
                raise
            return b""

    def read_or_nothing(self, file: CgroupFile) -> bytes:
        """The same, also empty where the controller is not on in this group."""
        try:
            return self.read(file)
        except FileNotFoundError:
            return b""

    # ---- fields

    def parse_cpu_usec(self, text: bytes) -> int | None:
        """Of a text of CPU_USAGE."""
        if not text:
            return None
        return parse_cpu_stat(text).usage_usec if self.v2 else parse_cpuacct_usage(text)

    def cpu_usec(self) -> int | None:
        """CPU time since the group was made."""
        return self.parse_cpu_usec(self.read(CPU_USAGE))

    def cpu_stat(self) -> CpuStat:
        """With the usage in it also where that is another file."""
        stat = parse_cpu_stat(self.read(CPU_STAT))
        return stat if self.v2 else stat._replace(usage_usec=self.cpu_usec())

    def throttled_usec(self) -> int | None:
        """Of this group alone: the kernel does not add it up along the tree."""
        return parse_cpu_stat(self.read(CPU_STAT)).throttled_usec

    def quota_cores(self) -> float:
        """Infinite without a quota, or where it cannot be read."""
        try:
            if self.v2:
                return parse_quota(self.read(CPU_MAX))
            return parse_quota(self.read(CPU_QUOTA).strip() + b" " + self.read(CPU_PERIOD))
        except (OSError, ValueError):
            return inf

    def memory_current(self) -> int | None:
        data = self.read(MEMORY_CURRENT)
        return int(data) if data else None

    def memory_limit_bytes(self) -> float:
        """Infinite without one."""
        return parse_memory_limit(self.read_or_nothing(MEMORY_MAX))

    def oom_kills(self) -> int:
        """0 where the kernel does not count them."""
        return parse_flat(self.read_or_nothing(MEMORY_EVENTS).decode(errors="replace")).get("oom_kill", 0)

    def stall_usec(self, file: CgroupFile) -> int | None:
        """The total of `some` of a pressure file."""
        data = self.read(file)
        return parse_stall_total(data) if data else None

    # ---- descriptors

    @property
    def descriptors(self) -> list[int]:
        """Of all kept files, in the order in which they were named."""
        return [descriptor for descriptor in dict.fromkeys(self._kept.values()) if descriptor >= 0]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._kept = dict.fromkeys(self._kept, -1)


def in_folder(folder: str, v2: bool) -> Group:
    """The group of a directory of the hierarchy that counts CPU time."""
    return Group(folder, 0, folder) if v2 else Group(folder, 0, "", {"cpu": folder})


def cpu_seconds(groups: Iterable[Group]) -> float:
    """CPU time of all `groups`; NaN when one of them cannot be read, or there are none.

    Why not the counters of all Pods (usage.py): a job's report asks about one Pod, and two small files cost 15 µs.
    """
    used_s, found = 0.0, False
    for group in groups:
        found = True
        try:
            usec = Cgroup(group).cpu_usec()
        except (OSError, ValueError):
            return nan
        if usec is None:
            return nan
        used_s += usec / 1e6
    return used_s if found else nan


def _open(path: str) -> int:
    """A descriptor; -1 where this tree has no such file."""
    if not path:
        return -1
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return -1
