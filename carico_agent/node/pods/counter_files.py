"""One Pod's cgroup, its files read in the order in which they become interesting.

If the CPU time has not advanced, the other files are skipped (the kernel may take memory back, so that is read in every
fourth reading all the same, and page cache when it did). Pressure is
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
from functools import partial
from math import inf, nan

from carico_agent.node.pods.cgroup import (
    CPU_PRESSURE,
    CPU_STAT,
    CPU_USAGE,
    IO_PRESSURE,
    IO_STAT,
    MEMORY_CURRENT,
    MEMORY_STAT,
    Cgroup,
    in_folder,
    parse_inactive_file,
    parse_io_bytes,
)
from carico_agent.node.pods.cgroups import Group
from carico_agent.node.pods.demand import WAITS_RATIO, CounterReading, working_set
from carico_agent.node.pods.run_delay import MAX_GROUPS, RunDelay, groups, threads

WAITS = 0.02
"""Share of the time from which on it matters whether a quota is the reason."""
CALM = 3
"""Readings without much waiting after which its threads are left alone again."""
LIST_AGAIN_S = 60.0
"""Containers that are restarted get another group, and quotas may be changed."""
STAT_EVERY = 4


class CounterFiles:
    """One cgroup. `proc`: where /proc is; `io`: also read what it does with disks."""

    def __init__(self, group: Group, proc: str = "/proc", io: bool = False) -> None:
        kept = (CPU_USAGE, MEMORY_CURRENT, CPU_PRESSURE, CPU_STAT, MEMORY_STAT)
        self._group = Cgroup(group, *kept, *((IO_PRESSURE, IO_STAT) if io else ()))
        self._containers = list[Cgroup]()
        self._reads_io = io
        self._cpu_folder = group.unified if self._group.v2 else group.controllers.get("cpu", "")
        self._listed_s = -inf
        self._quota_cores = inf
        self._delay = RunDelay(partial(threads, group.unified or self._cpu_folder), proc)
        self._looks, self._calm = False, 0
        self._inactive = 0
        self._reads = 0
        self._offset = group.inode % STAT_EVERY  # not all Pods in the same round
        self._usage_text = self._memory_text = b""
        self._slept = False
        self._last: CounterReading | None = None

    def sleeps_on(self) -> bool:
        """Whether it slept when it was read last, has not run since, and has the memory that it had."""
        if not self._slept or self._reads_io or self._group.read(CPU_USAGE) != self._usage_text:
            return False
        if self._reads % STAT_EVERY == 0 and self._group.read(MEMORY_CURRENT) != self._memory_text:
            return False
        self._reads += 1
        return True

    def read(self, now_s: float) -> CounterReading:
        """All that is worth reading now. OSError with ENODEV: the group is gone."""
        last, data = self._last, self._group.read(CPU_USAGE)
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
        return [descriptor for group in (self._group, *self._containers) for descriptor in group.descriptors]

    def close(self) -> None:
        for group in (self._group, *self._containers):
            group.close()
        self._delay.close()

    def _parse_usage(self, data: bytes, now: CounterReading, last: CounterReading | None) -> None:
        now.cpu_usec = self._group.parse_cpu_usec(data)
        if last and last.cpu_usec and now.cpu_usec is not None and last.cpu_usec - 1000 < now.cpu_usec < last.cpu_usec:
            now.cpu_usec = last.cpu_usec  # back by rounding: the kernel splits one sum into user and system time

    def _read_waiting(self, now: CounterReading, last: CounterReading | None) -> None:
        now.pressure_usec = self._group.stall_usec(CPU_PRESSURE)
        elapsed_usec = (now.t - last.t) * 1e6 if last else 0.0
        before = last.pressure_usec if last else None
        waited_usec = (now.pressure_usec or 0) - (before or 0)
        if last is not None and before is not None and waited_usec < WAITS * elapsed_usec:
            now.throttled_usec, now.quota_cores = last.throttled_usec, last.quota_cores
        else:
            self._read_throttling(now, last)
        # a Pod that is new: if it waits, its first number should not be a lower bound only
        self._read_threads(now, last is None or waited_usec >= WAITS_RATIO * elapsed_usec)

    def _read_threads(self, now: CounterReading, waits: bool) -> None:
        """The first look begins an interval, the next one ends it."""
        self._calm = 0 if waits else self._calm + 1
        if self._calm >= CALM:
            self._stop_looking()
            return
        found = self._delay.read(now.t)
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
        for group in (self._group, *self._containers):
            try:
                throttled_usec = group.throttled_usec()
            except OSError as error:
                if group is self._group or error.errno != errno.ENODEV:
                    raise
                self._listed_s = -inf  # a container has ended
                continue
            if throttled_usec is not None:
                total = (total or 0) + throttled_usec
        now.throttled_usec = total
        grew = last is not None and (total or 0) != (last.throttled_usec or 0)
        if grew and self._quota_cores == inf:  # it got one since
            self._quota_cores = self._quota()
        now.quota_cores = self._quota_cores

    def _list_containers(self, now_s: float) -> None:
        for group in self._containers:
            group.close()
        below = [folder for folder in groups(self._cpu_folder, 1) if folder != self._cpu_folder][:MAX_GROUPS]
        self._containers = [Cgroup(in_folder(folder, self._group.v2), CPU_STAT) for folder in below]
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
        return Cgroup(in_folder(folder, self._group.v2)).quota_cores()

    def _read_memory(self, slept: bool = False) -> float:
        data, before = self._group.read(MEMORY_CURRENT), self._memory_text
        if not data:
            return nan
        self._memory_text = data
        due = self._reads % STAT_EVERY == 0 and not (slept and data == before)
        if due and (stat := self._group.read(MEMORY_STAT)):
            self._inactive = parse_inactive_file(stat)
        return working_set(int(data), self._inactive)

    def _read_io(self, now: CounterReading) -> None:
        now.io_pressure_usec = self._group.stall_usec(IO_PRESSURE)
        if data := self._group.read(IO_STAT):
            now.io_bytes = parse_io_bytes(data)
