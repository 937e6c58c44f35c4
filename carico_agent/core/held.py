"""Pod-Capacity that holds: how many more Pods fit when those that run, and the new ones, have had their day.

Room now is what is left at this instant. Within the horizon those that run rise by `rise(0)`, and with n Pods more by
`rise(n)`: the largest n with rise(n) ≤ room holds, and no more than fit now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, nan

from carico_agent.core.estimate import Estimate
from carico_agent.core.outlook import Outlook, Rises

MAX_PODS = 1e6

LOW, LIKELY_PEAK, HIGH = 2, 1, 0
"""Positions of the quantiles .99, .95 and .5 in RISE_QUANTILES."""


def held(now: Estimate, outlook: Outlook, horizon_s: float, shares: Mapping[str, float], name: str = "") -> Estimate:
    """The same estimate, holding for `horizon_s`; `shares` is the mixture of workloads that one more Pod is, `name` the
    mixture's own.

    NaN where Pods are not measured one by one or nothing was observed: then nothing is known about the coming hours.
    """
    if not now.room or outlook.mode == "unknown" or now.pod_capacity != now.pod_capacity:
        return replace(
            now,
            pod_capacity=nan,
            low=0.0,
            high=now.high,
            slots=nan,
            mode="learning",
            horizon_s=horizon_s,
            outlook="unknown",
        )
    rises = outlook.rises(horizon_s, shares, name)
    # a workload without a past takes at all times what it takes now
    needs = Needs(rises, now.room, tuple(max(0.0, 1.0 - rises.known) * c for c in now.cost_vector))
    value, limiting = needs.largest(now.pod_capacity, LIKELY_PEAK)
    low = min(needs.largest(now.low, LOW)[0], value)
    high = max(needs.largest(now.high, HIGH)[0], value)
    pairs = zip(now.room, rises.first(LIKELY_PEAK), strict=True)
    left = tuple(free - (rise if rise == rise else 0.0) for free, rise in pairs)
    trusted = outlook.mode == "known" and now.mode != "learning"
    return replace(
        now,
        pod_capacity=value,
        low=low,
        high=high,
        slots=now.pods + value,
        mode="predicted" if trusted else "learning",
        limiting=now.limiting if limiting is None else outlook.resources[limiting],
        room=left,
        workloads=(),
        horizon_s=horizon_s,
        outlook=outlook.mode,
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What n Pods more need within the horizon, against the room there is now; per resource."""

    rises: Rises
    room: tuple[float, ...]
    flat: tuple[float, ...]
    """What of one Pod's cost is not in the rises."""

    def largest(self, most: float, quantile: int) -> tuple[float, int | None]:
        """The largest n ≤ most that leaves no resource short, and the resource that is short beyond it."""
        if not isfinite(most):
            most = MAX_PODS if most == inf else 0.0
        limiting = None
        for i, (free, flat) in enumerate(zip(self.room, self.flat, strict=True)):
            n = self.rises.fits(i, quantile, max(free, 0.0) if free == free else nan, flat)
            if n < most:
                most, limiting = n, i
        return most, limiting
