"""The open files of one Pod's cgroup, read in the order in which they become interesting.

A reading that finds the CPU time where it was ends there: who does not run neither waits nor allocates (the kernel may
take memory back, so that is looked at in every fourth reading all the same, and page cache when it did). Pressure is
read when the Pod ran, time throttled and quota when it waited, and its threads while it waits noticeably. So
a sleeping Pod costs one read, one on a node with idle CPUs three, and the dear ones are paid on crowded nodes only. The
quota matters also where it does not throttle: a container at 20 % of a core that gets 9 % on a crowded node wants 20 %,
though its thread waits all the time.

Measured on 110 groups (hybrid tree, one Pod every 20 ms, one read of one file): cpu.stat, cpu.pressure and
memory.usage_in_bytes 5 to 10 µs each, the first file after the pause 29 µs, memory.stat 23 µs: it is read in every
fourth reading only, page cache ages slowly.

Time throttled is kept per cgroup, not added up along the tree, and a container's limit is on the container's own
group: so it is summed over the Pod's group and those right below.
"""

import errno
import os
from functools import partial
from math import inf, nan

from carico_agent.node.pods.cgroups import Group
from carico_agent.node.pods.demand import WAITS_RATIO, CounterReading, working_set
from carico_agent.node.pods.run_delay import MAX_GROUPS, RunDelay, groups, threads
from carico_agent.node.pods.small_files import read_once
from carico_agent.node.pods.usage import PodUsage, parse_cpu_stat
from carico_agent.plugin_api.formats import parse_stall_total

BUFFER_BYTES = 4096
STAT_BYTES = 8192
WAITS = 0.02
"""Share of the time from which on it matters whether a quota is the reason."""
CALM = 3
"""Readings without much waiting after which its threads are left alone again."""
LIST_AGAIN_S = 60.0
"""Containers that are restarted get another group, and quotas may be changed."""
STAT_EVERY = 4


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
    """cpu.max of v2 [cores]; infinite without a quota.

    >>> parse_quota(b"20000 100000\\n"), parse_quota(b"max 100000\\n")
    (0.2, inf)
    """
    quota, period = data.split()
    return inf if quota == b"max" else _cores(int(quota), int(period))


def _cores(quota_usec: int, period_usec: int) -> float:
    """The kernel's period is 1 ms to 1 s; anything else is no quota but a damaged text."""
    if not (0 < quota_usec < 1 << 50 and 0 < period_usec < 1 << 50):
        raise ValueError(f"quota {quota_usec} of {period_usec}")
    return quota_usec / period_usec


def parse_io_bytes(data: bytes) -> int:
    """io.stat: bytes read and written on all disks.

    >>> parse_io_bytes(b"8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\\n")
    15
    """
    pairs = (field.partition(b"=") for field in data.split())
    return sum(int(value) for name, _, value in pairs if name in (b"rbytes", b"wbytes"))


def read_quota(folder: str, v2: bool) -> float:
    """Of one group [cores]; infinite without a quota, or where it cannot be read."""
    try:
        if v2:
            return parse_quota(read_once(f"{folder}/cpu.max"))
        quota, period = int(read_once(f"{folder}/cpu.cfs_quota_us")), int(read_once(f"{folder}/cpu.cfs_period_us"))
        return inf if quota < 0 else _cores(quota, period)
    except (OSError, ValueError):
        return inf


def read_throttled_usec(folder: str) -> int | None:
    """Time throttled of one group; None where it cannot be read."""
    stat = PodUsage(0.0)
    try:
        parse_cpu_stat(read_once(f"{folder}/cpu.stat"), stat)
    except (OSError, ValueError):
        return None
    return stat.throttled_usec


