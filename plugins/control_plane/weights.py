"""When a weight rises and when it falls again.

Source: *MerKury* section 4.4.3 and appendix B.1: at α_h and above w′ = w + 1. The source never lowers a weight; here
one that was not needed for a while is taken back step by step, or after a month all would be at their ceiling.
"""

from dataclasses import dataclass, replace

HIGH_ANSWERING, LOW_ANSWERING = 0.6, 0.3
"""α_h, α_l of the API server and etcd."""
HIGH, LOW = 0.7, 0.4


@dataclass(frozen=True, slots=True)
class Weight:
    """`factor` times the base; `since_s`: when it was last needed or changed [s]."""

    factor: float = 1.0
    since_s: float = 0.0


def stepped(weight: Weight, ratio: float | None, now_s: float, answering: bool, calm_s: float) -> Weight:
    """One tick later. Unknown changes nothing.

    >>> stepped(Weight(1, 0), 0.65, 60, answering=True, calm_s=600).factor
    2.0
    >>> stepped(Weight(3, 0), 0.1, 600, answering=True, calm_s=600).factor
    2.0
    """
    high, low = (HIGH_ANSWERING, LOW_ANSWERING) if answering else (HIGH, LOW)
    if ratio is None:
        return weight
    if ratio >= high:
        return Weight(min(weight.factor + 1.0, 10_000.0), now_s)
    if ratio > low:
        return replace(weight, since_s=now_s)
    if now_s - weight.since_s >= calm_s and weight.factor > 1:
        return Weight(weight.factor - 1.0, now_s)
    return weight
