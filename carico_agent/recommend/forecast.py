"""What `walk` and `arima` share: from a forecast and its deviation to one number that should not be exceeded.

Memory: max over τ of x̂ + n·sd + n·2 MiB (5.13); CPU: x̂ + (0.15n + 0.35)·sd + 0.0005n + 0.0015 (5.16), n the safety.
The constants keep series that hardly move from falling short by a hair. Source: "Analyse von Verfahren zur Optimierung
des Container-Schedulings in Kubernetes", section 5.2.
"""

from collections.abc import Callable

import numpy as np

from carico_agent.recommend.arima import CannotFit
from carico_agent.recommend.method import MIB, Evidence, Options, Resource, ResourceNeed, amount, methods
from carico_agent.recommend.series import Array

HORIZON_S = 300.0
"""Five steps of a minute [s]."""

Forecast = Callable[[Array, int], tuple[Array, Array]]
"""A series and a number of steps: the forecast and its standard deviation; CannotFit says why not."""


def safe(resource: Resource, forecast: Array, deviation: Array, safety: float) -> float:
    """The one number for the whole horizon."""
    if resource == "memory":
        return float((forecast + safety * deviation + safety * 2 * MIB).max())
    return float((forecast + (0.15 * safety + 0.35) * deviation + 0.0005 * safety + 0.0015).max())


def estimate(name: str, forecast: Forecast, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
    """The neediest replica decides; where no forecast can be made, `peak` answers and says why."""
    best: tuple[float, float, float] | None = None
    reasons: list[str] = []
    for tail in seen.tails[resource]:
        try:
            found, deviation = forecast(tail, options.horizon)
            target = safe(resource, found, deviation, options.safety)
            if not np.isfinite(target):
                raise CannotFit("the forecast is not finite")
        except CannotFit as error:
            reasons.append(str(error))
            continue
        middle = max(float(found.max()), 0.0)
        if best is None or target > best[0]:
            best = (max(target, 0.0), middle, max(safe(resource, found, deviation, 2 * options.safety), 0.0))
    if best is None:
        fallback = methods()["peak"]().estimate(resource, seen, options)
        reason = reasons[0] if reasons else "no minutes are known"
        why = (f"no forecast by {name}: {reason}; peak is used", *fallback.why)
        return ResourceNeed(fallback.target, fallback.lower, fallback.upper, fallback.method, why)
    cause = (
        f"{name} expects at most {amount(resource, best[1])} within {options.horizon} minutes, "
        f"safety {options.safety:g} makes it {amount(resource, best[0])}"
    )
    replicas = len(seen.tails[resource])
    missing = (f"{len(reasons)} of {replicas} replicas without a forecast: {reasons[0]}",) if reasons else ()
    return ResourceNeed(best[0], best[1], best[2], name, (cause, *missing))
