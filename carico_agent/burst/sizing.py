"""How many nodes to have elsewhere: the number that costs least, time included.

Cost of n nodes = price · node-seconds + value of time · time that all waiting Jobs need until they have ended.
Jobs that will come while a node boots count as well, at the rate of the last minutes: without them the first wave of a
workload is served and the next one waits for another boot.

Why not one node more per minute while anything waits, as the thesis does: its nodes came 360 and 300 s after they were
ordered, when most of the queue had gone; 3,300 node-seconds were spent where 1,400 do the same work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from carico_agent.burst.waits import starts


@dataclass(frozen=True)
class NodeOffer:
    """What one more node is: how many Jobs it takes at once, when it would come, what it costs."""

    places: int
    boot_s: float
    price_per_h: float


@dataclass(frozen=True)
class ExpectedWork:
    """What is to be done, at time 0: (arrival, duration) of those that wait and of those expected [s]."""

    jobs: Sequence[tuple[float, float]]
    free_s: Sequence[float]
    """When each place is free that we have already, at home and elsewhere, nodes under way included."""


def cost(demand: ExpectedWork, offer: NodeOffer, more: int, value_per_h: float) -> float:
    """Money for `more` nodes and for the waiting, in the currency of the price.

    >>> demand, offer = ExpectedWork([(0.0, 3600.0)] * 2, [0.0]), NodeOffer(1, 0.0, 1.0)
    >>> cost(demand, offer, 0, 1.0), cost(demand, offer, 1, 1.0)
    (3.0, 3.0)
    """
    places = [*demand.free_s, *([offer.boot_s] * (more * offer.places))]
    begun = starts(places, demand.jobs)
    ends = [begin + duration for begin, (_, duration) in zip(begun, demand.jobs, strict=True)]
    turnaround_s = sum(end - arrival for end, (arrival, _) in zip(ends, demand.jobs, strict=True))
    used_s = max(0.0, max(ends, default=0.0) - offer.boot_s)
    return (more * used_s * offer.price_per_h + turnaround_s * value_per_h) / 3600


def nodes_to_add(demand: ExpectedWork, offer: NodeOffer, value_per_h: float, most: int) -> int:
    """The number of further nodes of least cost, 0 to `most`; the smaller one where two cost the same.

    >>> demand = ExpectedWork([(0.0, 600.0)] * 9, [0.0] * 3)
    >>> [nodes_to_add(demand, NodeOffer(3, boot_s, 0.68), 1.0, 4) for boot_s in (60.0, 500.0, 5000.0)]
    [2, 1, 0]
    """
    if most <= 0 or not demand.jobs:
        return 0
    return min(range(most + 1), key=lambda more: (cost(demand, offer, more, value_per_h), more))


@dataclass
class IdleNodes:
    """Since when a target has nodes that no Job uses. The rule by which it shrinks: the service's and the simulator's.

    >>> idle = IdleNodes()
    >>> [idle.fewer(now_s, 3, 1, False, 60.0) for now_s in (0.0, 30.0, 60.0)]
    [None, None, 1]
    >>> idle.fewer(90.0, 3, 0, False, 60.0, least=2)  # two are kept for Jobs to come
    2
    """

    since_s: float | None = None

    def fewer(self, now_s: float, nodes: int, busy: int, in_flight: bool, idle_s: float, least: int = 0) -> int | None:
        """The number of nodes to shrink to, or None. `busy`: nodes with Jobs; `in_flight`: Jobs are on their way there,
        so that a node without one may be about to get it; `least`: nodes that stay whether Jobs use them or not."""
        kept = max(busy, least)
        if kept >= nodes or (in_flight and not busy):
            self.since_s = None
            return None
        self.since_s = now_s if self.since_s is None else self.since_s
        return kept if now_s - self.since_s >= idle_s else None
