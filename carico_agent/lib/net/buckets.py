"""The token bucket: so many per second, and some at once."""

from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class TokenBucket:
    """Time is an argument, in seconds of any monotonic clock.

    >>> bucket = TokenBucket(per_s=2.0, burst=2)
    >>> [bucket.reserve(0.0) for _ in range(4)], bucket.reserve(10.0)
    ([0.0, 0.0, 0.5, 1.0], 0.0)
    >>> bucket = TokenBucket(per_s=2.0, burst=1)
    >>> [bucket.take(0.0), bucket.take(0.0), bucket.take(0.5)]
    [0.0, 0.5, 0.0]
    """

    per_s: float
    burst: float
    _left: float = field(default=inf, init=False)
    _filled_s: float = field(default=0.0, init=False)

    def reserve(self, now_s: float) -> float:
        """Take a token, if need be one of the future; returns how long to wait for it [s]."""
        self._fill(now_s)
        self._left -= 1
        return max(0.0, -self._left / self.per_s)

    def wait_s(self, now_s: float) -> float:
        """How long `reserve` would say to wait [s]; takes nothing."""
        self._fill(now_s)
        return max(0.0, (1.0 - self._left) / self.per_s)

    def set_rate(self, per_s: float, burst: float) -> None:
        """From now on, after a change of settings."""
        self.per_s, self.burst = per_s, burst

    def take(self, now_s: float) -> float:
        """Take a token that is there (0), or none: then the seconds until there is one."""
        self._fill(now_s)
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1.0 - self._left) / self.per_s

    def is_full(self, now_s: float) -> bool:
        self._fill(now_s)
        return self._left >= self.burst

    def _fill(self, now_s: float) -> None:
        self._left = min(self.burst, self._left + max(0.0, now_s - self._filled_s) * self.per_s)
        self._filled_s = now_s
