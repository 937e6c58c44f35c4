"""The paper's three estimators, in its own currency: Capacity k = Baseline − Cost × Pods.

They are kept as written, for comparison, and `redenominated` repairs the dual one: k is counted in units of σ₁u₁, so
whenever the model changes, everything learned so far is converted by the rate at which k itself changed.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import Any

from carico_agent.core.config import ModelConfig
from carico_agent.core.estimators.base import CARICO, Estimator, Judgement, Situation, Span
from carico_agent.core.kalman import JointKalman, ScalarKalman
from carico_agent.core.subspace import capacity

NOISE_RATIO, DRIFT_RATIO = 0.2, 0.2
"""Standard deviation of k, as a share of the Baseline, and how far Baseline and Cost wander per √s, as a share of
themselves. The document prints neither. They must be wide: the unit of k changes with the load, and filters that are
sure of themselves keep a Baseline in a unit that is gone. With 0.05 and 0.01 a Pod took 10.5 ± 4.0 s instead of the
document's 7.7 ± 1.0 (docs/paper.md)."""

HALT_S = 0.5
"""For how long after a container came or went nothing is learned [s]. The document halts for the bursts of containers,
about 0.2 s; with the 1.5 s of the method measured a busy node would never learn."""

MIN_COST_RATIO = 1e-3
"""Cost is at least this share of the Baseline, so that Pod-Capacity stays finite."""


class CapacitySpace(Estimator):
    """What the four share: k, the cold start, the halt while k = 0, and the judgement."""

    method = CARICO

    def __init__(self, config: ModelConfig, resources: tuple[str, ...]) -> None:
        super().__init__(config, resources)
        self.baseline = ScalarKalman(0.0, 0.0)
        self.cost = ScalarKalman(0.0, 0.0)
        self.batches = 0
        self.started = False

    def learn(self, seen: Situation, elapsed_s: float, doubt: float = 1.0) -> None:
        k, _ = capacity(seen.usage, seen.unit, self.limits)
        if not isfinite(k):
            return
        if not self.started:
            self._start(k, seen)
        if seen.pods <= 0:
            # Cost drifts up slowly while no Pod runs (*CARICO*, 5.9), but a Pod never costs more than the whole node.
            self.cost.x = min(self.cost.x * (1 + self.config.idle_drift_per_s * elapsed_s), max(self.baseline.x, k))
        if k > 0:  # at k = 0 more Pods no longer show: halt (*CARICO*, 4.2.4)
            self.learn_capacity(k, seen.pods, elapsed_s, doubt)
            self.batches += seen.pods > 0

    def _start(self, k: float, seen: Situation) -> None:
        """Cold start: one Pod costs what the prior says, in today's units."""
        per_pod = [c / u for c, u in zip(self.prior, seen.unit, strict=True) if u > 1e-9 and c > 0]
        cost = max(per_pod, default=k or 1.0)
        baseline = k + cost * seen.pods
        self.cost = ScalarKalman(cost, cost**2)
        self.baseline = ScalarKalman(baseline, (0.5 * baseline) ** 2)
        self.started = True

    @abstractmethod
    def learn_capacity(self, k: float, pods: float, elapsed_s: float, doubt: float) -> None:
        """Take one Capacity k > 0, made with `pods` running."""

    def noise(self, doubt: float) -> float:
        return (NOISE_RATIO * max(self.baseline.x, 1e-9)) ** 2 * doubt

    def drift(self, belief: ScalarKalman, elapsed_s: float) -> float:
        return (DRIFT_RATIO * belief.x) ** 2 * elapsed_s

    def cost_now(self) -> float:
        return max(self.cost.x, MIN_COST_RATIO * self.baseline.x, 1e-9)

    def judge(self, seen: Situation) -> Judgement:
        k, limiting = capacity(seen.usage, seen.unit, self.limits)
        cost = self.cost_now()
        cost_sd = 2 * sqrt(max(self.cost.p, 0.0))
        lower, upper = cost + cost_sd, max(cost - cost_sd, MIN_COST_RATIO * self.baseline.x, 1e-9)
        if not isfinite(k) or not self.started:
            unknown = Span(float("nan"), 0.0, float("inf"), limiting)
            return Judgement(unknown, unknown, self.baseline.x, cost, self._cost_vector(seen.unit), False)
        # (3.5) Pod-Capacity = k / Cost; (3.6) Pod-Capacity = Baseline / Cost − Pods
        measured = Span(k / cost, k / lower, k / upper, limiting)
        predicted = self._span(self.baseline.x, cost, lower, upper, seen.pods, limiting)
        trusted = self.batches >= 3 and cost_sd / 2 < cost
        return Judgement(measured, predicted, self.baseline.x, cost, self._cost_vector(seen.unit), trusted)

    @staticmethod
    def _span(baseline: float, cost: float, lower: float, upper: float, pods: float, limiting: int | None) -> Span:
        value, low, high = (max(0.0, baseline / c - pods) for c in (cost, lower, upper))
        return Span(value, low, high, limiting)

    def _cost_vector(self, unit: Sequence[float]) -> tuple[float, ...]:
        return tuple(self.cost_now() * u for u in unit)

    def state(self) -> dict[str, Any]:
        beliefs = [self.baseline.x, self.baseline.p, self.cost.x, self.cost.p]
        return {"beliefs": beliefs, "batches": self.batches, "started": self.started}

    def restore(self, state: Mapping[str, Any]) -> None:
        base_x, base_p, cost_x, cost_p = map(float, state["beliefs"])
        self.baseline, self.cost = ScalarKalman(base_x, base_p), ScalarKalman(cost_x, cost_p)
        self.batches, self.started = int(state["batches"]), bool(state["started"])


