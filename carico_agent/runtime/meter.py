"""Pods measured one after the other: each tick reads its share, so that no tick reads them all.

Each Pod is read every `period_s`. 110 Pods in 5 s are two or three in a tick of 0.1 s. New Pods are read sooner, after
1, 2 and 4 s; the allowance of a tick holds for them, too, and opening a new one's files counts as several readings.

Why 5 s and not the node's 0.1 s: `cpu.pressure` is averaged over CPUs whenever somebody looks, at the latest every 2 s,
and a thread that changes the CPU in between is counted too low. Measured on 2 cores with three busy loops, what a loop
wants by usage + pressure: 0.98 looking at 10 Hz, 0.77 to 0.98 every 5 s. The run delay of its threads makes that 0.97
to 1.00 in the same 5 s windows, so nothing is gained by looking more often than the budget (0.1 % of a core) allows.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Protocol

from carico_agent.core import PodSample
from carico_agent.runtime.cgroups import Group, Locator
from carico_agent.runtime.counter_files import CounterFiles
from carico_agent.runtime.demand import CounterReading, Demand, demand
from carico_agent.runtime.pods import Pod
from carico_agent.runtime.stagger import Stagger
from carico_agent.runtime.usage import GONE, raise_descriptor_limit

PERIOD_S = 5.0
YOUNG_STEPS_S = (1.0, 1.0, 2.0)
"""Between the first readings of a Pod that came while we looked."""
MOST_TICK_S = 0.0002
"""CPU time of one tick [s], so that it ends within 0.5 ms with what else it reads. Seven Pods asleep take as much; on a
crowded node a reading costs more (cold caches, threads that are looked at): the others are read in the next tick."""
OPENING = 5
"""Opening a Pod's files costs as much as so many readings of them."""


@dataclass(slots=True)  # not frozen: see Demand
class MeasuredPod:
    """What one Pod wants, in the machine's units; NaN where unknown."""

    key: str
    kind: str
    daemon: bool
    counts: bool
    t: float
    """Monotonic time of the reading [s]."""
    age_s: float
    """Since its start, where that is known, else since it was first seen."""
    demand: Demand


class Readable(Protocol):
    """The counters of one group of processes."""

    def read(self, now_s: float) -> CounterReading: ...
    def close(self) -> None: ...


Open = Callable[[Pod], Sequence[Readable]]
"""Opens what there is to read of a Pod; nothing: it has no counters (yet)."""


def open_cgroups(locator: Locator, io: bool = False) -> Open:
    """For Pods that have cgroups."""

    def open_pod(pod: Pod) -> Sequence[Readable]:
        if not pod.inode:
            return ()
        found: Iterable[Group | None] = locator.find(pod) if pod.pids else [locator.at(pod.cgroup)]
        return [CounterFiles(group, f"{locator.root}/proc", io) for group in found if group]

    return open_pod


class PodMeter:
    """One Pod: its open files and its last counters."""

    def __init__(self, pod: Pod, files: Sequence[Readable], now_s: float, age_s: float) -> None:
        self.pod = pod
        self.readings = 0
        self._files = list(files)
        self._born_s = now_s - age_s
        self._last: dict[int, CounterReading] = {}

    def read(self, now_s: float) -> MeasuredPod | None:
        """What it wanted since the last reading; None after the first one, and when nothing is left of it."""
        found: list[Demand] = []
        for files in tuple(self._files):
            try:
                now = files.read(now_s)
            except OSError as error:
                self._files.remove(files)
                files.close()
                if error.errno not in GONE:
                    raise
                continue
            last, self._last[id(files)] = self._last.get(id(files)), now
            if last is not None:
                found.append(demand(last, now))
        self.readings += 1
        if not found:
            return None
        pod, age_s = self.pod, now_s - self._born_s
        return MeasuredPod(pod.key, pod.kind, pod.daemon, pod.counts, now_s, age_s, add_up(found))

    @property
    def is_empty(self) -> bool:
        return not self._files

    def close(self) -> None:
        for files in self._files:
            files.close()
        self._files.clear()


