"""The mix of arrivals, and whether the number moved because it changed.

Pod-Capacity counts in the next Pod, which is a mixture: where the workloads that arrive change, the number jumps at the
same load (14.0 to 5.2 when batch Pods followed web Pods). The reader is told: the shares of some minutes ago are kept,
and the cost of the next Pod with them is compared with that of today's, both at what the workloads cost now. So a
workload that gets more expensive is no change of the mix.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

KEPT, EVERY_S = 10, 30.0
"""Shares are kept for five minutes, one every half a minute [s]."""

CHANGED_RATIO = 1.25
"""The next Pod costs this much more or less for the mix alone: then it is worth a word."""

MIN_SHARE = 0.02
"""Shares of workloads that moved by less are not named."""


class Mix:
    """The shares of the last minutes.

    >>> mix, cost = Mix(), {"web": [0.1], "batch": [1.0]}
    >>> mix.take(0.0, {"web": 1.0}), mix.take(100.0, {"web": 0.5, "batch": 0.5})
    (True, True)
    >>> mix.change(cost, 0), mix.change({"web": [0.1], "batch": [0.1]}, 0)
    ('batch 0 % → 50 % of arrivals', '')
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=KEPT)
        self._now: Mapping[str, float] = {}

    def restart(self) -> None:
        """A new clock: what was kept has no time any more."""
        self._kept.clear()

    def take(self, t: float, shares: Mapping[str, float]) -> bool:
        """The chance of each workload to be the next to arrive at `t`; a table that is never changed. True: they are
        compared with others from now on."""
        due = bool(shares) and (not self._kept or t - self._kept[-1][0] >= EVERY_S)
        if due:
            self._kept.append((t, shares))
        self._now = shares
        return due

    def change(self, costs: Mapping[str, Sequence[float]], resource: int) -> str:
        """How the mix has changed, where that moved the number by a quarter or more; empty otherwise."""
        if not self._kept:
            return ""
        before = self._kept[0][1]
        old, new = _mean(before, costs, resource), _mean(self._now, costs, resource)
        if not (old > 0 and new > 0) or max(old / new, new / old) < CHANGED_RATIO:
            return ""
        moved = {workload: share - before.get(workload, 0.0) for workload, share in self._now.items()}
        moved |= {workload: -share for workload, share in before.items() if workload not in self._now}
        # the workload that explains most of it
        workload = max(moved, key=lambda name: abs(moved[name]) * _cost(costs, name, resource))
        if abs(moved[workload]) < MIN_SHARE:
            return ""
        then, now = before.get(workload, 0.0), self._now.get(workload, 0.0)
        return f"{workload} {100 * then:.0f} % → {100 * now:.0f} % of arrivals"

    def state(self) -> list[Any]:
        return [[[t, dict(shares)] for t, shares in self._kept], dict(self._now)]

    def restore(self, state: Sequence[Any]) -> None:
        kept, now = state
        self._kept.extend((float(t), _shares(shares)) for t, shares in kept)
        self._now = _shares(now)


def _shares(saved: Mapping[str, Any]) -> dict[str, float]:
    shares = {str(workload): float(share) for workload, share in saved.items()}
    if not all(map(isfinite, shares.values())):
        raise ValueError("damaged model state: shares of arrivals")
    return shares


def _cost(costs: Mapping[str, Sequence[float]], workload: str, resource: int) -> float:
    cost = costs[workload][resource] if workload in costs else 0.0
    return cost if cost == cost else 0.0


def _mean(shares: Mapping[str, float], costs: Mapping[str, Sequence[float]], resource: int) -> float:
    """Cost of the next Pod with these shares; workloads that nothing is known of leave their share to the others."""
    known = [(share, _cost(costs, workload, resource)) for workload, share in shares.items() if workload in costs]
    total = sum(share for share, _ in known)
    return sum(share * cost for share, cost in known) / total if total > 0 else 0.0
