"""resource-space: usage itself is explained, y_i = b_i + c_i·Pods, in the fixed unit [0,1]. The default.

Why: the paper's Capacity k is counted in units of σ₁u₁, which change with every model update, so its Baseline and
Cost are soon in the wrong currency (`make accuracy` shows all five estimators side by side). Usage has no such
problem: it survives model changes and overload, and a wrong prior is unlearned.

Why the joint filter and not two scalar ones: while the number of Pods stays the same, base and cost cannot be
separated. Only the covariance remembers that; two scalar filters grow sure of whatever split they happened to make. On
a node that is never idle, with a prior wrong by 4, they were off by 3.1 Pods RMS, the joint filter by 0.06
(lab/sim/accuracy.py, "never idle"). The oscillation the paper saw in its joint filter came from the changing unit.
"""

from collections.abc import Mapping, Sequence
from math import inf, nan, sqrt
from typing import Any

from carico_agent.core.config import ModelConfig
from carico_agent.core.estimators.base import Estimator, Judgement, Situation, Span
from carico_agent.core.kalman import JointKalman

MIN_COST = 1e-4
"""No Pod is free: 0.01 % of the node, so that Pod-Capacity stays finite."""

MIN_BASE = -1.0
"""The base is where the line of usage over Pods meets zero Pods, and lies below 0 where idle Pods came first."""

TRUST_RATIO = 0.25
"""The cost deserves trust once its standard deviation is below a quarter of it."""

BASE_DRIFT = 0.001
"""How far the usage without Pods wanders per √s."""

COST_DRIFT_RATIO = 0.002
"""How far the cost of a Pod wanders per √s, as a share of itself; jumps are the business of SURPRISE."""

SURPRISE = 9.0
"""A squared residual beyond this many variances, twice in a row, means that the workload has changed."""

MISFIT_S, MAX_MISFIT = 50.0, 1.3
"""Squared residuals in variances, averaged over so many batches of a second: about 0.2 where all Pods are alike, up to
0.8 where they differ by a third or the host steps. Beyond the latter usage is no line over Pods (several workloads,
Pods that ramp up) and the cost deserves no trust: trusted and wrong 5 % of the time in lab/sim/nodes.py, 21 % without
it."""

ENOUGH_BATCHES = 3
"""Settled seconds with Pods before this node believes its own cost."""

SPREAD_RATIO = 0.2
"""However sure the cluster is, other nodes' Pods differ from ours by this much."""


class Channel:
    """One resource: what the node uses without Pods, and what one Pod adds: the belief x = (base, cost)."""

    def __init__(self, config: ModelConfig, prior: float) -> None:
        self._config = config
        self._prior = prior
        base, base_sd = (0.02, 0.05) if prior > 0 else (0.1, 0.3)
        self.belief = JointKalman(base, prior, base_sd**2, max(prior, 0.1) ** 2)
        self.cluster: tuple[float, float] | None = None  # the others' cost and its variance
        self.batches = 0  # with Pods running: evidence about the cost
        self.surprises = 0
        self.misfit = 0.0  # squared residuals in variances, lately

    @property
    def base(self) -> float:
        return self.belief.a

    @property
    def cost(self) -> float:
        return self.belief.b

    def learn(self, y: float, pods: float, elapsed_s: float, doubt: float) -> None:
        self._drift(pods, elapsed_s)
        expected = self.base + self.cost * pods
        if y >= self._config.ceiling and (expected >= y or pods <= 0):
            return  # saturated: usage is at least this, so only an expectation below it is wrong
        noise = self._config.noise_sd**2 * doubt
        residual, variance = y - expected, self.belief.variance(pods) + noise
        self.misfit += (min(residual**2 / variance, SURPRISE) - self.misfit) / MISFIT_S
        self._mind_surprise(residual, variance, pods)
        self.belief.update(y, pods, noise)  # y = b + c·n
        self.belief.bound(MIN_BASE, 1.0, 0.0)
        self.batches += pods > 0

    def _drift(self, pods: float, elapsed_s: float) -> None:
        base_sd, cost_sd = BASE_DRIFT, COST_DRIFT_RATIO * max(self.cost, MIN_COST)
        self.belief.predict(base_sd**2 * elapsed_s, cost_sd**2 * elapsed_s)
        if pods <= 0 and self._prior > 0:  # nothing is seen of the cost: it returns to the prior from both sides
            step = self.cost * self._config.idle_drift_per_s * elapsed_s
            towards = (
                min(self._prior, self.cost + step) if self.cost < self._prior else max(self._prior, self.cost - step)
            )
            self.belief.b = towards

    def _mind_surprise(self, residual: float, variance: float, pods: float) -> None:
        """A residual that stays far outside its variance: forget how sure we were of what must have changed.

        Pods that turn heavy are believed at once, Pods that turn light only as fast as the filter goes by itself:
        one idle Pod must not open a node for ten busy ones.
        """
        self.surprises = self.surprises + 1 if residual**2 > SURPRISE * variance else 0
        if self.surprises < 2:
            return
        if pods <= 0:
            self.belief.a_p += residual**2
        elif residual > 0:
            self.belief.b_p += (residual / pods) ** 2

    def cost_belief(self) -> tuple[float, float]:
        """The cost of one Pod and its variance: own evidence and the cluster's, weighted by precision."""
        x, p = self.cost, self.belief.b_p
        if self.cluster is None:
            return x, p
        theirs, variance = self.cluster
        if not self.batches:
            return theirs, variance
        share = p / (p + variance)
        return x + share * (theirs - x), p * (1 - share)

    def precision(self) -> float:
        """How sure this node alone is of the cost: 1/variance, 0 without evidence."""
        return 1 / self.belief.b_p if self.batches >= ENOUGH_BATCHES else 0.0

    def usage_variance(self, pods: float) -> float:
        """Variance of b + c·Pods."""
        return self.belief.variance(pods)

    def state(self) -> list[Any]:
        k = self.belief
        covariance = [[k.a_p, k.ab_p], [k.ab_p, k.b_p]]
        return [[k.a, k.b], covariance, self.batches, self.surprises, self.cluster, self.misfit]

    def restore(self, state: Sequence[Any]) -> None:
        (a, b), ((a_p, ab_p), (_, b_p)), batches, surprises, cluster, *misfit = state  # older states have no misfit
        self.belief = JointKalman(*map(float, (a, b, a_p, b_p, ab_p)))
        self.belief.bound(MIN_BASE, 1.0, 0.0)  # states of earlier versions may lie outside
        self.batches, self.surprises = int(batches), int(surprises)
        self.cluster = (float(cluster[0]), float(cluster[1])) if cluster else None
        self.misfit = float(misfit[0]) if misfit else 0.0


