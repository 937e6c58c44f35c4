"""The sampling thread: a tick reads the kernel; once a second what was read is understood and there is news.

The thread and the event loop share the model under one lock. Whoever needs the model first lets it catch up with what
was read, so nobody sees it late; a tick takes no lock but once a second.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import nan
from typing import Protocol

from carico_agent.app.pipeline import Pipeline
from carico_agent.core import CapacityModel, Estimate, Subspace
from carico_agent.federation.contribution import Contribution, GlobalView
from carico_agent.settings import SamplingSettings
from carico_agent.supervise.budget import LOOK_S, Pace
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.ticker import Lateness, Ticker
from carico_agent.telemetry import Grab, NodeReader, TraceRow, TraceWriter, Usage

log = logging.getLogger(__name__)


class PodCount(Protocol):
    """What sampling needs to know of the runtime; plain attributes, read from another thread."""

    count: int
    churn_until_s: float


class Sampling:
    """Owns the pipeline: rows feed it, `look` reads it, `count` tells it of Pods at once."""

    def __init__(self, pipeline: Pipeline, cost: OwnCost, publish_s: float = 1.0) -> None:
        self._pipeline = pipeline
        self._cost = cost.stage("model")
        self._publish_s = publish_s
        self._due_s = 0.0
        self._lock = threading.Lock()
        self.backlog: Callable[[], Iterator[TraceRow]] = lambda: iter(())
        """Rows that were read and not yet fed, oldest first; each is handed out once."""

    def take(self, row: TraceRow) -> None:
        with self._lock:
            self._pipeline.step(row.reading, row.pods, row.churn)

    def due(self, now_s: float) -> bool:
        """True when an update is due: once a second, and the model knows all that was read by then."""
        if now_s < self._due_s:
            return False
        with self._current():
            if self._pipeline.usage is None:  # one reading has nothing to be compared with
                return False
        self._due_s = now_s + self._publish_s - 0.01
        return True

    def catch_up(self) -> None:
        with self._current():
            return

    @contextmanager
    def _current(self) -> Iterator[CapacityModel]:
        """The model, knowing all that was read."""
        with self._lock:
            started_s, fed = time.perf_counter(), False
            for row in self.backlog():
                self._pipeline.step(row.reading, row.pods, row.churn)
                fed = True
            if fed:
                self._cost.record(time.perf_counter() - started_s)
            yield self._pipeline.model

    def count(self, t: float, pods: int, churn: bool) -> None:
        with self._current() as model:
            model.count(t, pods, churn)

    def contribution(self, sizes: tuple[float, ...]) -> Contribution:
        """What this node may tell the others: its own local model, never the cluster's."""
        with self._current() as model:
            cost, precision = model.local_cost
            return Contribution(model.resources, model.subspace, 10, cost, precision, model.pods, sizes)

    def learn(self, view: GlobalView | None, weight: float) -> None:
        """The cluster's view, or None when it is too old to be used."""
        with self._current() as model:
            if view is None:
                nothing = [0.0] * len(model.resources)
                model.merge(Subspace.empty(len(nothing)), 0.0)
                model.learn_cost(nothing, nothing)
            else:
                model.merge(view.subspace, weight)
                model.learn_cost(*view.cost_to_learn())

    def encoded_state(self, encode: Callable[[CapacityModel], bytes]) -> bytes:
        with self._current() as model:
            return encode(model)

    def memory(self) -> float:
        """Its usage at the last row; NaN when unknown."""
        usage = self._pipeline.usage
        return usage.detail.get("memory", nan) if usage else nan

    def look(self) -> tuple[Estimate, Usage | None]:
        with self._current() as model:
            return model.estimate(), self._pipeline.usage


