"""The flow from readings to an estimate, the same live, in replay and in tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan

from carico_agent.core import CapacityModel, Estimate, ModelConfig
from carico_agent.node.sampling import PodMeasurements, Reading, TraceHeader, TraceRow, Usage, derive
from carico_agent.settings import Settings


def model_config(settings: Settings, cores: int) -> ModelConfig:
    """The core's parameters from the agent's settings."""
    model = settings.model
    return ModelConfig(
        cores=cores,
        estimator=model.estimator,
        limits=model.limits,
        prior_cost=model.prior_cost,
        max_pods=model.max_pods,
        forget=model.forget,
        settle_s=settings.pods.churn_s,
    )


HOST_S = 5.0
"""Time constant of what the node uses beside its Pods [s]: as long as one Pod's turn to be measured."""
THROTTLED = 0.02
"""Below this share of the time, quotas explain nothing."""


class HostUsage:
    """What the machine uses beside its Pods, while quotas stop some of them; None otherwise, then the model knows.

    A container that its own quota stops counts as waiting in the node's pressure. How much of it at most, the Pods'
    own counters say: the share of the time in which they were stopped. What remains of the node's usage beyond that
    and the Pods' demand is the host's, and at least the busy time that no Pod had.
    """

    def __init__(self, resources: tuple[str, ...], cores: int) -> None:
        self._cpu = resources.index("cpu") if "cpu" in resources else None
        self._unknown, self._cores = [nan] * len(resources), cores
        self._busy = self._usage = nan  # of the node, smoothed

    def take(self, elapsed_s: float, usage: Usage) -> None:
        if self._cpu is None:
            return
        share = min(1.0, elapsed_s / HOST_S)
        self._busy = smoothed(self._busy, usage.detail.get("cpu_utilisation", nan), share)
        self._usage = smoothed(self._usage, usage.values[self._cpu], share)

    def usage(self, pods: PodMeasurements) -> list[float] | None:
        if self._cpu is None or pods.throttled_ratio < THROTTLED or self._busy != self._busy:
            return None
        cpu = self._cpu
        wanted = sum(pod.usage[cpu] for pod in pods.samples if pod.usage[cpu] == pod.usage[cpu])
        busy = (self._busy * self._cores - pods.used_cores) / (2 * self._cores)
        explained = min(1.0, pods.throttled_ratio) / 2  # pressure is half of the cpu channel
        host = list(self._unknown)
        host[cpu] = min(max(0.0, busy, self._usage - wanted - explained), 1.0)
        return host


def smoothed(before: float, now: float, share: float) -> float:
    """An exponential mean; what is unknown changes nothing."""
    if now != now:
        return before
    return now if before != before else before + share * (now - before)


class Pipeline:
    """Takes readings in order, keeps the model. Not for two threads at once."""

    def __init__(self, model: CapacityModel, wall: Callable[[float], float] | None = None) -> None:
        """`wall` turns a reading's time into the wall clock's [unix s]; without it the model learns no days."""
        self.model, self._wall = model, wall
        self.usage: Usage | None = None
        self._previous: Reading | None = None
        self._host = HostUsage(model.resources, model.config.cores)

    def step(self, row: TraceRow) -> bool:
        """Take one reading; False for the first one, which has nothing to be compared with."""
        reading = row.reading
        previous, self._previous = self._previous, reading
        if previous is None or reading.t <= previous.t:
            return False
        self.usage = derive(previous, reading, self.model.resources)
        self.model.observe(reading.t, self.usage.values, row.pods, row.churn)
        self._host.take(reading.t - previous.t, self.usage)
        if row.measured is not None:
            wall_t = None if self._wall is None else self._wall(reading.t)
            self.model.observe_pods(reading.t, row.measured.samples, self._host.usage(row.measured), wall_t)
        return True


@dataclass(frozen=True, slots=True)
class Replayed:
    """One second of a replayed trace."""

    t: float
    estimate: Estimate
    usage: Usage


def replay(
    header: TraceHeader, rows: Iterator[TraceRow], settings: Settings, every_s: float = 1.0
) -> Iterator[Replayed]:
    """A recorded trace through the same code as the live agent, as fast as it goes."""
    pipeline = Pipeline(CapacityModel(header.resources, model_config(settings, header.cores)))
    due_t: float | None = None
    for row in rows:
        if not pipeline.step(row) or pipeline.usage is None:
            continue
        t = row.reading.t
        due_t = t + every_s if due_t is None else due_t
        if t >= due_t - 1e-6:
            yield Replayed(t, pipeline.model.estimate(), pipeline.usage)
            due_t += every_s * max(1, round((t - due_t) / every_s))