class ResourceSpace(Estimator):
    """One Kalman filter of base and cost per resource; Pod-Capacity = min_i (limit_i − y_i)/c_i."""

    name = "resource-space"

    def __init__(self, config: ModelConfig, resources: tuple[str, ...]) -> None:
        super().__init__(config, resources)
        self.channels = [Channel(config, prior) for prior in self.prior]

    def learn(self, seen: Situation, elapsed_s: float, doubt: float = 1.0) -> None:
        for channel, y in zip(self.channels, seen.usage, strict=True):
            if y == y:
                channel.learn(y, seen.pods, elapsed_s, doubt)

    def judge(self, seen: Situation) -> Judgement:
        measured, predicted = [], []
        for i, (channel, y, limit) in enumerate(zip(self.channels, seen.usage, self.limits, strict=True)):
            if y != y:
                continue
            cost, cost_p = channel.cost_belief()
            measured.append(_room(limit - y, self.config.noise_sd**2, cost, cost_p, i))
            expected = channel.base + cost * seen.pods
            predicted.append(_room(limit - expected, channel.usage_variance(seen.pods), cost, cost_p, i))
        first = _smallest(measured)
        costs = tuple(channel.cost_belief()[0] for channel in self.channels)
        return Judgement(first, _smallest(predicted), nan, nan, costs, self._trusted(first.limiting))

    def _trusted(self, limiting: int | None) -> bool:
        if limiting is None:
            return False
        channel = self.channels[limiting]
        cost, variance = channel.cost_belief()
        evidence = channel.batches >= ENOUGH_BATCHES or channel.cluster is not None
        return evidence and sqrt(variance) < TRUST_RATIO * max(cost, MIN_COST) and channel.misfit <= MAX_MISFIT

    def local_cost(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        costs = tuple(channel.cost for channel in self.channels)
        return costs, tuple(channel.precision() for channel in self.channels)

    def learn_cost(self, cost: Sequence[float], precision: Sequence[float]) -> None:
        for channel, theirs, weight in zip(self.channels, cost, precision, strict=True):
            spread = (SPREAD_RATIO * max(theirs, MIN_COST)) ** 2
            channel.cluster = (theirs, 1 / weight + spread) if weight > 0 else None

    def state(self) -> dict[str, Any]:
        return {"channels": [channel.state() for channel in self.channels]}

    def restore(self, state: Mapping[str, Any]) -> None:
        for channel, saved in zip(self.channels, state["channels"], strict=True):
            channel.restore(saved)


def _room(free: float, free_p: float, cost: float, cost_p: float, i: int) -> Span:
    """free/cost with the interval that two standard deviations of both allow."""
    cost_sd, free_sd = 2 * sqrt(cost_p), 2 * sqrt(free_p)
    value = max(0.0, free) / max(cost, MIN_COST)
    low = max(0.0, free - free_sd) / max(cost + cost_sd, MIN_COST)
    high = max(0.0, free + free_sd) / max(cost - cost_sd, MIN_COST)
    return Span(value, min(low, value), max(high, value), i)


def _smallest(rooms: list[Span]) -> Span:
    """The resource that runs out first decides; the bounds are those of all resources together."""
    if not rooms:
        return Span(float("nan"), 0.0, inf)
    first = min(rooms, key=lambda room: room.value)
    return Span(first.value, min(r.low for r in rooms), min(r.high for r in rooms), first.limiting)