class Live:
    """Samples this machine at its period, or slower where `pace` says so, until stopped."""

    def __init__(
        self,
        reader: NodeReader,
        pods: PodCount,
        sampling: Sampling,
        cost: OwnCost,
        pace: Pace,
        settings: SamplingSettings,
        on_update: Callable[[], None],
        recorder: TraceWriter | None = None,
    ) -> None:
        self._reader, self._pods, self._sampling, self._cost = reader, pods, sampling, cost.stage("read")
        self.settings, self._on_update, self._recorder = settings, on_update, recorder
        self.pace = pace
        self.ticker = Ticker(settings.period_s, self._tick)
        self._waiting: deque[tuple[Grab, int, bool]] = deque()
        sampling.backlog = self._rows
        self._looked: tuple[float, float, int] | None = None
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        keep_time(self.settings.realtime, self.settings.niceness)
        self.ticker.run()

    def _tick(self, now_s: float) -> None:
        started_s = time.perf_counter()
        self._waiting.append((self._reader.grab(now_s), self._pods.count, now_s < self._pods.churn_until_s))
        self._cost.record(time.perf_counter() - started_s)
        if self._sampling.due(now_s):
            self._keep_pace(now_s)
            self._on_update()

    def _rows(self) -> Iterator[TraceRow]:
        while self._waiting:
            taken, pods, churn = self._waiting.popleft()
            row = TraceRow(self._reader.interpret(taken), pods, churn)
            self._record(row)
            yield row

    def _record(self, row: TraceRow) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(row.reading, row.pods, row.churn)
        except OSError as error:  # a full disk ends the recording, not the sampling
            log.error("recording ends here: %s", error)
            self._recorder = None

    def _keep_pace(self, now_s: float) -> None:
        """Every five seconds: what do we cost, how is the node, and so how often do we look."""
        then = self._looked or (now_s - LOOK_S, nan, 0)
        if now_s - then[0] >= LOOK_S - 0.05:
            used_s = OwnCost.cpu_s()
            self._looked = (now_s, used_s, self.lateness.missed)
            ratio, missed = (used_s - then[1]) / (now_s - then[0]), self.lateness.missed - then[2]
            if self.pace.look(now_s, ratio, OwnCost.resident_bytes(), self._sampling.memory(), missed):
                log.warning("sampling every %g s now: %s", self.period_s, self.pace.why or "all is well again")
        self.ticker.period_s = self.period_s

    @property
    def period_s(self) -> float:
        return min(self.settings.period_s * self.pace.multiple, max(1.0, self.settings.period_s))

    def stop(self) -> None:
        self.ticker.stop()
        self._thread.join(timeout=2.0)
        self._sampling.catch_up()
        if self._recorder is not None:
            self._recorder.close()
        self._reader.close()

    @property
    def lateness(self) -> Lateness:
        return self.ticker.lateness

    @property
    def failures(self) -> int:
        return self.ticker.failures


class Replay:
    """Feeds a recorded trace at its own pace times `speed`, for demonstrations, tests and soaks."""

    def __init__(
        self,
        rows: Callable[[], Iterator[TraceRow]],
        sampling: Sampling,
        speed: float,
        repeat: bool,
        on_update: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._rows, self._sampling, self._speed, self._repeat = rows, sampling, speed, repeat
        self._on_update, self._on_end = on_update, on_end
        self.lateness, self.failures = Lateness(), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        offset_t = 0.0
        began_s, began_t = time.monotonic(), None
        while not self._stop.is_set():
            last_t = 0.0
            for row in self._rows():
                t = row.reading.t + offset_t
                began_t = t if began_t is None else began_t
                wait_s = began_s + (t - began_t) / self._speed - time.monotonic()
                if self._stop.wait(max(0.0, wait_s)):
                    return
                self.lateness.record(max(0.0, -wait_s))
                self._sampling.take(shifted(row, offset_t))
                if self._sampling.due(t):
                    self._on_update()
                last_t = row.reading.t
            if not self._repeat:
                break
            first_t = next(self._rows()).reading.t
            offset_t += last_t - first_t + 0.1
        self._on_end()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)


def shifted(row: TraceRow, offset_t: float) -> TraceRow:
    """The same row later: a repeated trace must not go back in time (its counters do, which is "unknown" once)."""
    if not offset_t:
        return row
    return replace(row, reading=replace(row.reading, t=row.reading.t + offset_t))


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
        log.info("sampling stays at niceness 0: raising it needs CAP_SYS_NICE (fine unless the node is overloaded)")
        return "niceness 0"
    return f"niceness {niceness}"
