"""Seats and queue of one component: the solution rule of *MerKury* section 4.4.2.

c* as large as useful (at most what f ever reaches); f* the smallest concurrency that uses c*: more seats only cost
memory; q* the smallest queue that meets the availability. An unsteady component gets the queue that holds what is left
of one window (equation 15), and its numbers are those of the finite chain, which has a stationary state all the same.
"""

import math
from dataclasses import dataclass

from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Chain, Load, Performance

MAX_QUEUE = 1 << 60
ROUNDING = 2.3e-16
"""1 − P of a P that was written in decimal is off by half a unit in the last place of 1."""


class NoRecommendation(ValueError):
    """There is nothing to size: no requests, no CPU time, or a number that is none."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one component needs."""

    cores: float
    """c*: cores it can make use of."""
    seats: int
    """f*: requests executing at once."""
    queue: int
    """q*: requests waiting."""
    steady: bool
    """Whether it keeps up (7). If not, availability cannot be met by any queue."""
    performance: Performance


def size(load: Load, curve: Curve, cores: float, availability: float) -> Sizing:
    """Seats and queue for `load` on at most `cores`, rejecting at most 1 − `availability`; raises NoRecommendation.

    >>> figure = [(0, .12), (1, 1.41), (2, 2.21), (3, 2.97), (5, 4.27), (10, 6.63), (20, 8.61)]
    >>> sized = size(Load(60_000, 300, 60), Curve.of(figure), 6, 0.999)
    >>> sized.seats, sized.queue, round(sized.performance.wait_s * 1000, 3)
    (9, 24, 8.863)
    """
    check_load(load)
    max_useful = curve.peak()
    if cores >= max_useful[1]:
        useful, seats = max_useful[1], max_useful[0]
    else:
        useful, seats = cores, curve.reach(cores) or max_useful[0]
    chain = Chain(load, curve, useful, seats)
    queue = smallest_queue(chain, availability) if chain.steady else math.ceil(chain.backlog() * (1 - 1e-12))
    return Sizing(useful, seats, queue, chain.steady, chain.performance(queue))


HANDS = 6
"""handSize of Kubernetes' own levels: one flow may use so many of a level's queues."""


def queue_length_limit(queue: int, hands: int = HANDS) -> int:
    """`queueLengthLimit` with which the requests of one flow have a queue of `queue`; at least 1.

    >>> queue_length_limit(24), queue_length_limit(25), queue_length_limit(0)
    (4, 5, 1)
    """
    return max(1, math.ceil(queue / hands))


def check_load(load: Load) -> None:
    for name, value in (("requests", load.requests), ("core_s", load.core_s), ("window_s", load.window_s)):
        if not math.isfinite(value) or value < 0:
            raise NoRecommendation(f"{name} is {value}: unknown, so nothing is recommended")
    if load.requests == 0:
        raise NoRecommendation("no requests in this window: nothing to size")
    if load.core_s == 0 or load.window_s == 0:
        raise NoRecommendation("no CPU time in this window: what a request costs is unknown")


def smallest_queue(chain: Chain, availability: float) -> int:
    """The smallest q with p_reject ≤ 1 − P (8). p_reject falls with q in the steady state (theorem A.3): bisect."""
    if not 0 <= availability < 1:
        raise NoRecommendation(f"an availability of {availability:g}: at least 0 and below 1 is needed")
    allowed = (1 - availability) * (1 + 1e-9) + ROUNDING
    high = 1
    if chain.reject_ratio(0) <= allowed:
        return 0
    while chain.reject_ratio(high) > allowed:
        high *= 2
        if high > MAX_QUEUE:
            raise NoRecommendation(f"no queue is long enough for an availability of {availability:.12g}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chain.reject_ratio(middle) <= allowed else (middle, high)
    return high
