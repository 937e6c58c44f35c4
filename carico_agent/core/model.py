"""CapacityModel: usage and Pods go in, Pod-Capacity comes out. The embeddable heart of carico."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from carico_agent.core.config import ModelConfig
from carico_agent.core.ema import DynamicEma
from carico_agent.core.estimators import ESTIMATORS, Judgement, Situation, Span
from carico_agent.core.subspace import Subspace, capacity

STATE_VERSION = 1
ROUNDING = 1e-6
ECHO_S = 1.0
"""How long after Pods left a saturated reading may still be theirs [s]: the Dynamic EMA needs about 0.8 s to follow."""
DOUBT_IN_CHURN = 9.0
"""A batch taken on a node that never settles counts with three times the standard deviation."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many more Pods fit, at one instant. Unknown numbers are NaN, never guessed."""

    pod_capacity: float
    low: float
    high: float
    slots: float
    """Pods counted + Pod-Capacity, both of this instant: consumers subtract all they have assigned."""
    capacity: float
    baseline: float
    per_pod_cost: float
    cost_vector: tuple[float, ...]
    mode: str
    """learning (not yet to be trusted), measured (from usage) or predicted (usage is unreliable: churn)."""
    limiting: str | None
    pods: int
    sigma: float
    direction: tuple[float, ...]
    usage: tuple[float, ...]


