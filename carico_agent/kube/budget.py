"""How much a client may ask of the API server."""

from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Budget:
    """A token bucket; time is an argument.

    >>> budget = Budget(per_s=2.0, burst=2)
    >>> [budget.wait_s(0.0) for _ in range(4)]
    [0.0, 0.0, 0.5, 1.0]
    >>> budget.wait_s(10.0)
    0.0
    """

    per_s: float
    burst: float
    _left: float = field(default=inf, init=False)
    _since_s: float = field(default=0.0, init=False)

    def wait_s(self, now_s: float) -> float:
        """Take one request out of the budget; returns how long to wait before it may be sent [s]."""
        self._left = min(self.burst, self._left + (now_s - self._since_s) * self.per_s) - 1
        self._since_s = now_s
        return max(0.0, -self._left / self.per_s)
