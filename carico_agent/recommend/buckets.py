"""Where the buckets of a histogram begin and end.

Kubernetes' Vertical Pod Autoscaler (VPA) uses buckets that grow by 5 %: 0.01 core or 10 MB for the first, up to 1,000
cores or 1 TB: 176 buckets, an error of at most 5 %, and the same buckets everywhere, so that histograms can be added.
"""

import math
from dataclasses import dataclass
from typing import Protocol


class Buckets(Protocol):
    """Bucket n holds values from `start(n)` up to, but not including, `start(n + 1)`; the last one has no end."""

    @property
    def count(self) -> int: ...

    def start(self, bucket: int) -> float: ...

    def find(self, value: float) -> int: ...


@dataclass(frozen=True)
class ExponentialBuckets:
    """Each bucket is `ratio` times as wide as the one before.

    >>> CPU_BUCKETS.count, CPU_BUCKETS.find(1.0), round(CPU_BUCKETS.start(37), 6)
    (176, 36, 1.016281)
    """

    most: float
    first: float
    ratio: float = 1.05

    @property
    def count(self) -> int:
        return math.ceil(math.log(self.most * (self.ratio - 1) / self.first + 1) / math.log(self.ratio)) + 1

    def start(self, bucket: int) -> float:
        # start(n) = f·(rⁿ − 1)/(r − 1)
        return self.first * (self.ratio**bucket - 1) / (self.ratio - 1)

    def find(self, value: float) -> int:
        if value < self.first:
            return 0
        bucket = int(math.log(value * (self.ratio - 1) / self.first + 1) / math.log(self.ratio))
        return min(bucket, self.count - 1)


@dataclass(frozen=True)
class LinearBuckets:
    """All buckets are `width` wide.

    >>> LinearBuckets(10.0, 1.0).find(2.5), LinearBuckets(10.0, 1.0).count
    (2, 11)
    """

    most: float
    width: float

    @property
    def count(self) -> int:
        return math.ceil(self.most / self.width) + 1

    def start(self, bucket: int) -> float:
        return bucket * self.width

    def find(self, value: float) -> int:
        return min(max(int(value / self.width), 0), self.count - 1)


CPU_BUCKETS = ExponentialBuckets(most=1000.0, first=0.01)
"""Cores."""
MEMORY_BUCKETS = ExponentialBuckets(most=1e12, first=1e7)
"""Bytes."""
