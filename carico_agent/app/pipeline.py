"""The flow from readings to an estimate, the same live, in replay and in tests."""

from collections.abc import Iterator
from dataclasses import dataclass

from carico_agent.core import CapacityModel, Estimate, ModelConfig
from carico_agent.settings import Settings
from carico_agent.telemetry import Reading, TraceHeader, TraceRow, Usage, derive


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


class Pipeline:
    """Takes readings in order, keeps the model. Not for two threads at once."""

    def __init__(self, model: CapacityModel) -> None:
        self.model = model
        self.usage: Usage | None = None
        self._previous: Reading | None = None

    def step(self, row: TraceRow) -> bool:
        """Take one reading; False for the first one, which has nothing to be compared with."""
        reading = row.reading
        previous, self._previous = self._previous, reading
        if previous is None or reading.t <= previous.t:
            return False
        self.usage = derive(previous, reading, self.model.resources)
        self.model.observe(reading.t, self.usage.values, row.pods, row.churn)
        if row.measured is not None:
            self.model.observe_pods(reading.t, row.measured)
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
