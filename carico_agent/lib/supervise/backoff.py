"""Retry delays as data: 0.5, 1, 2, … 30 s, with jitter so that a fleet does not knock in step."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the n-th retry.

    >>> [Backoff(first_s=1, factor=2, max_s=5, jitter_ratio=0).delay_s(n) for n in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    first_s: float = 0.5
    factor: float = 2.0
    max_s: float = 30.0
    jitter_ratio: float = 0.2

    def delay_s(self, failures: int) -> float:
        """The wait after `failures` consecutive failures (1 = the first)."""
        exponent = min(max(failures - 1, 0), 64)
        delay_s = min(self.first_s * self.factor**exponent, self.max_s)
        return delay_s * (1 + random.uniform(-self.jitter_ratio, self.jitter_ratio))