class CapacityModel:
    """Believes usage = baseline + cost × Pods, learns both online, and says how many more Pods fit.

    `resources` names the channels of `usage`; `config` is a ModelConfig. Time is an argument, in seconds of any
    monotonic clock; nothing here reads a clock or a file.

    >>> m = CapacityModel(resources=("cpu", "memory"), config=ModelConfig(cores=4))
    >>> for tick in range(600):                                # a minute of three busy Pods after one of none
    ...     busy = tick >= 300
    ...     m.observe(tick * 0.1, [0.01 + 0.375 * busy, 0.2], pods=3 * busy)
    >>> e = m.estimate()
    >>> e.mode, e.limiting, round(e.pod_capacity, 1), round(e.slots, 1)
    ('measured', 'cpu', 4.9, 7.9)

    Source: paper 000, chapters 3 and 4; DESIGN.md §2 for what differs and why.
    """

    def __init__(self, resources: Sequence[str] = ("cpu", "memory"), config: ModelConfig | None = None) -> None:
        self.resources = tuple(resources)
        self.config = config or ModelConfig()
        if not self.resources or len(set(self.resources)) != len(self.resources):
            raise ValueError(f"resources must be distinct names, at least one; got {self.resources}")
        if problems := self.config.problems(self.resources):
            raise ValueError("; ".join(problems))
        if self.config.estimator not in ESTIMATORS:
            raise ValueError(f"estimator {self.config.estimator!r} is not one of {', '.join(ESTIMATORS)}")
        c, m = self.config, len(self.resources)
        self._limits = tuple(c.limit(name) for name in self.resources)
        self._ema = DynamicEma(m, c.ema_slow_s, c.ema_fast_s, c.ema_patience_s, c.ema_band)
        self._estimator = ESTIMATORS[c.estimator](c, self.resources)
        self._local = Subspace.empty(m)
        self._global: tuple[Subspace, float] | None = None
        self._workload = self._local
        self._unit: tuple[float, ...] = (0.0,) * m  # the workload's σ₁u₁
        self.restart_clock()

    def restart_clock(self) -> None:
        """Begin a new clock (after a reboot or a pause): what was learned stays, what was under way is dropped."""
        m = len(self.resources)
        self._t: float | None = None
        self._pods: int | None = None
        self._settled_t = -inf
        self._fell_t = -inf  # when a Pod left last
        self._unsettled = False
        self._seen_s = [inf] * m  # how long ago each resource was last known
        self._batch: list[list[float]] = []  # smoothed samples, for the subspace
        self._raw: list[list[float]] = []  # the same as they came, for the estimator
        self._batch_pods = 0
        self._batch_t = 0.0
        self._batch_clean = True
        self._halted_s = 0.0

    # ---- in

    def observe(self, t: float, usage: Sequence[float], pods: int, churn: bool = False) -> None:
        """Take one sample: `t` [s], `usage` in [0,1] or NaN per resource, Pods now, and whether containers churn."""
        sample = self._validated(t, usage, pods)
        elapsed_s = t - self._t if self._t is not None else 0.0
        self._t = t
        if elapsed_s > 2 * self.config.batch_s:  # a gap (suspend, hang): the batch under way tells nothing any more
            self._open_batch(t)
        elif not self._batch:
            self._batch_t = t - elapsed_s
        smoothed = self._ema.update(elapsed_s, sample)
        self._seen_s = [0.0 if x == x else s + elapsed_s for x, s in zip(sample, self._seen_s, strict=True)]
        self._pods = pods if self._pods is None else self._pods
        self.count(t, pods, churn)
        self._batch.append(list(smoothed))
        self._raw.append(sample)
        self._batch_pods += pods
        self._batch_clean &= not self._unsettled
        if t - self._batch_t >= self.config.batch_s - elapsed_s / 2:
            self._close_batch(t)

    def count(self, t: float, pods: int, churn: bool = False) -> None:
        """The number of Pods changed at `t`, between two samples: the next estimate counts with it at once."""
        if self._t is None or t < self._t:
            return  # the next sample will bring it
        if pods != self._pods:
            self._fell_t = t if pods < (self._pods or 0) else self._fell_t
            self._settled_t = t + self.config.settle_s
            self._pods = pods
        self._unsettled = churn or t < self._settled_t

    def _validated(self, t: float, usage: Sequence[float], pods: int) -> list[float]:
        if len(usage) != len(self.resources):
            raise ValueError(f"{len(usage)} values of usage for {len(self.resources)} resources {self.resources}")
        if not isfinite(t):
            raise ValueError(f"time {t} is not finite")
        if self._t is not None and t < self._t:
            raise ValueError(f"time went backwards: {t} after {self._t}")
        if pods != int(pods) or pods < 0:
            raise ValueError(f"pods: {pods} is not a count")
        sample = []
        for name, value in zip(self.resources, usage, strict=True):
            if value == value and not -ROUNDING <= value <= 1 + ROUNDING:
                raise ValueError(f"{name}: usage {value} is not in [0, 1]")
            sample.append(min(max(float(value), 0.0), 1.0) if value == value else nan)
        return sample

    def _open_batch(self, t: float) -> None:
        self._batch, self._raw = [], []
        self._batch_pods = 0
        self._batch_t = t
        self._batch_clean = True

    def _close_batch(self, t: float) -> None:
        """Once per batch: the subspace takes it in, and, if the node was settled, the estimator learns from it."""
        c, length_s = self.config, t - self._batch_t
        smoothed = [[y if y == y else 0.0 for y in row] for row in self._batch]  # what is unknown shows nothing
        self._local = self._local.take(np.array(smoothed).T, c.forget, c.rank)
        self._renew_workload()
        self._halted_s = 0.0 if self._batch_clean else self._halted_s + length_s
        if self._batch_clean or self._halted_s > c.halt_most_s:
            typical = [_typical(column) for column in zip(*self._raw, strict=True)]
            seen = Situation(typical, self._unit, self._batch_pods / len(self._batch))
            self._estimator.learn(seen, length_s, 1.0 if self._batch_clean else DOUBT_IN_CHURN)
        self._open_batch(t)

    def _renew_workload(self) -> None:
        before = self._unit
        self._workload = self._local
        if self._global is not None:
            self._workload = self._local.merge(*self._global)
        self._unit = tuple(self._workload.unit.tolist())
        self._estimator.change_unit(before, self._unit, self._known_usage())

    # ---- out

    def _known_usage(self) -> list[float]:
        """Smoothed usage; NaN where nothing was heard for longer than a batch."""
        return [y if s <= self.config.batch_s else nan for y, s in zip(self._ema.values, self._seen_s, strict=True)]

    def estimate(self) -> Estimate:
        """The answer for the last sample. Changes nothing."""
        usage, pods = self._known_usage(), self.pods
        judgement = self._estimator.judge(Situation(usage, self._unit, pods))
        span = judgement.predicted if self._unsettled else judgement.measured
        if self._estimator.heeds_saturation and self._surely_full(usage):
            span = min(span, judgement.measured, key=lambda room: room.value)
        span, limiting = self._bounded(span, pods)
        return Estimate(
            pod_capacity=span.value,
            low=span.low,
            high=span.high,
            slots=pods + span.value,
            capacity=capacity(usage, self._unit, self._limits)[0],
            baseline=judgement.baseline,
            per_pod_cost=judgement.per_pod_cost,
            cost_vector=judgement.cost_vector,
            mode=self._mode(judgement, usage),
            limiting=limiting,
            pods=pods,
            sigma=self._workload.magnitude,
            direction=tuple(self._workload.direction.tolist()),
            usage=tuple(usage),
        )

    def _surely_full(self, usage: list[float]) -> bool:
        """A resource is saturated, and not as an echo of Pods that have just left: no prediction argues with that.

        Why: where Pods come and go without a pause usage is never settled, and a cost learned from light Pods would
        keep the node open while heavy ones fill it (lab/REPORT.md, "A workload that suddenly turns heavy").
        """
        return (self._t or 0.0) >= self._fell_t + ECHO_S and any(y >= self.config.ceiling for y in usage)

    def _mode(self, judgement: Judgement, usage: list[float]) -> str:
        if not judgement.trusted or any(y != y for y in usage):
            return "learning"
        return "predicted" if self._unsettled else "measured"

    def _bounded(self, span: Span, pods: int) -> tuple[Span, str | None]:
        limiting = self.resources[span.limiting] if span.limiting is not None else None
        if self.config.max_pods is None:
            return span, limiting
        most = max(0, self.config.max_pods - pods)
        if span.value > most:
            limiting = "pods"
        if span.value != span.value:
            return span, limiting
        return Span(min(span.value, most), min(span.low, most), min(span.high, most)), limiting

    # ---- what nodes tell each other

    @property
    def pods(self) -> int:
        """Pods counted last."""
        return self._pods or 0

    @property
    def subspace(self) -> Subspace:
        """This node's own recent usage, never mixed with what others said: this is what may be sent to them."""
        return self._local

    @property
    def workload(self) -> Subspace:
        """The workload Capacity is counted in: the local subspace, merged with the cluster's where known."""
        return self._workload

    def merge(self, other: Subspace, weight: float) -> None:
        """Count Capacity in the cluster's unit too: from now on the workload is merge(local, other, weight)."""
        self._local.merge(other, weight)  # raises on a bad weight or size before anything changes
        self._global = (other, float(weight))
        self._renew_workload()

    @property
    def local_cost(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What one Pod costs here by this node's own evidence, and the precision (1/variance) of that."""
        return self._estimator.local_cost()

    def learn_cost(self, cost: Sequence[float], precision: Sequence[float]) -> None:
        """What one Pod costs elsewhere, and how precisely that is known; replaces what was said before."""
        if len(cost) != len(self.resources) or len(precision) != len(self.resources):
            raise ValueError(f"a cost and a precision for each of {self.resources} are needed")
        if not all(0 <= c <= 1 for c in cost) or not all(0 <= p < inf for p in precision):
            raise ValueError(f"cost {list(cost)} must be in [0, 1] and precision {list(precision)} at least 0")
        self._estimator.learn_cost(cost, precision)

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        """Everything, JSON-able: a restored model gives the same answers to the same samples."""
        return {
            "version": STATE_VERSION,
            "resources": list(self.resources),
            "config": self.config.state(),
            "ema": self._ema.state(),
            "subspace": self._local.state(),
            "global": [self._global[0].state(), self._global[1]] if self._global else None,
            "workload": self._workload.state(),
            "estimator": self._estimator.state(),
            "clock": {
                "t": self._t,
                "pods": self._pods,
                "unsettled": self._unsettled,
                "halted_s": self._halted_s,
                "settled_t": _finite(self._settled_t),
                "fell_t": _finite(self._fell_t),
                "seen_s": [_finite(s) for s in self._seen_s],
                "batch": [[_finite(y) for y in column] for column in self._batch],
                "batch_t": self._batch_t,
                "raw": [[_finite(y) for y in column] for column in self._raw],
                "batch_pods": self._batch_pods,
                "batch_clean": self._batch_clean,
            },
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "CapacityModel":
        """The model that `state` was taken from. Raises ValueError on a state that is damaged or of another version."""
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise ValueError(f"not a model state of version {STATE_VERSION}")
        try:
            model = cls(tuple(state["resources"]), ModelConfig(**state["config"]))
            model._restore(state)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"damaged model state: {error!r}") from error
        return model

    def _restore(self, state: Mapping[str, Any]) -> None:
        m, clock = len(self.resources), state["clock"]
        self._ema.restore(state["ema"])
        self._local = Subspace.from_state(state["subspace"], m)
        self._workload = Subspace.from_state(state["workload"], m)
        self._unit = tuple(self._workload.unit.tolist())
        if state["global"]:
            self._global = (Subspace.from_state(state["global"][0], m), float(state["global"][1]))
        self._estimator.restore(state["estimator"])
        self._t, self._pods, self._unsettled = clock["t"], clock["pods"], bool(clock["unsettled"])
        self._settled_t = -inf if clock["settled_t"] is None else float(clock["settled_t"])
        fell_t = clock.get("fell_t")  # missing in states saved before it was remembered
        self._fell_t = -inf if fell_t is None else float(fell_t)
        self._seen_s = [inf if s is None else float(s) for s in clock["seen_s"]]
        self._batch = [[nan if y is None else float(y) for y in column] for column in clock["batch"]]
        self._raw = [[nan if y is None else float(y) for y in column] for column in clock["raw"]]
        self._batch_t, self._batch_pods = float(clock["batch_t"]), int(clock["batch_pods"])
        self._batch_clean, self._halted_s = bool(clock["batch_clean"]), float(clock["halted_s"])


def _typical(values: Sequence[float]) -> float:
    """The mean of the middle half: start spikes do not move it, and noise cut off at 0 or 1 hardly biases it (small
    Pods on 8 cores: 0.20 Pods of RMS error, 0.44 with the plain mean). NaN when less than half is known."""
    known = sorted(y for y in values if y == y)
    if 2 * len(known) < len(values) or not known:
        return nan
    cut = len(known) // 4
    middle = known[cut : len(known) - cut]
    return sum(middle) / len(middle)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
