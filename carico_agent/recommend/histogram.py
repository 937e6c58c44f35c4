"""A histogram that forgets: the weight of a sample halves every `half_life_s`.

What it believes: tomorrow looks like the last days, recent ones more. Percentiles are the *end* of a bucket, so that
the answer errs upwards by at most the bucket's width. The same arithmetic as VPA's, so that its checkpoints can be
read and written (`checkpoint`).

Forgetting costs nothing per sample: instead of shrinking all old weights, a new one is made larger,
w · 2^((t − t_ref)/half-life), and everything is divided when the exponent gets beyond 100.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from carico_agent.recommend.buckets import Buckets

Array = np.ndarray[Any, np.dtype[np.float64]]

EPSILON = 1e-4
"""A bucket lighter than this counts as empty, as in VPA."""
MAX_EXPONENT = 100.0
"""2^100 times the smallest weight is still exact to a float's last bit."""
DAY_S = 86_400.0


@dataclass(eq=False)
class DecayingHistogram:
    """Weights per bucket, relative to `reference_s`.

    >>> from carico_agent.recommend.buckets import LinearBuckets
    >>> histogram = DecayingHistogram(LinearBuckets(10.0, 1.0), half_life_s=3600.0)
    >>> for hour in range(1, 5):
    ...     histogram.add(hour, hour, (hour - 1) * 3600.0)
    >>> [histogram.percentile(p) for p in (0.02, 0.10, 0.34, 0.35)]
    [2.0, 3.0, 4.0, 5.0]
    """

    buckets: Buckets
    half_life_s: float = DAY_S
    reference_s: float = 0.0
    total: float = 0.0
    weights: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if self.weights.size == 0:
            self.weights = np.zeros(self.buckets.count)

    def add(self, value: float, weight: float, t_s: float) -> None:
        """Take one sample of `weight` at `t_s` [s]; the order of times does not matter."""
        scaled = weight * self._factor(t_s)
        self.weights[self.buckets.find(value)] += scaled
        self.total += scaled

    def add_many(self, values: Array, weight: float, t_s: Array) -> None:
        """The same for many samples of equal weight at once: a week of minutes takes a millisecond."""
        if values.size == 0:
            return
        self._factor(float(t_s.max()))  # moves the reference if it must be moved
        scaled = weight * np.exp2((t_s - self.reference_s) / self.half_life_s)
        found = np.fromiter(map(self.buckets.find, values.tolist()), dtype=np.int64, count=values.size)
        self.weights += np.bincount(found, scaled, self.buckets.count)
        self.total += float(scaled.sum())

    def subtract(self, value: float, weight: float, t_s: float) -> None:
        """Undo an `add`; what remains below ε is rounding and becomes zero."""
        scaled, bucket = weight * self._factor(t_s), self.buckets.find(value)
        left, total = self.weights[bucket] - scaled, self.total - scaled
        self.weights[bucket] = left if left >= EPSILON else 0.0
        self.total = total if total >= EPSILON else 0.0

    def merge(self, other: "DecayingHistogram") -> None:
        """Add all samples of `other`, which stays as it is."""
        if other.buckets != self.buckets or other.half_life_s != self.half_life_s:
            raise ValueError("histograms with other buckets or another half-life cannot be added")
        if other.empty:
            return
        if self.empty:
            self.reference_s = other.reference_s
        elif other.reference_s > self.reference_s:
            self._shift(other.reference_s)
        factor = 2.0 ** ((other.reference_s - self.reference_s) / self.half_life_s)
        self.weights += other.weights * factor
        self.total += other.total * factor

    @property
    def empty(self) -> bool:
        return not bool((self.weights >= EPSILON).any())

    def percentile(self, share: float) -> float:
        """The end of the first bucket at which `share` of the weight is reached; 0 when empty."""
        if self.empty:
            return 0.0
        # Buckets lighter than ε at either side are not looked at; inside they count.
        seen = np.flatnonzero(self.weights >= EPSILON)
        low, high = int(seen[0]), int(seen[-1])
        reached = np.cumsum(self.weights[low : high + 1]) >= share * self.total
        bucket = low + int(np.argmax(reached)) if reached.any() else high
        return self.buckets.start(bucket + 1 if bucket < self.buckets.count - 1 else bucket)

    def highest(self) -> float:
        """The end of the highest bucket that is not empty."""
        return self.percentile(1.0)

    def _factor(self, t_s: float) -> float:
        if t_s - self.reference_s > MAX_EXPONENT * self.half_life_s:
            self._shift(t_s)
        return float(2.0 ** ((t_s - self.reference_s) / self.half_life_s))

    def _shift(self, t_s: float) -> None:
        """A new reference: the multiple of the half-life nearest to `t_s`, so that the factor is a power of two."""
        reference_s = round(t_s / self.half_life_s) * self.half_life_s
        factor = 2.0 ** ((self.reference_s - reference_s) / self.half_life_s)
        self.weights *= factor
        self.total *= factor
        self.reference_s = reference_s
