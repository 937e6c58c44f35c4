"""The counters of plain processes, without cgroups of their own and without root: /proc/PID/stat, statm and schedstat.

A Pod is a process and what it has started. CPU time is utime + stime of all of them, with that of children which have
ended and were waited for (cutime + cstime) [ticks of 1/100 s: 1 % of a core in a second]. Memory is their resident set;
pages they share are counted in each, so it is an upper bound. Waiting for a CPU is the run delay of their threads.
Where the group that the process is in has a quota, that ends what it can use, and its time throttled is part of that
delay; other processes of the group are not known here, so both are the whole group's.
"""

import errno
import os
from collections.abc import Iterator
from functools import partial
from math import inf, nan
from typing import NamedTuple

from carico_agent.node.pods.cgroup import Cgroup
from carico_agent.node.pods.cgroups import Group
from carico_agent.node.pods.counter_files import LIST_AGAIN_S
from carico_agent.node.pods.demand import CounterReading
from carico_agent.node.pods.run_delay import RunDelay
from carico_agent.node.pods.small_files import read_once

MAX_PROCESSES = 64
"""Of one Pod."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """/proc/PID/stat, times in ticks."""

    command: str
    ended: bool
    """A zombie: its parent has not waited for it yet."""
    parent: int
    used: int
    """Time on a CPU, with that of children that were waited for."""
    started: int
    """Since boot."""


def parse_stat(data: bytes) -> ProcessStat:
    """The command may hold anything, brackets too.

    >>> parse_stat(b"12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 7 8 1 2 20 0 1 0 4242 1 2")
    ProcessStat(command='a) b', ended=False, parent=1, used=18, started=4242)
    """
    head, _, rest = data.rpartition(b")")
    fields = rest.split()
    if len(fields) < 20:
        raise ValueError(f"not /proc/PID/stat: {data[:80]!r}")
    command = head.partition(b"(")[2].decode(errors="replace")
    return ProcessStat(command, fields[0] in b"ZX", int(fields[1]), sum(map(int, fields[11:15])), int(fields[19]))


def read_stat(pid: int, proc: str = "/proc") -> ProcessStat | None:
    """None: there is no such process (any more)."""
    try:
        stat = parse_stat(read_once(f"{proc}/{pid}/stat"))
    except (OSError, ValueError):
        return None
    return None if stat.ended else stat


def start_ticks(pid: int, proc: str = "/proc") -> int | None:
    """When the process began; with its pid that is who it is. None: there is none."""
    stat = read_stat(pid, proc)
    return stat.started if stat else None


def family(pid: int, proc: str = "/proc") -> Iterator[int]:
    """The process and its descendants, at most `MAX_PROCESSES` (needs CONFIG_PROC_CHILDREN, else itself alone)."""
    waiting, seen = [pid], 0
    while waiting and seen < MAX_PROCESSES:
        one = waiting.pop(0)
        seen += 1
        yield one
        for tid in thread_ids(one, proc):
            try:
                waiting += [int(child) for child in read_once(f"{proc}/{one}/task/{tid}/children").split()]
            except (OSError, ValueError):
                continue


def thread_ids(pid: int, proc: str = "/proc") -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"{proc}/{pid}/task")[:1024] if name.isdigit()]
    except OSError:
        return []


def used_s(pid: int, started_ticks: int, proc: str = "/proc") -> float:
    """CPU seconds of a process and its descendants; NaN when it has ended."""
    own = read_stat(pid, proc)
    if own is None or own.started != started_ticks:
        return nan
    others = (read_stat(one, proc) for one in family(pid, proc) if one != pid)
    return (own.used + sum(stat.used for stat in others if stat)) / TICKS_PER_S


class ProcessCounters:
    """One process and its descendants, as `meter.PodMeter` reads them. Ends with the process `pid` of that start."""

    def __init__(self, pid: int, started_ticks: int, proc: str = "/proc", group: Group | None = None) -> None:
        """`group`: the one the process is in, for its quota."""
        self._group = None if group is None else Cgroup(group)
        self._quota_cores, self._quota_s = inf, -inf
        self._pid, self._started_ticks, self._proc = pid, started_ticks, proc
        self._delay = RunDelay(partial(_threads_of, pid, proc), proc)
        self._max_usec = 0
        self._looked = False

    def sleeps_on(self) -> bool:
        return False  # that takes as long to find out as to read it

    def read(self, now_s: float) -> CounterReading:
        own = read_stat(self._pid, self._proc)
        if own is None or own.started != self._started_ticks:
            raise OSError(errno.ENODEV, f"process {self._pid} has ended")
        ticks, pages = own.used, _resident_pages(self._pid, self._proc)
        for pid in family(self._pid, self._proc):
            if pid != self._pid and (stat := read_stat(pid, self._proc)):
                ticks += stat.used
                pages += _resident_pages(pid, self._proc)
        # a child that ended and is not waited for yet takes its time with it for a while
        self._max_usec = max(self._max_usec, ticks * 1_000_000 // TICKS_PER_S)
        threads, looked = self._delay.read(now_s), self._looked
        self._looked = True
        quota_cores = self._quota(now_s)
        return CounterReading(
            now_s,
            self._max_usec,
            throttled_usec=self._throttled_usec() if quota_cores < inf else None,
            quota_cores=quota_cores,
            threads=threads if looked else None,
            memory_bytes=float(pages * PAGE_BYTES),
        )

    def _quota(self, now_s: float) -> float:
        if self._group is not None and now_s - self._quota_s > LIST_AGAIN_S:
            self._quota_cores, self._quota_s = self._group.quota_cores(), now_s
        return self._quota_cores

    def _throttled_usec(self) -> int | None:
        """None where it cannot be read."""
        try:
            return None if self._group is None else self._group.throttled_usec()
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        self._delay.close()


def _resident_pages(pid: int, proc: str) -> int:
    try:
        return int(read_once(f"{proc}/{pid}/statm").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _threads_of(pid: int, proc: str) -> Iterator[int]:
    for one in family(pid, proc):
        yield from thread_ids(one, proc)
