"""The sampling side of an agent: who reads (this machine or a trace), and the model that learns from it."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from carico_agent.core import CapacityModel
from carico_agent.lib.supervise.budget import Allowance, Pace
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.trace.containers import PodsRow
from carico_agent.node import outlook, state
from carico_agent.node.measurements import Measurements
from carico_agent.node.model_feed import LiveRows, ModelFeed
from carico_agent.node.pipeline import Pipeline, model_config
from carico_agent.node.pods.meter import PodMeters
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.publish.status import SamplingStatus
from carico_agent.node.sampling import NodeReader, Root, TraceRow, TraceWriter, read_trace
from carico_agent.node.sampling.queue import SampleQueue, Tick
from carico_agent.node.sampling.replaying import Replay
from carico_agent.node.sampling.thread import Live, Meters
from carico_agent.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the command line says about where samples come from."""

    record: str | None = None
    """Keep all that is read in this file."""
    replay: str | None = None
    """Take this trace for the kernel."""
    speed: float = 1.0
    repeat: bool = False


@dataclass(slots=True)
class Source:
    """Producer, queue and consumer of samples."""

    resources: tuple[str, ...]
    cores: int
    feed: ModelFeed
    producer: Live | Replay
    queue: SampleQueue[Tick] | SampleQueue[TraceRow]
    pace: Pace
    absent: dict[str, str] = field(default_factory=dict)
    """Signal → why this node does not offer it."""
    close: Callable[[], None] = lambda: None
    record_pods: Callable[[PodsRow], None] | None = None
    """Keeps what was read about containers in the trace that is being recorded."""

    @property
    def replaying(self) -> bool:
        return isinstance(self.producer, Replay)

    @property
    def ready(self) -> bool:
        """Whether the first answer can be given. A trace is taken as it is."""
        return self.feed.usage is not None if self.replaying else self.feed.has_first_answer

    @property
    def sizes(self) -> tuple[float, ...]:
        """What "all of it" is per resource: twice the cores (the cpu channel ends there), bytes; 1 for others."""
        known = {"cpu": 2.0 * self.cores, "memory": float(memory_bytes())}
        return tuple(known.get(name, 1.0) for name in self.resources)

    def status(self) -> SamplingStatus:
        return SamplingStatus(self.producer.period_s, self.pace.why or None)

    def take_settings(self, settings: Settings) -> None:
        """Settings that take effect while running."""
        self.pace.allow(allowance_of(settings))
        self.producer.take_settings(settings.sampling)

    def stop(self) -> None:
        self.producer.stop()
        self.feed.step()
        self.close()


def allowance_of(settings: Settings) -> Allowance:
    budget = settings.budget
    return Allowance(budget.cpu_ratio, 1e6 * budget.resident_mb, budget.pressure_ratio, budget.calm_s)


def open_live(
    settings: Settings,
    node: str,
    runtime: Runtime,
    cost: OwnCost,
    state_file: Path,
    on_update: Callable[[], None],
    record: str | None,
) -> Source:
    """Samples of this machine, and the model saved in `state_file` if it fits. `on_update` is called once a second by
    the sampling thread."""
    reader = NodeReader(Root(settings.node.root), **settings.sampling.optional_signals())
    for why in reader.absent.values():
        log.warning("not available here: %s", why)
    config = model_config(settings, reader.cores)
    model = state.load(state_file, reader.resources, config) or CapacityModel(reader.resources, config)
    recorder = TraceWriter(record, node, reader.cores, reader.resources) if record else None
    queue: SampleQueue[Tick] = SampleQueue()
    measurements = Measurements(reader.resources, reader.cores, float(memory_bytes()))
    rows = LiveRows(reader, queue, measurements, recorder)
    outlook.load(state_file.with_name(outlook.NAME), model)
    pipeline = Pipeline(model, wall=lambda t: t + time.time() - time.monotonic())
    feed, pace = ModelFeed(pipeline, rows, cost), Pace(allowance_of(settings))
    live = Live(
        reader,
        runtime,
        meters_of(settings, runtime, bool(record)),
        queue,
        cost,
        pace,
        settings.sampling,
        feed.memory,
        on_update,
    )
    return Source(
        reader.resources,
        reader.cores,
        feed,
        live,
        queue,
        pace,
        reader.absent,
        rows.close,
        rows.record_pods if record else None,
    )


def meters_of(settings: Settings, runtime: Runtime, record: bool) -> Meters | None:
    """Every Pod measured from its own counters, unless that is switched off, or neither the method nor a trace that is
    recorded needs it."""
    if not settings.pods.measure or (settings.model.method == "carico" and not record):
        return None
    return Meters(PodMeters(runtime.open_pod(io=settings.sampling.io), settings.pods.measure_period_s))


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def open_replay(
    settings: Settings,
    options: SourceOptions,
    cost: OwnCost,
    on_update: Callable[[], None],
    on_end: Callable[[], None],
) -> Source:
    """A recorded trace and a model that begins anew. `on_update` and `on_end` are called by the replaying thread."""
    path = options.replay
    assert path is not None
    header, _ = read_trace(path)
    queue: SampleQueue[TraceRow] = SampleQueue()
    model = CapacityModel(header.resources, model_config(settings, header.cores))
    feed = ModelFeed(Pipeline(model), queue.take, cost)
    again = lambda: read_trace(path)[1]  # noqa: E731
    replay = Replay(again, queue, options.speed, options.repeat, on_update, on_end)
    return Source(header.resources, header.cores, feed, replay, queue, Pace(allowance_of(settings)))
