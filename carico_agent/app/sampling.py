"""From the kernel to the model: a thread reads, a queue hands over, the event loop understands.

The sampling thread only makes the system calls of a tick and puts what it got into a SampleQueue. The event loop takes
everything out, parses and records it and feeds the model. Parsing, recording and the model so live in one thread and
need no lock; a tick waits for nobody.

Whoever asks the model first lets it catch up with the queue, so nobody sees it late, and the answers are the same
whenever that happens. While nobody asks, it catches up every UNDERSTAND_S: ten samples cost 0.6 ms with cold caches,
fifty 1.4.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite, nan
from typing import Generic, Protocol, TypeVar

from carico_agent.app.pipeline import Pipeline
from carico_agent.core import CapacityModel, Estimate, Subspace
from carico_agent.federation.contribution import Contribution, GlobalView
from carico_agent.federation.kinds import KindFit
from carico_agent.runtime.meter import MeasuredPod, NodeUnit, PodMeters
from carico_agent.runtime.pods import Pod
from carico_agent.settings import SamplingSettings
from carico_agent.supervise.budget import LOOK_S, Pace
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.ticker import Lateness, Ticker, TimeHistogram
from carico_agent.telemetry import Grab, NodeReader, PodMeasurements, TraceRow, TraceWriter, Usage
from carico_agent.telemetry.containers import PodsRow

log = logging.getLogger(__name__)

T = TypeVar("T")
UNDERSTAND_S = 5.0
"""Samples wait this long at most for somebody who wants to know [s]."""
MOST_WAITING = 600
"""Samples kept while the event loop does not take them: a minute at 10 Hz, about 3 MB of text."""


LEAST_S = 0.05
"""Between the first two samples of an update [s]: an agent that starts on a busy node is late with its first tick, and
within 10 ms the kernel's CPU times have not moved."""


