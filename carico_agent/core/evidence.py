"""What a workload costs where some of its Pods were measured while they waited for a CPU.

Each piece of evidence weighs as much as is known of it (`certainty` in pods.py): what is known from quieter hours, from
Pods that left and from other nodes then counts for more than Pods in a crowd, and the interval widens towards what
these got for certain. Where none waited, all weights are 1 and this is the plain mean over Pods (`workloads.py`).
"""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

from carico_agent.core.pods import certainty

READING_RATIO = 0.01
"""Relative error of a Pod's mean that no number of readings removes."""

CLUSTER_WEIGHT = 0.25
"""What other nodes know about a workload counts as a quarter of a Pod of our own."""

CLUSTER_SPREAD_RATIO = 0.2
"""However sure the cluster is, other nodes' Pods differ from ours by this much."""

WAITED_RATIO = 0.65
"""Standard deviation of a cost, as a part of what Pods did not get of it. Where all of that was a backlog the truth is
what they got, and 1.65 standard deviations reach there."""


class CostEvidence(NamedTuple):
    """What Pods want, and the part of it that they got for certain."""

    cost: float
    got_ratio: float = 1.0
    pods: float = 1.0
    variance: float = 0.0
    """Between these Pods."""


class CostBelief(NamedTuple):
    cost: float
    spread_2: float
    """Variance of one Pod around it."""
    variance: float
    """Of the cost itself."""


def believed(
    running: Sequence[CostEvidence],
    left: CostEvidence,
    elsewhere: float = nan,
    floor: float = 0.0,
    contradicted: bool = False,
) -> CostBelief:
    """The cost by Pods that run, Pods that `left` and other nodes (NaN: unknown).

    Weights count against the best known, so that Pods that all wait are as many as they are. Pods that got more than
    others are believed to want prove those wrong, however little else is known of them; `contradicted`: they differ
    from those that left. `floor`: standard deviation of two Pods until more were seen.

    >>> alone = CostEvidence(0.2, pods=3.0)
    >>> crowd = believed([CostEvidence(0.83, 0.19)], alone, floor=0.02)
    >>> round(crowd.cost, 2)
    0.2
    >>> new = believed([CostEvidence(0.83, 0.19)], CostEvidence(0.0, pods=0.0), floor=0.08)
    >>> round(new.cost, 2), new.cost - 1.65 * new.variance**0.5 < 0.2
    (0.83, True)
    """
    sure = [certainty(one.got_ratio) for one in running]
    best = max(sure, default=1.0)
    left_sure = min(certainty(left.got_ratio), best) if contradicted else certainty(left.got_ratio)
    weighed = list(zip(running, sure, strict=True))
    if left.pods > 0:
        weighed.append((left, left.pods * left_sure))
        best = max(best, left_sure) if running else left_sure
    # one pass: a hundred Pods that wait are asked for this every few seconds
    own = costs = waits = squares = got_most = 0.0
    for one, weight in weighed:
        cost, got_ratio, _, variance = one
        own += weight
        costs += weight * cost
        waits += weight * cost * (1 - got_ratio)
        squares += weight * (variance + cost * cost)
    for cost, got_ratio, _, _ in running:
        got_most = max(got_most, cost * got_ratio)
    total = own
    if elsewhere == elsewhere:
        wrong = got_most > (1 + 3 * CLUSTER_SPREAD_RATIO) * elsewhere
        weight = CLUSTER_WEIGHT * (best if wrong else 1.0)
        total, costs = total + weight, costs + weight * elsewhere
        best = best if wrong else 1.0
    mean, waited = costs / total, waits / total
    # Σ w·(v + (x − mean)²) over what was seen here
    here = costs - (total - own) * elsewhere if total > own else costs
    around = max(squares - 2 * mean * here + own * mean * mean, 0.0)
    spread_2 = (around / best + 2 * floor * floor) / (own / best + 1)
    unsure = (READING_RATIO * mean) ** 2 + (WAITED_RATIO * waited) ** 2
    return CostBelief(mean, spread_2, spread_2 / (total / best) + unsure)
