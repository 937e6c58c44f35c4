"""When a node contributes and when a view is pushed: on change, and on a heartbeat. Pure: time is an argument.

What counts as a change is decided by its effect on other nodes' estimates: `python -m lab.bench.federation --estimate`
compares them with exchanging every second. A node that never ran a Pod counts by the cluster's cost alone, so it
notices most: when costs had to move by 10 % to be sent and by 5 % to be pushed, it was off by up to 1.2 Pods of 20 in a
cluster of 25 nodes; with 1 % and 0.2 % by 0.065, with 0.7 % and 0.13 % by 0.039. In the mean over N nodes the errors
of single ones average out, so the threshold grows with √N, and a large cluster exchanges less. A node whose own cost is
far from the cluster's notices most how sure the cluster is: when that was not pushed, it was off by 0.092 Pods of 16
(400 nodes).
"""

import math
from dataclasses import replace

import numpy as np

from carico_agent.core.subspace import Subspace
from carico_agent.federation import workloads
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Sums

COST_RATIO = 0.007
"""A cost that moved by less than this share of itself has not changed, in a cluster of SMALL nodes."""
MAX_COST_RATIO = 0.1
MAX_TOLERANCES = 3.0
"""Usage must move by at most so many times the `tolerance` of the settings, however large the cluster."""
SMALL = 25
PUSH_TOLERANCE = 0.01
PUSH_COST_RATIO = 0.0013
PUSH_PRECISION_RATIO = 0.01
PUSH_NODES_RATIO = 0.05


class ExchangeSchedule:
    """Decides whether a node has something to send now."""

    def __init__(self, period_s: float, heartbeat_s: float, tolerance: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._period_s, self._tolerance = period_s, tolerance
        self.nodes = 0
        """Nodes in the cluster, as far as is known."""
        self._sent: Contribution | None = None
        self._sent_s = float("-inf")

    def is_due(self, now: Contribution, now_s: float) -> bool:
        """Whether `now` differs from what was sent last, or the heartbeat is due."""
        if self._sent is None or now_s - self._sent_s + self._period_s / 2 >= self.heartbeat_s:
            return True
        return moved(self._sent, now, self._tolerance, self.nodes)

    def with_sent_workloads(self, now: Contribution) -> Contribution:
        """`now` with the workloads sent last if they have not changed: equal bytes need not be read again."""
        if self._sent is None or workloads.moved(self._sent.workloads, now.workloads):
            return now
        return replace(now, workloads=self._sent.workloads)

    def on_sent(self, sent: Contribution, now_s: float) -> None:
        self._sent, self._sent_s = sent, now_s

    def restart(self) -> None:
        """Another connection begins: the aggregator there knows nothing yet."""
        self._sent = None


def shifted(a: Subspace, b: Subspace, tolerance: float) -> bool:
    """Whether σ₁u₁, the RMS usage, differs by more than `tolerance` in any resource."""
    return a.m != b.m or bool(np.abs(a.unit - b.unit).max(initial=0.0) > tolerance)


def cost_ratio(nodes: int) -> float:
    """The share of itself by which a cost must move to be sent in a cluster of `nodes`.

    >>> cost_ratio(3), cost_ratio(100), round(cost_ratio(5000), 3)
    (0.007, 0.014, 0.099)
    """
    return min(COST_RATIO * _growth(nodes), MAX_COST_RATIO)


def _growth(nodes: int) -> float:
    """How much more than in a SMALL cluster one node's values may be off: their errors average out."""
    return math.sqrt(max(1.0, nodes / SMALL))


def moved(sent: Contribution, now: Contribution, tolerance: float, nodes: int) -> bool:
    """Whether `now` differs from `sent` by enough for a cluster of `nodes`: usage, cost, its precision twofold, room.
    Room is not averaged, so its threshold does not grow."""
    usage = tolerance * min(_growth(nodes), MAX_TOLERANCES)
    if shifted(sent.subspace, now.subspace, usage) or len(sent.cost) != len(now.cost):
        return True
    ratio = cost_ratio(nodes)
    for old, new, old_sure, new_sure in zip(sent.cost, now.cost, sent.precision, now.precision, strict=True):
        if abs(new - old) > ratio * abs(old) or new_sure > 2 * old_sure:
            return True
    if len(sent.room) != len(now.room):
        return True
    room = any(abs(new - old) > 5 * tolerance for old, new in zip(sent.room, now.room, strict=True))
    return room or workloads.moved(sent.workloads, now.workloads)


def view_moved(old: Sums, new: Sums) -> bool:
    """Whether nodes should get `new` at once and not with their next answer."""
    if old is new:
        return False
    if old.resources != new.resources or abs(new.nodes - old.nodes) > PUSH_NODES_RATIO * old.nodes:
        return True
    if shifted(old.subspace(), new.subspace(), PUSH_TOLERANCE):
        return True
    (before, sure_before), (after, sure_after) = old.mean_cost(), new.mean_cost()
    if not np.array_equal(np.isnan(before), np.isnan(after)):
        return True
    surer = np.abs(sure_after - sure_before) > PUSH_PRECISION_RATIO * sure_before
    return bool(surer.any() or (np.abs(after - before) > PUSH_COST_RATIO * np.abs(before)).any())