class SampleQueue(Generic[T]):
    """Hands samples from one producer (a thread) to one consumer (the event loop), oldest first, each once.

    Bounded: when it is full the oldest sample is dropped and counted; who must not lose any asks `full` first.

    >>> queue = SampleQueue[int](most=2)
    >>> for n in range(3): queue.put(n)
    >>> list(queue.take()), queue.dropped
    ([1, 2], 1)
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._waiting: deque[T] = deque(maxlen=most)  # its append and popleft are atomic
        self.dropped = 0

    def put(self, sample: T) -> None:
        """Producer."""
        waiting = self._waiting
        if len(waiting) == waiting.maxlen:
            self.dropped += 1
        waiting.append(sample)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) == self._waiting.maxlen

    def take(self) -> Iterator[T]:
        """Consumer: all that waits."""
        while self._waiting:
            yield self._waiting.popleft()


class UpdateClock:
    """When the model should be asked for its answer: once a second, and not for the first sample, which has nothing
    to be compared with, nor for one that follows it too soon. The producer's.

    >>> clock = UpdateClock()
    >>> [clock.due(t) for t in (0.0, 0.1, 0.2, 1.1, 1.2)]
    [False, True, False, True, False]
    """

    def __init__(self, period_s: float = 1.0) -> None:
        self._period_s = period_s
        self.due_s = -inf
        """Before this it is not worth asking."""

    def due(self, now_s: float) -> bool:
        if now_s < self.due_s:
            return False
        is_first = self.due_s == -inf
        self.due_s = now_s + (LEAST_S if is_first else self._period_s - 0.01)
        return not is_first


OnSecond = Callable[[float, Estimate], None]
"""Gets the time of a sample [monotonic s] and the answer after it, for each second of samples."""


class Sampling:
    """The consumer: owns the model. Only for the event loop's thread, except `memory`."""

    def __init__(
        self,
        pipeline: Pipeline,
        rows: Callable[[], Iterator[TraceRow]],
        cost: OwnCost,
        on_second: OnSecond = lambda t, estimate: None,
    ) -> None:
        """`rows()` gives what was read and not yet fed, oldest first, each once."""
        self._pipeline, self._rows, self._cost = pipeline, rows, cost.stage("model")
        self._on_second, self._clock, self._fed_s = on_second, UpdateClock(), -inf

    def current_model(self) -> CapacityModel:
        """The model, after it has taken in all that was read."""
        self.catch_up()
        return self._pipeline.model

    def catch_up(self) -> None:
        started_s, fed = time.monotonic(), False
        for row in self._rows():
            self._pipeline.step(row)
            fed = True
            t = row.reading.t
            if t >= self._clock.due_s and self._clock.due(t):
                self._on_second(t, self._pipeline.model.estimate(kinds=False))
        if fed:
            self._fed_s = time.monotonic()
            self._cost.record(self._fed_s - started_s)

    def catch_up_late(self) -> None:
        """Catch up unless somebody has let it do so lately."""
        if time.monotonic() - self._fed_s >= UNDERSTAND_S - 0.5 or self._pipeline.usage is None:
            self.catch_up()

    def look(self) -> tuple[Estimate, Usage | None]:
        """The answer now, and the usage it was made of; None before two samples were read."""
        return self.current_model().estimate(), self._pipeline.usage

    @property
    def usage(self) -> Usage | None:
        """Of the last sample that was understood; None before two samples were read."""
        return self._pipeline.usage

    def count(self, t: float, pods: int, churn: bool) -> None:
        """The number of Pods has changed at `t`, between two samples."""
        self.current_model().count(t, pods, churn)

    def contribution(self, sizes: tuple[float, ...]) -> Contribution:
        """What this node may send to the others: its own local model, never the cluster's."""
        model = self.current_model()
        cost, precision = model.local_cost
        now = model.estimate()
        fits = {
            kind.kind: KindFit(int(kind.fits), kind.limiting or "")
            for kind in now.kinds
            if kind.trusted and isfinite(kind.fits)
        }
        return Contribution(
            model.resources,
            model.subspace,
            10,
            cost,
            precision,
            model.pods,
            sizes,
            kinds=model.local_kinds(),
            room=now.room,
            fits=fits,
        )

    def learn(self, view: GlobalView | None, weight: float) -> None:
        """The cluster's view, or None when it is too old to be used."""
        model = self.current_model()
        if view is None:
            nothing = [0.0] * len(model.resources)
            model.merge(Subspace.empty(len(nothing)), 0.0)
            model.learn_cost(nothing, nothing)
            model.learn_kinds([])
        else:
            model.merge(view.subspace, weight)
            model.learn_cost(*view.cost_to_learn())
            model.learn_kinds(view.kinds)

    def memory(self) -> float:
        """Its usage at the last row; NaN when unknown. From any thread."""
        usage = self._pipeline.usage
        return usage.detail.get("memory", nan) if usage else nan


class PodCount(Protocol):
    """What sampling needs to know of the runtime; plain attributes, read from another thread."""

    count: int
    churn_until_s: float
    pods: Mapping[str, Pod]


Tick = tuple[Grab, int, bool, PodMeasurements | None]
"""One tick, as it was read: the kernel's texts, Pods counted, whether containers churn, and, once a second and when
Pods have come or gone, what each Pod uses. A class of its own would cost 3 µs per tick."""


TURN_S, LATE_TURN_S = 0.3, 0.15
"""Pods are read in every third tick, and in each tick while some are late: the first read of a tick finds cold caches
and costs as much as three more."""


