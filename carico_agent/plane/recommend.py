"""How many seats an API server should have, from what was measured, or why that is not known."""

from dataclasses import dataclass, field

from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import NoRecommendation, size

SATURATED_RATIO = 0.95
"""Of c*. A learned curve is noisy and nearly flat at its end, where the smallest x with f(x) = c* is an accident."""


@dataclass(frozen=True, slots=True)
class PlaneState:
    """What is known of a control plane in one window."""

    load: Load | None
    """Of the API server; None: unknown (counters reset, metrics missing)."""
    curve: Curve | None
    """As learned so far."""
    busy_cores: float
    """Used by all components that are known."""
    cores: float
    """That the machine has."""
    needs: dict[str, int] = field(default_factory=dict)
    """Seats by level (components.needs)."""


@dataclass(frozen=True, slots=True)
class SeatRecommendation:
    """Seats for all levels together."""

    seats: int
    queue: int
    cores: float
    """c*: what the API server makes use of with them."""
    wait_ms: float
    reject_ratio: float
    steady: bool
    needs: dict[str, int] = field(default_factory=dict)
    """Seats that single levels need, whatever the sum is."""


def recommend(now: PlaneState, availability: float, busy_ratio: float, min_seats: int) -> SeatRecommendation | str:
    """A recommendation, or in words why there is none."""
    if now.load is None:
        return "unknown: counters were reset, another API server answered, or metrics are missing"
    if now.load.requests == 0:
        return "no requests in this window"
    if now.curve is None:
        return "the concurrency curve is not known yet"
    if now.busy_cores < busy_ratio * now.cores:
        return f"{now.busy_cores:.2f} of {now.cores:g} cores are busy, less than {busy_ratio:.0%}: nothing competes"
    allowed = max(0.05, now.cores - max(0.0, now.busy_cores - now.load.cores))
    useful = min(allowed, now.curve.peak()[1])
    try:
        sized = size(now.load, now.curve, SATURATED_RATIO * useful, availability)
    except NoRecommendation as error:
        return str(error)
    seen = sized.performance
    return SeatRecommendation(
        max(sized.seats, min_seats),
        sized.queue,
        sized.cores,
        seen.wait_s * 1000,
        seen.reject_ratio,
        sized.steady,
        now.needs,
    )
