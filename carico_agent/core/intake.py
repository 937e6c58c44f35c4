"""Samples come in ten times a second: checked, smoothed, collected into batches of a second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

from carico_agent.core.config import ModelConfig
from carico_agent.core.ema import DynamicEma

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Batch:
    """About a second of samples, one row each: as they came, and smoothed."""

    length_s: float
    smoothed: list[list[float]]
    raw: list[list[float]]
    pods: float
    """Mean number of Pods."""
    clean: bool
    """The number of Pods did not change, and no container churned."""

    def typical(self) -> list[float]:
        return [_typical(column) for column in zip(*self.raw, strict=True)]


class Intake:
    """The clock side of the model: what was seen last, and the batch under way."""

    def __init__(self, resources: tuple[str, ...], config: ModelConfig) -> None:
        c = config
        self._resources = resources
        self._config = config
        self._ema = DynamicEma(len(resources), c.ema_slow_s, c.ema_fast_s, c.ema_switch_s, c.ema_band)
        self.restart()

    def restart(self) -> None:
        """Begin a new clock: what was under way is dropped, and usage is what is read from now on."""
        self._ema.forget()
        self.t: float | None = None
        self.counted: int | None = None
        self.unsettled = False
        self.fell_t = -inf  # when a Pod left last
        self.settled_t = -inf
        self.calm = [nan] * len(self._resources)  # smoothed usage before Pods changed
        self.calm_pods = 0
        self.calm_t = -inf  # when that was
        self.rose = 0  # Pods that came since, whichever others left
        self.jump = [0.0] * len(self._resources)  # how far usage moved while Pods changed, until taken
        self._seen_s = [inf] * len(self._resources)  # how long ago each resource was last known
        self._open(0.0)

    def take(self, t: float, usage: Sequence[float], pods: int, churn: bool) -> Batch | None:
        """Take one sample; returns the batch that it completes."""
        sample = self._validated(t, usage, pods)
        elapsed_s = t - self.t if self.t is not None else 0.0
        self.t = t
        if elapsed_s > 2 * self._config.batch_s:  # a gap (suspend, hang): the batch under way is worthless
            self._open(t)
        elif not self._smoothed:
            self._batch_t = t - elapsed_s
        self.counted = pods if self.counted is None else self.counted
        if churn or self.unsettled or pods != self.counted:
            self.count(t, pods, churn)  # before the sample is taken in, which may hold a newcomer's start already
        smoothed = self._ema.update(elapsed_s, sample)
        if (together := sum(sample)) != together or any(self._seen_s):  # one is unknown, or was
            self._seen_s = [0.0 if x == x else s + elapsed_s for x, s in zip(sample, self._seen_s, strict=True)]
        self._smoothed.append(list(smoothed))
        self._raw.append(sample)
        self._batch_pods += pods
        self._clean &= not self.unsettled
        if t - self._batch_t < self._config.batch_s - elapsed_s / 2:
            return None
        mean_pods = self._batch_pods / len(self._raw)
        batch = Batch(t - self._batch_t, self._smoothed, self._raw, mean_pods, self._clean)
        self._open(t)
        return batch

    def count(self, t: float, pods: int, churn: bool = False) -> None:
        """The number of Pods is known anew, maybe between two samples."""
        if self.t is None or t < self.t:
            return  # the next sample will bring it
        before, was_unsettled = self.counted or 0, self.unsettled
        self.rose += max(0, pods - before)
        if pods != self.counted:
            self.fell_t = t if pods < before else self.fell_t
            self.settled_t = t + self._config.settle_s
            self.counted = pods
        self.unsettled = churn or t < self.settled_t
        if self.unsettled and not was_unsettled:
            self.calm, self.calm_pods, self.calm_t = list(self._ema.values), before, t
            self.rose = max(0, pods - before)
        elif was_unsettled and not self.unsettled:
            moved = zip(self.jump, self._ema.values, self.calm, strict=True)
            self.jump = [total + y - y0 for total, y, y0 in moved]

    def take_jump(self) -> list[float]:
        """How far usage moved while Pods changed, since this was last asked."""
        jump, self.jump = self.jump, [0.0] * len(self.jump)
        return jump

    def _validated(self, t: float, usage: Sequence[float], pods: int) -> list[float]:
        if len(usage) != len(self._resources):
            raise ValueError(f"{len(usage)} values of usage for {len(self._resources)} resources {self._resources}")
        if not isfinite(t):
            raise ValueError(f"time {t} is not finite")
        if self.t is not None and t < self.t:
            raise ValueError(f"time went backwards: {t} after {self.t}")
        if pods != int(pods) or pods < 0:
            raise ValueError(f"pods: {pods} is not a count")
        return [float(y) if 0.0 <= y <= 1.0 else self._bounded(i, y) for i, y in enumerate(usage)]

    def _bounded(self, i: int, value: float) -> float:
        """Unknown, or what rounding put outside."""
        if value == value and not -ROUNDING <= value <= 1 + ROUNDING:
            raise ValueError(f"{self._resources[i]}: usage {value} is not in [0, 1]")
        return min(max(float(value), 0.0), 1.0) if value == value else nan

    def _open(self, t: float) -> None:
        self._smoothed: list[list[float]] = []  # for the subspace
        self._raw: list[list[float]] = []  # the same as they came, for the estimator
        self._batch_pods = 0
        self._batch_t = t
        self._clean = True

    def usage(self) -> list[float]:
        """Smoothed usage; NaN where nothing was read for longer than a batch."""
        return [y if s <= self._config.batch_s else nan for y, s in zip(self._ema.values, self._seen_s, strict=True)]

    def changed_t(self) -> float:
        """When the number of Pods changed last."""
        return self.settled_t - self._config.settle_s

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the smoothing, and of the clock."""
        return self._ema.state(), {
            "t": self.t,
            "pods": self.counted,
            "unsettled": self.unsettled,
            "settled_t": _finite(self.settled_t),
            "fell_t": _finite(self.fell_t),
            "calm": [_finite(y) for y in self.calm],
            "calm_pods": self.calm_pods,
            "calm_t": _finite(self.calm_t),
            "rose": self.rose,
            "jump": [_finite(y) for y in self.jump],
            "seen_s": [_finite(s) for s in self._seen_s],
            "batch": [[_finite(y) for y in row] for row in self._smoothed],
            "batch_t": self._batch_t,
            "raw": [[_finite(y) for y in row] for row in self._raw],
            "batch_pods": self._batch_pods,
            "batch_clean": self._clean,
        }

    def restore(self, ema: Mapping[str, Any], clock: Mapping[str, Any]) -> None:
        self._ema.restore(ema)
        self.t, self.counted, self.unsettled = clock["t"], clock["pods"], bool(clock["unsettled"])
        self.settled_t = _or_never(clock["settled_t"])
        self.fell_t = _or_never(clock.get("fell_t"))  # missing in states saved before it was remembered
        unknown = [None] * len(self._resources)  # in states of version 1
        self.calm = [nan if y is None else float(y) for y in clock.get("calm", unknown)]
        self.calm_pods, self.rose = int(clock.get("calm_pods", 0)), int(clock.get("rose", 0))
        self.calm_t = _or_never(clock.get("calm_t"))
        self.jump = [nan if y is None else float(y) for y in clock.get("jump", unknown)]
        self._seen_s = [inf if s is None else float(s) for s in clock["seen_s"]]
        self._smoothed = [[nan if y is None else float(y) for y in row] for row in clock["batch"]]
        self._raw = [[nan if y is None else float(y) for y in row] for row in clock["raw"]]
        self._batch_t, self._batch_pods = float(clock["batch_t"]), int(clock["batch_pods"])
        self._clean = bool(clock["batch_clean"])


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


def _or_never(value: float | None) -> float:
    return -inf if value is None else float(value)
