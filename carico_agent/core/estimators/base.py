"""The contract of every estimator: settled batches in, a judgement out.

An estimator learns what a node looks like without Pods and what one Pod costs, and judges how many more fit. It is
called once per settled batch, never during churn. A new estimator is a file here, a row in ESTIMATORS, and passes the
same battery (tests/core/test_estimators.py): cold start, unknown values, input untouched, bounded memory, save and
restore, change of unit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from carico_agent.core.config import ModelConfig

MEASURED, CARICO = METHODS = ("measured", "carico")
"""measured: every Pod is measured where it can be, and the node-wide filter answers where it cannot; a saturated
resource overrules a prediction. carico: *CARICO* as written, which knows the node's usage and the number of Pods."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What an estimator is shown: usage per resource (NaN = unknown), the workload's unit σ₁u₁, and the Pods."""

    usage: Sequence[float]
    unit: Sequence[float]
    pods: float


@dataclass(frozen=True, slots=True)
class Span:
    """A number of Pods and the interval it is believed to lie in (two standard deviations)."""

    value: float
    low: float
    high: float
    limiting: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """How many more Pods fit: from usage (measured) and from what was learned (predicted), and why."""

    measured: Span
    predicted: Span
    baseline: float
    per_pod_cost: float
    cost_vector: tuple[float, ...]
    trusted: bool


class Estimator(ABC):
    """Learns Baseline and Cost, in whatever space it likes."""

    name: ClassVar[str]
    method: ClassVar[str] = MEASURED
    """The method it belongs to: one of METHODS."""

    def __init__(self, config: ModelConfig, resources: tuple[str, ...]) -> None:
        self.config = config
        self.resources = resources
        self.limits = tuple(config.limit(name) for name in resources)
        self.prior = config.cost_prior(resources)

    @abstractmethod
    def learn(self, seen: Situation, elapsed_s: float, doubt: float = 1.0) -> None:
        """Take one batch, `elapsed_s` after the last; `doubt` > 1 trusts it less."""

    @abstractmethod
    def judge(self, seen: Situation) -> Judgement:
        """How many more Pods fit in this situation. Changes nothing."""

    def change_unit(self, before: Sequence[float], after: Sequence[float], usage: Sequence[float]) -> None:
        """The workload's unit σ₁u₁ changed. Only estimators that count in it and know how to convert care."""
        return

    def local_cost(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What this node has learned by itself: cost per Pod and its precision (1/variance), per resource."""
        return self.prior, (0.0,) * len(self.resources)

    def learn_cost(self, cost: Sequence[float], precision: Sequence[float]) -> None:
        """What other nodes know about the cost of a Pod. Only estimators in resource space can use it."""
        return

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that was learned, JSON-able."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