class CounterFiles:
    """One cgroup. `proc`: where /proc is; `io`: also read what it does with disks."""

    def __init__(self, group: Group, proc: str = "/proc", io: bool = False) -> None:
        self._stat = self._usage = self._pressure = self._memory = self._memory_stat = -1
        self._io, self._containers = (-1, -1), list[int]()
        self._v2 = not group.controllers
        cpu = group.unified if self._v2 else group.controllers.get("cpu", "")
        try:
            self._open(group, cpu, io)
        except OSError:  # no descriptors left: not one is kept
            self.close_files()
            raise
        self._reads_io = io
        self._cpu_folder = cpu
        self._listed_s = -inf
        self._quota_cores = inf
        self._delay = RunDelay(partial(threads, group.unified or cpu), proc)
        self._looks, self._calm = False, 0
        self._inactive = 0
        self._reads = 0
        self._offset = group.inode % STAT_EVERY  # not all Pods in the same round
        self._usage_text = self._memory_text = b""
        self._slept = False
        self._last: CounterReading | None = None

    def _open(self, group: Group, cpu: str, io: bool) -> None:
        v1, unified = group.controllers, group.unified
        memory = unified if self._v2 else v1.get("memory", "")
        self._stat = _open(cpu, "cpu.stat")
        self._usage = self._stat if self._v2 else _open(v1.get("cpuacct", ""), "cpuacct.usage")
        self._pressure = _open(unified, "cpu.pressure")
        self._memory = _open(memory, "memory.current" if self._v2 else "memory.usage_in_bytes")
        self._memory_stat = _open(memory, "memory.stat")
        if io:
            self._io = (_open(unified, "io.pressure"), -1)
            self._io = (self._io[0], _open(unified if self._v2 else "", "io.stat"))

    def sleeps_on(self) -> bool:
        """Whether it slept when it was read last, has not run since, and has the memory that it had."""
        if not self._slept or self._reads_io or _read(self._usage) != self._usage_text:
            return False
        if self._reads % STAT_EVERY == 0 and _read(self._memory) != self._memory_text:
            return False
        self._reads += 1
        return True

    def read(self, now_s: float) -> CounterReading:
        """All that is worth reading now. OSError with ENODEV: the group is gone."""
        last, data = self._last, _read(self._usage)
        self._slept = last is not None and data == self._usage_text != b""
        if last is not None and self._slept:
            now = self._did_not_run(now_s, last)
        else:
            now = self._ran(now_s, data, last)
            self._usage_text = data
        if self._reads_io:
            self._read_io(now)
        self._reads = self._offset + 1 if last is None else self._reads + 1
        self._last = now
        return now

    def _ran(self, now_s: float, data: bytes, last: CounterReading | None) -> CounterReading:
        now = CounterReading(now_s)
        self._parse_usage(data, now, last)
        if last is not None and now.cpu_usec == last.cpu_usec is not None:  # another text of the same time
            return self._did_not_run(now_s, last)
        self._read_waiting(now, last)
        now.memory_bytes = self._read_memory()
        return now

    def _did_not_run(self, now_s: float, last: CounterReading) -> CounterReading:
        memory_bytes = last.memory_bytes if self._reads % STAT_EVERY else self._read_memory(slept=True)
        if self._looks:
            self._calm += 1
            if self._calm >= CALM:
                self._stop_looking()
        return CounterReading(
            now_s, last.cpu_usec, last.pressure_usec, last.throttled_usec, None, last.quota_cores, memory_bytes
        )

    @property
    def descriptors(self) -> list[int]:
        """Of all open files; CPU time, memory and pressure first."""
        files = [self._usage, self._memory, self._pressure, self._stat, self._memory_stat, *self._io, *self._containers]
        return [descriptor for descriptor in dict.fromkeys(files) if descriptor >= 0]

    def close(self) -> None:
        self.close_files()
        self._delay.close()

    def close_files(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._stat = self._usage = self._pressure = self._memory = self._memory_stat = -1
        self._io, self._containers = (-1, -1), []

    def _parse_usage(self, data: bytes, now: CounterReading, last: CounterReading | None) -> None:
        if data and self._v2:
            stat = PodUsage(now.t)
            parse_cpu_stat(data, stat)
            now.cpu_usec = stat.cpu_usage_usec
        elif data:
            now.cpu_usec = int(data) // 1000
        if last and last.cpu_usec and now.cpu_usec is not None and last.cpu_usec - 1000 < now.cpu_usec < last.cpu_usec:
            now.cpu_usec = last.cpu_usec  # back by rounding: the kernel splits one sum into user and system time

    def _read_waiting(self, now: CounterReading, last: CounterReading | None) -> None:
        data = _read(self._pressure)
        now.pressure_usec = parse_stall_total(data) if data else None
        elapsed_usec = (now.t - last.t) * 1e6 if last else 0.0
        before = last.pressure_usec if last else None
        waited_usec = (now.pressure_usec or 0) - (before or 0)
        if last is not None and before is not None and waited_usec < WAITS * elapsed_usec:
            now.throttled_usec, now.quota_cores = last.throttled_usec, last.quota_cores
        else:
            self._read_throttling(now, last)
        # a Pod that is new: if it waits, its first number should not be a lower bound only
        self._look_at_threads(now, last is None or waited_usec >= WAITS_RATIO * elapsed_usec)

    def _look_at_threads(self, now: CounterReading, waits: bool) -> None:
        """The first look begins an interval, the next one ends it."""
        self._calm = 0 if waits else self._calm + 1
        if self._calm >= CALM:
            self._stop_looking()
            return
        found = self._delay.look(now.t)
        now.threads = found if self._looks else None
        self._looks = True

    def _stop_looking(self) -> None:
        if self._looks:
            self._delay.close()
            self._looks = False

    def _read_throttling(self, now: CounterReading, last: CounterReading | None) -> None:
        if now.t - self._listed_s > LIST_AGAIN_S:
            self._list_containers(now.t)
        total: int | None = None
        for descriptor in (self._stat, *self._containers):
            stat = PodUsage(now.t)
            try:
                parse_cpu_stat(_read(descriptor), stat)
            except OSError as error:
                if descriptor == self._stat or error.errno != errno.ENODEV:
                    raise
                self._listed_s = -inf  # a container has ended
                continue
            if stat.throttled_usec is not None:
                total = (total or 0) + stat.throttled_usec
        now.throttled_usec = total
        grew = last is not None and (total or 0) != (last.throttled_usec or 0)
        if grew and self._quota_cores == inf:  # it got one since
            self._quota_cores = self._quota()
        now.quota_cores = self._quota_cores

    def _list_containers(self, now_s: float) -> None:
        for descriptor in self._containers:
            os.close(descriptor)
        below = [folder for folder in groups(self._cpu_folder, 1) if folder != self._cpu_folder][:MAX_GROUPS]
        self._containers = [fd for fd in (_open(folder, "cpu.stat") for folder in below) if fd >= 0]
        self._quota_cores = self._quota()
        self._listed_s = now_s

    def _quota(self) -> float:
        """The Pod's own, else the sum of its containers' if every one has one (the sandbox uses nothing)."""
        own = self._quota_of(self._cpu_folder)
        if own < inf:
            return own
        below = [folder for folder in groups(self._cpu_folder, 1) if folder != self._cpu_folder]
        limits = [quota for folder in below if (quota := self._quota_of(folder)) < inf]
        # one without a quota is the sandbox, which is there in every Pod; with more the bound would be a guess
        return sum(limits) if limits and len(below) - len(limits) <= 1 else inf

    def _quota_of(self, folder: str) -> float:
        return read_quota(folder, self._v2)

    def _read_memory(self, slept: bool = False) -> float:
        data, before = _read(self._memory), self._memory_text
        if not data:
            return nan
        self._memory_text = data
        due = self._reads % STAT_EVERY == 0 and not (slept and data == before)
        if due and (stat := _read(self._memory_stat, STAT_BYTES)):
            self._inactive = parse_inactive_file(stat)
        return working_set(int(data), self._inactive)

    def _read_io(self, now: CounterReading) -> None:
        if data := _read(self._io[0]):
            now.io_pressure_usec = parse_stall_total(data)
        if data := _read(self._io[1]):
            now.io_bytes = parse_io_bytes(data)


def _open(folder: str, name: str) -> int:
    """A descriptor; -1 where this tree has no such file."""
    if not folder:
        return -1
    try:
        return os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return -1


def _read(descriptor: int, size: int = BUFFER_BYTES) -> bytes:
    if descriptor < 0:
        return b""
    try:
        return os.pread(descriptor, size, 0)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # pressure of a group switched off with cgroup.pressure
            raise
        return b""
