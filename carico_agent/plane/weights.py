"""Weights from throttling: who is held up by its quota gets more, from those who have too much.

Source: *MerKury* section 4.4.3 (weight adjustment) and appendix B.1. τ = throttled/total periods of the component's
cgroup. The plugin `control_plane` turns weights into cpu.weight, which takes nothing from anybody while cores are idle;
the quotas of the source are for the lab's comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LENT_RATIO = 0.1
"""θ."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """α_h and α_l."""

    bottleneck: float
    lender: float


ANSWERING = Thresholds(0.6, 0.3)
"""API server and etcd."""
OTHERS = Thresholds(0.7, 0.4)


@dataclass(frozen=True, slots=True)
class Throttled:
    """One component: cores it may use, its weight, and τ; None when unknown (no quota, counters reset)."""

    cores: float
    weight: float
    ratio: float | None
    thresholds: Thresholds = OTHERS


def adjusted(components: Mapping[str, Throttled]) -> dict[str, Throttled]:
    """One step: bottlenecks (τ ≥ α_h) get weight + 1 and share, by τ, what the others (τ ≤ α_l) lend: θ·c* each.

    >>> after = adjusted({"api": Throttled(2, 1, 0.8, ANSWERING), "scheduler": Throttled(1, 1, 0.1)})
    >>> after["api"].weight, after["api"].cores, after["scheduler"].cores
    (2, 2.1, 0.9)
    """
    tight = {name: one.ratio for name, one in components.items() if one.ratio is not None and _is_tight(one)}
    if not tight:
        return dict(components)
    lent = {name: LENT_RATIO * one.cores for name, one in components.items() if _lends(one)}
    whole = sum(tight.values())
    result = {}
    for name, one in components.items():
        gained = sum(lent.values()) * tight[name] / whole if name in tight else -lent.get(name, 0.0)
        result[name] = Throttled(one.cores + gained, one.weight + (name in tight), one.ratio, one.thresholds)
    return result


def _is_tight(one: Throttled) -> bool:
    return one.ratio is not None and one.ratio >= one.thresholds.bottleneck


def _lends(one: Throttled) -> bool:
    return one.ratio is not None and one.ratio <= one.thresholds.lender
