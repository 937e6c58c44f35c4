"""The thread that reads: ten times a second the kernel's files, and the share of Pods whose turn it is.

It only makes system calls and puts what it got into a SampleQueue; a tick waits for no other thread.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Protocol

from carico_agent.lib.supervise.budget import LOOK_S, Pace
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.ticker import Lateness, Ticker, TimeHistogram
from carico_agent.node.measurements import PodTurn
from carico_agent.node.pods.meter import PodMeters, PodReading
from carico_agent.node.pods.pods import Pod
from carico_agent.node.sampling import NodeReader
from carico_agent.node.sampling.queue import SampleQueue, Tick, UpdateClock
from carico_agent.settings import SamplingSettings

log = logging.getLogger(__name__)

TURN_S, LATE_TURN_S = 0.3, 0.15
"""Pods are read in every third tick, and in each tick while some are late: the first read of a tick finds cold caches
and costs as much as three more."""


class PodCount(Protocol):
    """What sampling needs to know of the runtime; plain attributes, read from another thread."""

    count: int
    churn_until_s: float
    pods: Mapping[str, Pod]


class Meters:
    """Reads Pods, some in each turn; the sampling thread's."""

    def __init__(self, meters: PodMeters) -> None:
        self._meters = meters
        self.pods: Mapping[str, Pod] = {}
        self.turn_s = inf
        """When Pods are read next; infinite while there are none."""

    def tick(self, now_s: float, pods: Mapping[str, Pod], due: bool) -> PodTurn:
        """Read this turn's share. `due`: a model update is, too."""
        readings: Sequence[PodReading] = ()
        changed, self.pods = pods is not self.pods, pods
        # an update is work enough for one tick; but where ticks are rare there is no other
        if changed or (now_s >= self.turn_s and (not due or now_s - self.turn_s > LATE_TURN_S)):
            readings = self._meters.tick(now_s, pods)
            next_s = now_s if self._meters.is_behind(now_s) else now_s + TURN_S - 0.01
            self.turn_s = next_s if pods else inf
        return PodTurn(pods, readings, due)

    def close(self) -> None:
        self._meters.close()


class Live:
    """The producer: samples this machine at its period, or slower where `pace` says so, until stopped."""

    def __init__(
        self,
        reader: NodeReader,
        pods: PodCount,
        meters: Meters | None,
        queue: SampleQueue[Tick],
        cost: OwnCost,
        pace: Pace,
        settings: SamplingSettings,
        memory: Callable[[], float],
        on_update: Callable[[], None],
    ) -> None:
        """`memory()`: usage of the node's memory, NaN unknown; `on_update` is called once a second."""
        self._reader, self._pods, self._queue, self._cost = reader, pods, queue, cost.stage("read")
        self._meters, self._meter_cost = meters, cost.stage("measure Pods")
        self._settings, self._pace, self._memory, self._on_update = settings, pace, memory, on_update
        self._clock = UpdateClock()
        self._ticker = Ticker(settings.period_s, self._tick)
        self._looked: tuple[float, float, int] | None = None
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_settings(self, settings: SamplingSettings) -> None:
        """The period takes effect with the next second."""
        self._settings = settings

    def _run(self) -> None:
        keep_time(self._settings.realtime, self._settings.niceness)
        self._ticker.run()

    def tick(self, now_s: float) -> None:
        if wake := self._tick(now_s):
            wake()

    def _tick(self, now_s: float) -> Callable[[], None] | None:
        """Ten times a second with cold caches: as few lines as possible. Returns who is to be woken."""
        runtime, meters, turn = self._pods, self._meters, None
        grab = self._reader.grab(now_s)
        due = now_s >= self._clock.due_s and self._clock.due(now_s)
        if due:
            self._cost.record(time.monotonic() - now_s)
        if meters is not None and (due or now_s >= meters.turn_s or runtime.pods is not meters.pods):
            started_s = time.monotonic()
            turn = meters.tick(now_s, runtime.pods, due)
            self._meter_cost.record(time.monotonic() - started_s)
        self._queue.put((grab, runtime.count, now_s < runtime.churn_until_s, turn))
        if not due:
            return None
        self._keep_pace(now_s)
        return self._on_update

    def _keep_pace(self, now_s: float) -> None:
        """Every five seconds: what do we cost, how is the node, and so how often do we look."""
        then = self._looked or (now_s - LOOK_S, nan, 0)
        if now_s - then[0] >= LOOK_S - 0.05:
            used_s = OwnCost.cpu_s()
            self._looked = (now_s, used_s, self.lateness.missed)
            ratio, missed = (used_s - then[1]) / (now_s - then[0]), self.lateness.missed - then[2]
            if self._pace.observe(now_s, ratio, OwnCost.resident_bytes(), self._memory(), missed):
                log.warning("sampling every %g s now: %s", self.period_s, self._pace.why or "all is well again")
        self._ticker.period_s = self.period_s

    @property
    def period_s(self) -> float:
        return min(self._settings.period_s * self._pace.multiple, max(1.0, self._settings.period_s))

    def stop(self) -> None:
        self._ticker.stop()
        self._thread.join(timeout=2.0)
        if self._meters is not None:
            self._meters.close()

    @property
    def lateness(self) -> Lateness:
        return self._ticker.lateness

    @property
    def worked(self) -> TimeHistogram:
        """How long ticks took."""
        return self._ticker.worked

    @property
    def failures(self) -> int:
        return self._ticker.failures


def keep_time(realtime: bool, niceness: int) -> str:
    """Put this thread only (Linux keeps scheduling per thread) where it keeps its time; returns where it is now.

    Why real time: on two cores with four busy loops and other work (load 7 to 11), 40 s each, the p99 of lateness was
    50 ms to beyond 100 ms at niceness −10, with up to 10 missed ticks; in SCHED_RR at most 1 ms in most runs, 20 in the
    worst, no tick missed (`make bench`, "lateness"). Niceness counts only within a cgroup or session, so not against
    Pods. The thread runs for about half a millisecond ten times a second.
    """
    try:
        if realtime:
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            return "realtime"
    except OSError:  # no CAP_SYS_NICE, or a cgroup v1 without real-time budget
        log.info(
            "sampling cannot be real time: that needs LimitRTPRIO=1 or CAP_SYS_NICE "
            "(fine unless the node is overloaded)"
        )
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    except PermissionError:
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        log.info(
            "sampling stays at niceness %d: less needs CAP_SYS_NICE (fine unless the node is overloaded)", niceness
        )
    return f"niceness {niceness}"
