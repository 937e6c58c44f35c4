"""What each Pod uses, read from its cgroup when a client or a plugin asks, at most once a second.

The files stay open (cgroup.py). A group that is gone answers ENODEV: that is the end of the Pod, not an error.

Why not all the time: on a hybrid tree (five files) a Pod costs 15 to 20 µs in a loop, but 40 µs when it is read once
a second and everything is cold again; 110 Pods take 0.4 % of a core, as much as the rest of the agent. These are
counters: a reader who asks twice has the exact rate in between.
"""

import errno
import resource
from collections.abc import Mapping
from dataclasses import dataclass, fields

from carico_agent.node.pods.cgroup import (
    CPU_PRESSURE,
    CPU_STAT,
    CPU_USAGE,
    MEMORY_CURRENT,
    MEMORY_PRESSURE,
    Cgroup,
)
from carico_agent.node.pods.cgroups import Group, Locator
from carico_agent.node.pods.pods import Pod

GONE = frozenset({errno.ENODEV, errno.ENOENT})


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
KEPT = (CPU_USAGE, CPU_STAT, MEMORY_CURRENT, CPU_PRESSURE, MEMORY_PRESSURE)


def read_usage(group: Cgroup, now_s: float) -> PodUsage:
    """All counters of one group."""
    stat = group.cpu_stat()
    return PodUsage(
        now_s,
        *stat,
        group.memory_current(),
        group.stall_usec(CPU_PRESSURE),
        group.stall_usec(MEMORY_PRESSURE),
    )


class PodFiles:
    """The groups of one Pod, summed (one group, unless nothing stands around its containers)."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self._open = [Cgroup(group, *KEPT) for group in groups]
        self._last: PodUsage | None = None

    def read(self, now_s: float) -> PodUsage | None:
        """None: every group is gone, and so is the Pod."""
        total: PodUsage | None = None
        for group in tuple(self._open):
            try:
                usage = read_usage(group, now_s)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                group.close()
                self._open.remove(group)
                continue
            total = usage if total is None else _sum(total, usage)
        if total is not None and self._last is not None:
            _hold(total, self._last, COUNTERS if len(self.groups) > 1 else ("cpu_usage_usec",))
        self._last = total
        return total

    def close(self) -> None:
        for group in self._open:
            group.close()


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
