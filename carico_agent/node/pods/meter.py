"""Pods read one after the other: each tick reads its share, so that no tick reads them all.

Like the node's files (`sampling/node.py`) they are only read here: what the counters say is worked out by the part
that feeds the model, for many at once. In a tick, with cold caches, that took three times as long as reading them.

Each Pod is read every `period_s`. 110 Pods in 5 s are two or three in a tick of 0.1 s. New Pods are read sooner, after
1, 2 and 4 s; the allowance of a tick holds for them, too, and opening a new one's files counts as several readings.

Why 5 s and not the node's 0.1 s: `cpu.pressure` is averaged over CPUs whenever it is read, at the latest every 2 s,
and a thread that changes the CPU in between is counted too low. Measured on 2 cores with three busy loops, what a loop
wants by usage + pressure: 0.98 looking at 10 Hz, 0.77 to 0.98 every 5 s. The run delay of its threads makes that 0.97
to 1.00 in the same 5 s windows, so nothing is gained by looking more often than the budget (0.1 % of a core) allows.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from carico_agent.node.pods.cgroups import Group, Locator
from carico_agent.node.pods.counter_files import CounterFiles
from carico_agent.node.pods.demand import CounterReading, Demand, demand
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.stagger import Stagger
from carico_agent.node.pods.usage import GONE, raise_descriptor_limit

PERIOD_S = 5.0
YOUNG_STEPS_S = (1.0, 1.0, 2.0)
"""Between the first readings of a Pod that came while we looked."""
MAX_TICK_S = 0.0002
"""CPU time of one tick [s]. On a crowded node a reading costs more (cold caches, threads that are looked at): then Pods
are read less often, and the tick stays short."""
OPENING = 5
"""Opening a Pod's files costs as much as so many readings of them."""


@dataclass(slots=True)  # not frozen: see Demand
class PodReading:
    """One Pod's turn: of each of its groups the counters at its turn before, and now."""

    pod: Pod
    counters: Sequence[tuple[CounterReading, CounterReading]]

    def demand(self) -> Demand:
        """What it wanted in between, in the machine's units; NaN where unknown."""
        return add_up([demand(before, now) for before, now in self.counters])


class Readable(Protocol):
    """The counters of one group of processes."""

    def sleeps_on(self) -> bool:
        """Whether there is nothing to read: it slept when it was read last, and has not run since."""
        ...

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

    def __init__(self, pod: Pod, files: Iterable[Readable]) -> None:
        self.pod = pod
        self.readings = 0
        self._last: dict[Readable, CounterReading | None] = dict.fromkeys(files)
        self._slept_s = -inf
        """Until then it did not run, though its last counters are older [s]."""

    def read(self, now_s: float) -> PodReading | None:
        """None after the first reading, when nothing is left of it, and while it sleeps as it did before."""
        self.readings += 1
        if self._last and self._sleeps_on():
            self._slept_s = now_s
            return None
        counters: list[tuple[CounterReading, CounterReading]] = []
        for files, last in tuple(self._last.items()):
            try:
                now = files.read(now_s)
            except OSError as error:
                del self._last[files]
                files.close()
                if error.errno not in GONE:
                    raise
                continue
            self._last[files] = now
            if last is not None:
                counters.append((last if last.t >= self._slept_s else replace(last, t=self._slept_s), now))
        return PodReading(self.pod, counters) if counters else None

    def _sleeps_on(self) -> bool:
        try:
            for files in self._last:
                if not files.sleeps_on():
                    return False
        except OSError:  # `read` finds out what it is
            return False
        return True

    @property
    def is_empty(self) -> bool:
        return not self._last

    def close(self) -> None:
        for files in self._last:
            files.close()
        self._last.clear()


class PodMeters:
    """All Pods of a node; for one thread."""

    def __init__(
        self,
        open_pod: Open,
        period_s: float = PERIOD_S,
        max_tick_s: float = MAX_TICK_S,
        stopwatch: Callable[[], float] = time.thread_time,
    ) -> None:
        """`max_tick_s`: CPU time after which a tick begins no other Pod; infinite where no tick waits for it."""
        self.failed = 0
        """Readings that failed for another reason than the end of the Pod."""
        self._open_pod, self._max_tick_s, self._stopwatch = open_pod, max_tick_s, stopwatch
        self._turns = Stagger(period_s)
        self._pods: Mapping[str, Pod] = {}
        self._meters: dict[str, PodMeter] = {}
        raise_descriptor_limit()

    def tick(self, now_s: float, pods: Mapping[str, Pod]) -> list[PodReading]:
        """Read this tick's share of the Pods."""
        if pods is not self._pods:  # a table of Pods is replaced, never changed
            self._take(now_s, pods)
        read, until_s = [], self._stopwatch() + self._max_tick_s
        for key in self._turns.take(now_s):
            try:
                meter = self._meter(key, pods[key])
                reading = meter.read(now_s)
            except (OSError, ValueError):
                self.failed += 1
                continue
            if meter.readings <= len(YOUNG_STEPS_S):
                self._line_up_young(key, meter.readings, now_s)
            if reading is not None:
                read.append(reading)
            if self._stopwatch() >= until_s:
                break
        return read

    def is_behind(self, now_s: float) -> bool:
        """Some Pods are due and were not read: the tick was over."""
        return self._turns.is_behind(now_s)

    def close(self) -> None:
        for meter in self._meters.values():
            meter.close()
        self._meters.clear()

    def _take(self, now_s: float, pods: Mapping[str, Pod]) -> None:
        """The Pods have changed: forget those that have gone, line up those that came."""
        self._pods = pods
        for key in self._turns.keep(pods.keys(), now_s):
            if key in self._meters:
                self._meters.pop(key).close()

    def _meter(self, key: str, pod: Pod) -> PodMeter:
        """Its files are opened anew when it has other containers or another group than before."""
        meter = self._meters.get(key)
        if meter is not None and meter.pod is pod and not meter.is_empty:
            return meter
        if meter is None:
            self._turns.spend(OPENING - 1)
        elif meter.is_empty or not _is_same(meter.pod, pod):
            self._meters.pop(key).close()
            meter = None
        if meter is None:
            meter = self._meters[key] = PodMeter(pod, self._open_pod(pod))
        meter.pod = pod
        return meter

    def _line_up_young(self, key: str, readings: int, now_s: float) -> None:
        """Pods that were there before us are not young; they get their second reading a little sooner, that is all."""
        steps_s = YOUNG_STEPS_S[-1:] if key in self._turns.at_start else YOUNG_STEPS_S
        if 0 < readings <= len(steps_s):
            self._turns.line_up(key, now_s + steps_s[readings - 1])


def _is_same(one: Pod, other: Pod) -> bool:
    return one is other or (one.inode, one.cgroup, one.pids) == (other.inode, other.cgroup, other.pids)


def add_up(found: Sequence[Demand]) -> Demand:
    """Of one Pod's groups; what one of them does not know is unknown."""
    if len(found) == 1:
        return found[0]
    return Demand(
        cpu_cores=sum(one.cpu_cores for one in found),
        cpu_usage_cores=sum(one.cpu_usage_cores for one in found),
        waited_cores=sum(one.waited_cores for one in found),
        throttled_ratio=sum(one.throttled_ratio for one in found),
        memory_bytes=sum(one.memory_bytes for one in found),
        io_ratio=min(sum(one.io_ratio for one in found), 1.0),
        io_bytes_per_s=sum(one.io_bytes_per_s for one in found),
    )
