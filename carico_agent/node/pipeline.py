"""The flow from readings to an estimate, the same live, in replay and in tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan

from carico_agent.core import CapacityModel, Estimate, ModelConfig
from carico_agent.node.sampling import PodMeasurements, Reading, TraceHeader, TraceRow, Usage, derive
from carico_agent.settings import Settings

MEMORY_LIMIT = 0.85
"""Where memory counts as full unless the settings say it; *CARICO* has 1 for every resource."""


def model_config(settings: Settings, cores: int) -> ModelConfig:
    """The core's parameters from the agent's settings."""
    model = settings.model
    by_hand, measured = "cpu" in model.limits, model.method == "measured"
    limits = {"memory": MEMORY_LIMIT, **model.limits} if measured else model.limits
    return ModelConfig(
        cores=cores,
        estimator=model.chosen_estimator,
        limits=limits if by_hand else {"cpu": model.cpu_limit / 2, **limits},
        service_limits={"cpu": min(model.cpu_limit, model.service_cpu_limit) / 2} if measured and not by_hand else {},
        prior_cost=model.prior_cost,
        max_pods=model.max_pods,
        forget=model.forget,
        settle_s=settings.churn_s,
    )


HOST_S = 5.0
"""Time constant of what the node uses beside its Pods [s]: as long as one Pod's turn to be measured."""
THROTTLED = 0.02
"""Below this share of the time, quotas explain nothing."""
SPARE_WAIT_CORES = 0.05
"""Below this much waiting that is no demand, the node's pressure is demand."""


class HostUsage:
    """What the machine uses beside its Pods, while quotas stop some of them or some wait in time that they would have
    slept; None otherwise, then the model knows.

    A container that its own quota stops counts as waiting in the node's pressure. How much of it at most, the Pods'
    own counters say: the share of the time in which they were stopped. What remains of the node's usage beyond that
    and the Pods' demand is the host's, and at least the busy time that no Pod had.

    Pods that work now and then and wait meanwhile count as waiting, too, though they want no more for it: two loops and
    eight threads at 6 % of a core read as 3.4 cores on a node of two, and want 2.5. The host has no part in what they
    wait: it is the busy time that no Pod had, and at most waits as long for it as Pods do for theirs.
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
        if self._cpu is None or self._busy != self._busy:
            return None
        cpu = self._cpu
        wanted = sum(pod.usage[cpu] for pod in pods.samples if pod.usage[cpu] == pod.usage[cpu])
        spare_cores = pods.waited_cores - (wanted * 2 * self._cores - pods.used_cores)
        if pods.throttled_ratio < THROTTLED and spare_cores < SPARE_WAIT_CORES:
            return None
        busy = max(0.0, (self._busy * self._cores - pods.used_cores) / (2 * self._cores))
        explained = min(1.0, pods.throttled_ratio) / 2  # pressure is half of the cpu channel
        most = self._usage - wanted - explained
        if spare_cores >= SPARE_WAIT_CORES and pods.used_cores > 0:
            most = min(most, busy * (1 + pods.waited_cores / pods.used_cores))
        host = list(self._unknown)
        host[cpu] = min(max(busy, most), 1.0)
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