class Meters:
    """Every Pod measured, some in each turn; the sampling thread's."""

    def __init__(self, meters: PodMeters, unit: NodeUnit) -> None:
        self._meters, self._unit = meters, unit
        self.pods: Mapping[str, Pod] = {}
        self.turn_s = inf
        """When Pods are read next; infinite while there are none."""
        self._used_cores: dict[str, float] = {}
        self._throttled: dict[str, float] = {}

    def tick(self, now_s: float, pods: Mapping[str, Pod], due: bool) -> PodMeasurements | None:
        """Read this turn's share; when an update is due, or Pods have changed, all as they were measured last."""
        changed, self.pods = pods is not self.pods, pods
        # an update is work enough for one tick; but where ticks are rare there is no other
        if changed or (now_s >= self.turn_s and (not due or now_s - self.turn_s > LATE_TURN_S)):
            for one in self._meters.tick(now_s, pods):
                if one.counts:
                    self._note(one)
                    self._unit.renew(one)
            next_s = now_s if self._meters.is_behind(now_s) else now_s + TURN_S - 0.01
            self.turn_s = next_s if pods else inf
        if changed:
            self._begin_anew(pods)
        return self._latest() if due or changed else None

    def _note(self, one: MeasuredPod) -> None:
        used, throttled = one.demand.cpu_usage_cores, one.demand.throttled_ratio
        self._used_cores[one.key] = used if used == used else 0.0
        self._throttled[one.key] = throttled if throttled == throttled else 0.0

    def _begin_anew(self, pods: Mapping[str, Pod]) -> None:
        """Other Pods than before; the samples of those that stay are the same objects."""
        latest = self._meters.latest
        self._used_cores, self._throttled = {}, {}
        for key, pod in pods.items():
            if pod.counts and key in latest:
                self._note(latest[key])
        self._unit.samples(pods, latest)

    def _latest(self) -> PodMeasurements | None:
        samples = self._unit.latest()
        if samples and not self._used_cores:  # none is measured yet, or none can be: the node as a whole is known
            return None
        return PodMeasurements(samples, sum(self._used_cores.values()), sum(self._throttled.values()))

    def close(self) -> None:
        self._meters.close()


class LiveRows:
    """What the samples say, each row recorded as it is understood."""

    def __init__(self, reader: NodeReader, queue: SampleQueue[Tick], recorder: TraceWriter | None = None) -> None:
        self._reader, self._queue, self._recorder = reader, queue, recorder

    def __call__(self) -> Iterator[TraceRow]:
        for grab, pods, churn, measured in self._queue.take():
            row = TraceRow(self._reader.interpret(grab), pods, churn, measured)
            self._record(row)
            yield row

    def record_pods(self, row: PodsRow) -> None:
        """Containers, about once a minute each; in the thread that calls for the samples."""
        if self._recorder is not None:
            self._recorder.write_pods(row)

    def _record(self, row: TraceRow) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(row)
        except OSError as error:  # a full disk ends the recording, not the sampling
            log.error("recording ends here: %s", error)
            self._recorder = None

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self._reader.close()


class Live:
    """The producer: samples this machine at its period, or slower where `pace` says so, until stopped."""

    def __init__(
        self,
        reader: NodeReader,
        pods: PodCount,
        meters: "Meters | None",
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
        self.settings, self._pace, self._memory, self._on_update = settings, pace, memory, on_update
        self._clock = UpdateClock()
        self._ticker = Ticker(settings.period_s, self._tick)
        self._looked: tuple[float, float, int] | None = None
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        keep_time(self.settings.realtime, self.settings.niceness)
        self._ticker.run()

    def tick(self, now_s: float) -> None:
        if wake := self._tick(now_s):
            wake()

    def _tick(self, now_s: float) -> Callable[[], None] | None:
        """Ten times a second with cold caches: as few lines as possible. Returns who is to be woken."""
        runtime, meters, measured = self._pods, self._meters, None
        grab = self._reader.grab(now_s)
        due = now_s >= self._clock.due_s and self._clock.due(now_s)
        if due:
            self._cost.record(time.monotonic() - now_s)
        if meters is not None and (due or now_s >= meters.turn_s or runtime.pods is not meters.pods):
            started_s = time.monotonic()
            measured = meters.tick(now_s, runtime.pods, due)
            self._meter_cost.record(time.monotonic() - started_s)
        self._queue.put((grab, runtime.count, now_s < runtime.churn_until_s, measured))
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
            if self._pace.look(now_s, ratio, OwnCost.resident_bytes(), self._memory(), missed):
                log.warning("sampling every %g s now: %s", self.period_s, self._pace.why or "all is well again")
        self._ticker.period_s = self.period_s

    @property
    def period_s(self) -> float:
        return min(self.settings.period_s * self._pace.multiple, max(1.0, self.settings.period_s))

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
