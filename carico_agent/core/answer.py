"""How many more Pods fit: the node-wide answer, and the one where every Pod is measured.

Both keep three promises. While the model learns it never offers more places than the prior gives, with the prior's wide
interval. An empty node that is well below its limits offers a place, whatever it believes a Pod to cost: otherwise
nothing could ever prove that belief wrong. And nothing is claimed beyond the most Pods a node may run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from carico_agent.core.estimate import WorkloadEstimate
from carico_agent.core.estimators import Span
from carico_agent.core.measured import MeasuredPods
from carico_agent.core.room import PRIOR_CHEAPEST, NextPod, Prior, UsageNow, holding, room_of
from carico_agent.core.workloads import Workload

IDLE_RATIO = 0.5
"""A node is well below its limits when less than half of each is used."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A number of Pods, the cost it is made with, and whether it may be trusted."""

    span: Span
    cost: tuple[float, ...]
    trusted: bool
    predicted: bool


def learning(span: Span, prior: Span) -> Span:
    """While the model learns: at most what the prior gives, with an interval at least as wide as the prior's."""
    if span.value != span.value or prior.value != prior.value:
        return span
    first = prior if prior.value < span.value else span
    return Span(first.value, min(span.low, prior.low), max(span.high, prior.high), first.limiting)


def one_place(span: Span, usage: Sequence[float], limits: Sequence[float]) -> Span:
    """An empty node: at least one place while all that is used is known and well below the limits."""
    idle = all(y < IDLE_RATIO * limit for y, limit in zip(usage, limits, strict=True))
    if not idle or span.value >= 1 or span.value != span.value:
        return span
    return Span(1.0, span.low, max(1.0, span.high), span.limiting)


def at_most(span: Span, most: int) -> tuple[Span, bool]:
    """No more than `most`; and whether that is what limits."""
    if span.value != span.value:
        return span, False
    return Span(min(span.value, most), min(span.low, most), min(span.high, most), span.limiting), span.value > most


class MeasuredAnswer:
    """All answers of one instant: room is computed once, each question is a division more.

    `fallback` is the cost of a Pod, and its sd, in resources that are not measured per Pod; NaN where unknown.
    """

    def __init__(
        self,
        pods: MeasuredPods,
        prior: Prior,
        following: NextPod,
        now: UsageNow,
        fallback: tuple[Sequence[float], Sequence[float]],
    ) -> None:
        self._pods, self._prior, self._next, self._now, self._fallback = pods, prior, following, now, fallback
        self.room = room_of(pods, now, following)
        self._empty = pods.ordinary == 0 and now.extra <= 0
        self._prior_span = self.room.fits(*self._known(prior.cost, prior.cost_sd), PRIOR_CHEAPEST)

    def _fits(self, cost: Sequence[float], cost_sd: Sequence[float]) -> Span:
        """What fits, with the node-wide filter's cost or the prior where this cost is unknown."""
        return self.room.fits(*self._known(cost, cost_sd))

    def _known(self, cost: Sequence[float], cost_sd: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
        if (together := sum(cost)) == together:
            return cost, cost_sd
        known, known_sd = list(cost), list(cost_sd)
        theirs, theirs_sd = self._fallback
        for i, c in enumerate(cost):
            if c != c:
                filtered = theirs[i] == theirs[i]
                known[i] = theirs[i] if filtered else self._prior.cost[i]
                known_sd[i] = theirs_sd[i] if filtered else self._prior.cost_sd[i]
        return known, known_sd

    def next(self) -> Answer:
        """For the next Pod to arrive."""
        cost, cost_sd = self._known(self._next.cost, self._next.cost_sd)
        span = self.room.fits_of_next(self._next, cost, cost_sd)
        return self._settled(span, self._next.cost, self._next.trusted)

    def of(self, name: str) -> Answer:
        """For one workload; of an unknown workload: the prior."""
        workload = self._pods.workload(name)
        if workload is None:
            return self._settled(self._prior_span, self._prior.cost, False)
        return self._settled(self._of(workload), workload.cost, self._prior.knows(workload))

    def _of(self, workload: Workload) -> Span:
        """What fits of a workload; what too few other nodes say of it is inside the interval."""
        span = self._fits(workload.cost, workload.cost_sd)
        return span if workload.hint is None else holding(span, [self._fits(workload.hint.cost, workload.hint.spread)])

    def _settled(self, span: Span, cost: Sequence[float], trusted: bool) -> Answer:
        trusted = trusted and all(y == y for y in self._now.usage)
        if not trusted:
            span = learning(span, self._prior_span)
        if self._empty:
            span = one_place(span, self._now.usage, self._now.limits)
        return Answer(span, tuple(cost), trusted, self.room.predicted)

    def workloads(self, resources: Sequence[str], most: int | None) -> tuple[WorkloadEstimate, ...]:
        """Every kind of this node."""
        found = []
        for workload in self._pods.workloads.by_name.values():
            span, limited = self._of(workload), False
            trusted = self._prior.knows(workload)
            if not trusted:
                span = learning(span, self._prior_span)
            if most is not None:
                span, limited = at_most(span, most)
            limiting = "pods" if limited else None if span.limiting is None else resources[span.limiting]
            share = 0.0 if workload.per_node else self._next.shares.get(workload.name, 0.0)
            about = workload.name, workload.cost, workload.spread, len(workload.pods), share
            found.append(
                WorkloadEstimate(
                    *about, span.value, span.low, span.high, limiting, workload.per_node, trusted, workload.cost_sd
                )
            )
        return tuple(found)