class PodMeters:
    """All Pods of a node; for one thread."""

    def __init__(
        self,
        open_pod: Open,
        period_s: float = PERIOD_S,
        most_tick_s: float = MOST_TICK_S,
        wall: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.thread_time,
    ) -> None:
        """`most_tick_s`: CPU time after which a tick begins no other Pod; infinite where nobody waits for it."""
        self.failed = 0
        """Readings that failed for another reason than the end of the Pod."""
        self._open_pod, self._most_tick_s, self._wall, self._stopwatch = open_pod, most_tick_s, wall, stopwatch
        self._turns = Stagger(period_s)
        self._pods: Mapping[str, Pod] = {}
        self._meters: dict[str, PodMeter] = {}
        self._latest: dict[str, MeasuredPod] = {}
        self._seen_s: dict[str, float] = {}
        raise_descriptor_limit()

    def tick(self, now_s: float, pods: Mapping[str, Pod]) -> list[MeasuredPod]:
        """Read this tick's share of the Pods; those with a new measurement are returned."""
        if pods is not self._pods:  # a table of Pods is replaced, never changed
            self._take(now_s, pods)
        measured, until_s = [], self._stopwatch() + self._most_tick_s
        for key in self._turns.take(now_s):
            if key not in self._meters:
                self._turns.spend(OPENING - 1)
            if found := self._measure(key, now_s):
                measured.append(found)
                self._latest[key] = found
            if self._stopwatch() >= until_s:
                break
        return measured

    def is_behind(self, now_s: float) -> bool:
        """Some Pods are due and were not read: the tick was over."""
        return self._turns.is_behind(now_s)

    @property
    def latest(self) -> Mapping[str, MeasuredPod]:
        """The last measurement of every Pod that still runs and was measured, by key."""
        return self._latest

    def close(self) -> None:
        for meter in self._meters.values():
            meter.close()
        self._meters.clear()

    def _take(self, now_s: float, pods: Mapping[str, Pod]) -> None:
        """The Pods have changed: forget those that have gone, line up those that came."""
        self._pods = pods
        for key in self._turns.keep(pods.keys(), now_s):
            self._seen_s.pop(key, None)
            self._latest.pop(key, None)
            if key in self._meters:
                self._meters.pop(key).close()
        for key in pods.keys() - self._seen_s.keys():
            self._seen_s[key] = now_s

    def _measure(self, key: str, now_s: float) -> MeasuredPod | None:
        pod, meter, found = self._pods[key], self._meters.get(key), None
        try:
            if meter is None or not _is_same(meter.pod, pod) or meter.is_empty:
                meter = self._renew(key, pod, now_s)
            meter.pod = pod
            found = meter.read(now_s)
        except (OSError, ValueError):
            self.failed += 1
        # Pods that were there before us are not young; they get their second reading a little sooner, that is all
        steps_s = YOUNG_STEPS_S[-1:] if key in self._turns.at_start else YOUNG_STEPS_S
        if meter is not None and 0 < meter.readings <= len(steps_s):
            self._turns.line_up(key, now_s + steps_s[meter.readings - 1])
        return found

    def _renew(self, key: str, pod: Pod, now_s: float) -> PodMeter:
        """Open its files; anew when it has other containers or another group than before."""
        if key in self._meters:
            self._meters.pop(key).close()
        age_s = max(self._wall() - pod.started_s, 0.0) if pod.started_s else now_s - self._seen_s[key]
        meter = self._meters[key] = PodMeter(pod, self._open_pod(pod), now_s, age_s)
        return meter


def _is_same(one: Pod, other: Pod) -> bool:
    return one is other or (one.inode, one.cgroup, one.pids) == (other.inode, other.cgroup, other.pids)


def add_up(found: Sequence[Demand]) -> Demand:
    """Of one Pod's groups; what one of them does not know, nobody knows."""
    if len(found) == 1:
        return found[0]
    return Demand(
        cpu_cores=sum(one.cpu_cores for one in found),
        cpu_usage_cores=sum(one.cpu_usage_cores for one in found),
        throttled_ratio=sum(one.throttled_ratio for one in found),
        memory_bytes=sum(one.memory_bytes for one in found),
        io_ratio=min(sum(one.io_ratio for one in found), 1.0),
        io_bytes_per_s=sum(one.io_bytes_per_s for one in found),
    )


class NodeUnit:
    """Measurements as shares of the node: cpu of twice its cores, memory of MemTotal. NaN: not measured (yet).

    A Pod that was not read again is the same object again: the core counts readings by that.
    """

    def __init__(self, resources: Sequence[str], cores: int, memory_total_bytes: float) -> None:
        self._resources, self._cores, self._memory_bytes = tuple(resources), cores, memory_total_bytes
        self._made: dict[str, tuple[Pod, MeasuredPod | None, PodSample]] = {}

    def samples(self, pods: Mapping[str, Pod], latest: Mapping[str, MeasuredPod]) -> tuple[PodSample, ...]:
        """All Pods that count; no Pod is missed."""
        made = {}
        for key, pod in pods.items():
            if pod.counts:
                found, known = latest.get(key), self._made.get(key)
                if known is None or known[0] is not pod or known[1] is not found:
                    known = (pod, found, PodSample(key, pod.kind, self._usage(found), pod.daemon))
                made[key] = known
        self._made = made
        return self.latest()

    def renew(self, found: MeasuredPod) -> None:
        """One of these Pods was measured again."""
        if (known := self._made.get(found.key)) is not None:
            pod = known[0]
            self._made[found.key] = (pod, found, PodSample(pod.key, pod.kind, self._usage(found), pod.daemon))

    def latest(self) -> tuple[PodSample, ...]:
        """The same Pods again."""
        return tuple([sample for _, _, sample in self._made.values()])

    def _usage(self, found: MeasuredPod | None) -> tuple[float, ...]:
        if found is None:
            return (nan,) * len(self._resources)
        want = found.demand
        cpu = want.cpu_cores / (2 * self._cores)
        memory = want.memory_bytes / self._memory_bytes if self._memory_bytes > 0 else nan
        if self._resources == ("cpu", "memory"):
            return (cpu, memory)
        shares = {"cpu": cpu, "memory": memory, "io": want.io_ratio}
        return tuple([shares.get(name, nan) for name in self._resources])