class PaperDual(CapacitySpace):
    """Two separate 1-D filters, one per unknown, each taking the other's uncertainty as noise (*CARICO*, 4.2.4)."""

    name = "paper-dual"

    def learn_capacity(self, k: float, pods: float, elapsed_s: float, doubt: float) -> None:
        self.baseline.predict(self.drift(self.baseline, elapsed_s))
        self.cost.predict(self.drift(self.cost, elapsed_s))
        noise, base_x, base_p = self.noise(doubt), self.baseline.x, self.baseline.p
        # B: z = k + C·n, H = 1;   C: z = B − k, H = n
        self.baseline.update(k + self.cost.x * pods, 1.0, noise + pods**2 * self.cost.p)
        if pods > 0:
            self.cost.update(base_x - k, pods, noise + base_p)
        self.baseline.x, self.cost.x = max(0.0, self.baseline.x), max(0.0, self.cost.x)


class PaperJoint(CapacitySpace):
    """One 2-D filter for both unknowns, with their covariance (*CARICO*, 4.2.4; it oscillates, figure 4.9)."""

    name = "paper-joint"

    def __init__(self, config: ModelConfig, resources: tuple[str, ...]) -> None:
        super().__init__(config, resources)
        self.covariance = 0.0

    def learn_capacity(self, k: float, pods: float, elapsed_s: float, doubt: float) -> None:
        joint = JointKalman(self.baseline.x, self.cost.x, self.baseline.p, self.cost.p, self.covariance)
        joint.predict(self.drift(self.baseline, elapsed_s), self.drift(self.cost, elapsed_s))
        joint.update(k, -pods, self.noise(doubt))  # k = B − C·n
        self.baseline = ScalarKalman(max(0.0, joint.a), joint.a_p)
        self.cost = ScalarKalman(max(0.0, joint.b), joint.b_p)
        self.covariance = joint.ab_p

    def state(self) -> dict[str, Any]:
        return super().state() | {"covariance": self.covariance}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.covariance = float(state["covariance"])


class PaperDelta(CapacitySpace):
    """One 1-D filter on changes: Δk = −ΔPods × Cost. It knows no Baseline, so the last settled k stands in."""

    name = "paper-delta"

    def __init__(self, config: ModelConfig, resources: tuple[str, ...]) -> None:
        super().__init__(config, resources)
        self.last: tuple[float, float] | None = None  # the last settled k and its Pods

    def learn_capacity(self, k: float, pods: float, elapsed_s: float, doubt: float) -> None:
        self.cost.predict(self.drift(self.cost, elapsed_s))
        if self.last is not None and pods != self.last[1]:
            self.cost.update(self.last[0] - k, pods - self.last[1], 2 * self.noise(doubt))
            self.cost.x = max(0.0, self.cost.x)
        self.last = (k, pods)
        self.baseline = ScalarKalman(k + self.cost.x * pods, self.noise(doubt) + pods**2 * self.cost.p)

    def state(self) -> dict[str, Any]:
        return super().state() | {"last": self.last}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.last = tuple(map(float, state["last"])) if state["last"] else None  # type: ignore[assignment]


class Redenominated(PaperDual):
    """The paper's dual filter with its beliefs converted at every change of unit."""

    name = "redenominated"

    def change_unit(self, before: Sequence[float], after: Sequence[float], usage: Sequence[float]) -> None:
        # f = k_new/k_old at the same usage. k = 0 has no rate, so the rate is taken where nothing is saturated.
        reference = [min(y, 0.5 * limit) for y, limit in zip(usage, self.limits, strict=True)]
        old, new = capacity(reference, before, self.limits)[0], capacity(reference, after, self.limits)[0]
        if not (isfinite(old) and isfinite(new) and old > 0 and new > 0):
            return
        factor = new / old
        for belief in (self.baseline, self.cost):
            belief.x, belief.p = belief.x * factor, belief.p * factor**2
