"""When a node contributes and when a view is pushed: on change, and on a heartbeat. Pure: time is an argument.

What counts as a change is decided by what a node's estimate is worth: `python -m lab.bench.federation --estimate`
compares it with exchanging every second. With a tolerance of 0.01 of a node the largest difference was below 0.05 Pods,
at about a third of the exchanges.
"""

import numpy as np

from carico_agent.core.subspace import Subspace
from carico_agent.federation import kinds
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Sums

COST_RATIO = 0.1
"""A cost that moved by less than this share of itself has not changed."""
PUSH_TOLERANCE = 0.01
PUSH_COST_RATIO = 0.05
PUSH_NODES_RATIO = 0.05


class ExchangeSchedule:
    """Decides whether a node has something to send now."""

    def __init__(self, period_s: float, heartbeat_s: float, tolerance: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._period_s, self._tolerance = period_s, tolerance
        self._sent: Contribution | None = None
        self._sent_s = float("-inf")

    def is_due(self, now: Contribution, now_s: float) -> bool:
        """Whether `now` differs from what was sent last, or the heartbeat is due."""
        if self._sent is None or now_s - self._sent_s + self._period_s / 2 >= self.heartbeat_s:
            return True
        return moved(self._sent, now, self._tolerance)

    def on_sent(self, sent: Contribution, now_s: float) -> None:
        self._sent, self._sent_s = sent, now_s

    def restart(self) -> None:
        """Another connection begins: whoever is there knows nothing yet."""
        self._sent = None


def shifted(a: Subspace, b: Subspace, tolerance: float) -> bool:
    """Whether σ₁u₁, the RMS usage, differs by more than `tolerance` in any resource."""
    return a.m != b.m or bool(np.abs(a.unit - b.unit).max(initial=0.0) > tolerance)


def moved(sent: Contribution, now: Contribution, tolerance: float) -> bool:
    """Whether `now` differs from `sent`: usage or room by `tolerance`, cost by 10 %, its precision by a factor of 2."""
    if shifted(sent.subspace, now.subspace, tolerance) or len(sent.cost) != len(now.cost):
        return True
    for old, new, old_sure, new_sure in zip(sent.cost, now.cost, sent.precision, now.precision, strict=True):
        if abs(new - old) > COST_RATIO * abs(old) or new_sure > 2 * old_sure:
            return True
    if len(sent.room) != len(now.room):
        return True
    room = any(abs(new - old) > 5 * tolerance for old, new in zip(sent.room, now.room, strict=True))
    return room or kinds.moved(sent.kinds, now.kinds)


def view_moved(old: Sums, new: Sums) -> bool:
    """Whether nodes should get `new` at once and not with their next answer."""
    if old is new:
        return False
    if old.resources != new.resources or abs(new.nodes - old.nodes) > PUSH_NODES_RATIO * old.nodes:
        return True
    if shifted(old.subspace(), new.subspace(), PUSH_TOLERANCE):
        return True
    before, after = old.mean_cost()[0], new.mean_cost()[0]
    if not np.array_equal(np.isnan(before), np.isnan(after)):
        return True
    return bool((np.abs(after - before) > PUSH_COST_RATIO * np.abs(before)).any())
