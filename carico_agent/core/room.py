"""Room and what fits into it: room is one vector, limit − host − Σ Pods, and every number of Pods is a division.

The next Pod is a mixture: workloads weighted by how often they arrive here, the prior (or what the cluster runs) with a
weight that vanishes as Pods arrive. Pod-Capacity is room over the expected cost; its interval holds what the room may
be, what the costs may be, and which workload may come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import Any

from carico_agent.core.estimators import Span
from carico_agent.core.evidence import CLUSTER_SPREAD_RATIO
from carico_agent.core.host import FULL
from carico_agent.core.measured import MeasuredPods
from carico_agent.core.renewal import Arrival, Unsure, count, dispersion
from carico_agent.core.workloads import ASLEEP_S, Workload

MIN_COST = 1e-4
"""No Pod is free: 0.01 % of the node, so that the number stays finite."""

ELSEWHERE_WEIGHT = 0.1
"""Share of the prior in the next Pod is this over (1 + arrivals)²: 2.5 % after one arrival, 0.1 % after nine. A fixed
share would not do: 5 % of a one-core prior more than doubles the cost of Pods that take a thirtieth of a core."""

LIKELY = 0.1
"""A workload that arrives at least this often belongs into the interval of the next Pod."""

TRUSTED_SHARE = 0.75
"""The next Pod is known when workloads with a known cost make up this much of the arrivals."""

UNSETTLED_RATIO, LEFT_RATIO = 0.1, 0.5
"""While Pods come and go usage is off by a tenth of a Pod, and by as much as Pods differ for each that came; for those
that left it is less, with half the variance, as usage falls at once."""

CROWDED_RATIO = 0.8
"""When Pods leave a node on which all was used, what the others wanted beyond that is not known: it may be all of what
the node still shows, as a bit more than a standard deviation."""

HIDDEN_RATIO = 0.15
"""What rising Pods hide is off with a variance of this times itself times a Pod's cost: on 62 simulated nodes by .2, .3
and .5 of a Pod where .25, .75 and 2 Pods were hidden."""

PRIOR_CHEAPEST = 1 / 16
"""A Pod of which nothing is known is believed to cost at least this part of the prior: a sixteenth of a core. Without
it the interval of a node that learns reached to ten thousand Pods."""

PARTS_RATIO = 0.03
"""The sum of Pods' readings is off by this much, as a standard deviation."""

GUESSED_RATIO = 0.3
"""And by this part of the excess where no reading says that quotas stop Pods: it may be the host's."""

LONG_UNSETTLED_S = 4.0
"""Where Pods come and go for longer than this without a pause [s], room is what their own readings leave."""

YOUNG_S = 2.5
"""Age of a Pod that is counted and not measured yet, in the mean [s]."""

SLEEPER_RATIO, SLEEPER_SHARE = 0.04, 0.02
"""A workload sleeps that uses less than this part of the prior, and of the node where there is no prior. If nothing but
sleepers ever came, the next Pod is unknown."""


@dataclass(frozen=True, slots=True)
class Room:
    """limit − host − Σ Pods per resource (NaN: unknown), and its standard deviation."""

    free: Sequence[float]
    sd: Sequence[float]
    predicted: bool
    """Young Pods count for more than the node shows yet."""

    def fits(self, cost: Sequence[float], cost_sd: Sequence[float], cheapest_ratio: float = 0.0) -> Span:
        """How many Pods of this cost fit; unknown costs limit nothing, and if all are, the answer is NaN.

        No Pod is believed to be cheaper than `cheapest_ratio` times its cost.
        """
        value, low, high, limiting = inf, inf, inf, None
        for i, (free, sd, c, c_sd) in enumerate(zip(self.free, self.sd, cost, cost_sd, strict=True)):
            if free != free or c != c:
                continue
            if c < MIN_COST:
                c = MIN_COST
            n = free / c if free > 0 else 0.0
            if n < value:
                value, limiting = n, i
            # both ends two standard deviations away, in room and in cost
            worst, best, cheapest = free - 2 * sd, free + 2 * sd, max(c - 2 * c_sd, cheapest_ratio * c)
            least = worst / (c + 2 * c_sd) if worst > 0 else 0.0
            most = best / (cheapest if cheapest > MIN_COST else MIN_COST) if best > 0 else 0.0
            low = least if least < low else low
            high = most if most < high else high
        if limiting is None:
            return Span(nan, 0.0, inf)
        return Span(value, min(low, value), max(high, value), limiting)

    def fits_of_next(self, following: "NextPod", cost: Sequence[float], cost_sd: Sequence[float]) -> Span:
        """How many of the next arrivals fit: in the mean room / cost, with the 5 % and 95 % points of their number.

        `cost` is that of the next Pod, with what is known from elsewhere where its workloads do not show it.
        """
        span = self.fits(cost, cost_sd, 0.0 if following.arrivals else PRIOR_CHEAPEST)
        if not following.arrivals or span.limiting is None:
            return span
        mean = Unsure([max(c, MIN_COST) for c in cost], cost_sd)
        low, high = count(Unsure(self.free, self.sd), following.arrivals, mean, following.order)
        return Span(span.value, min(low, span.value), max(high, span.value), span.limiting)


@dataclass(frozen=True, slots=True)
class NextPod:
    """What the next Pod to arrive is believed to cost."""

    cost: list[float]
    cost_sd: list[float]
    slow_cost: list[float]
    """The part of it that takes its time to show."""
    min_cost: list[float]
    """Of the lightest workload that is likely; 0 where unknown."""
    shares: dict[str, float]
    """Chance of each workload."""
    trusted: bool
    one_sd: Sequence[float]
    """Standard deviation of one such Pod around the mean."""
    arrivals: tuple[Arrival, ...] = ()
    """The workloads it is drawn from; none: one of this cost."""
    order: tuple[int, ...] = ()
    """Which of them the last Pods were, oldest first."""


@dataclass(frozen=True, slots=True)
class UsageNow:
    """What the node shows now."""

    t: float
    usage: Sequence[float]
    noise: Sequence[float]
    """Variance of usage."""
    limits: Sequence[float]
    unsettled: bool
    """Pods have just come or gone."""
    unsettled_s: float
    """For how long they do [s]."""
    calm: Sequence[float]
    """Usage before they did."""
    came: int
    """Pods counted more (or less) than then."""
    rose: int
    """Pods that came since, whichever others left."""
    extra: int
    """Pods counted more (or less) than are measured."""
    resuming: bool = False
    """After a restart: what some Pods use was read before it."""


class Prior:
    """What a Pod costs of which nothing is known: the configured cost, with an interval as wide as itself."""

    def __init__(self, cost: Sequence[float]) -> None:
        self.cost = [c if c > 0 else nan for c in cost]
        self.cost_sd = list(self.cost)

    def learned(self, cost: Sequence[float], precision: Sequence[float]) -> "Prior":
        """The prior after a model without workloads learned one cost for all Pods; sleepers have taught it nothing."""
        known = [c if p > 0 and 0 < c <= 1 else nan for c, p in zip(cost, precision, strict=True)]
        if self.sleeps(known):
            return self
        return Prior([k if k == k else c if c == c else 0.0 for k, c in zip(known, self.cost, strict=True)])

    def state(self) -> list[float]:
        return [c if c == c else 0.0 for c in self.cost]

    @classmethod
    def from_state(cls, state: Sequence[Any], m: int) -> "Prior":
        cost = [float(c) for c in state]
        if len(cost) != m or not all(0 <= c <= 1 for c in cost):
            raise ValueError(f"damaged model state: prior {cost}")
        return cls(cost)

    def sleeps(self, cost: Sequence[float]) -> bool:
        """So little that it says nothing about a Pod that works."""
        return all(
            c != c or c < (SLEEPER_RATIO * p if p == p else SLEEPER_SHARE) for c, p in zip(cost, self.cost, strict=True)
        )

    def knows(self, workload: Workload) -> bool:
        """What a Pod of this workload costs is known, from here or from elsewhere."""
        learned = workload.elsewhere is not None and workload.elsewhere.decides
        return learned or (workload.shown and self.believes(workload.cost, workload.ran_s))

    def believes(self, cost: Sequence[float], ran_s: float) -> bool:
        """A cost measured on Pods that have run for so long in all [s]: one has worked, or they have slept for long."""
        return any(c == c for c in cost) and (ran_s >= ASLEEP_S or not self.sleeps(cost))


def room_of(pods: MeasuredPods, now: UsageNow, following: NextPod) -> Room:
    """Room now: what the node's usage leaves, less what young Pods will take and do not show yet.

    Why the node's usage and not the sum of the parts: it is fresh ten times a second, the parts every few seconds. Pods
    that have just started or stopped disturb it for a moment; until it has settled, the usage before counts, with the
    newcomers at the cost of the next Pod and the leavers at that of the lightest workload.
    """
    free, sd, predicted = [], [], now.unsettled or now.resuming
    changed = abs(now.extra) if now.unsettled_s > LONG_UNSETTLED_S else now.rose + LEFT_RATIO * (now.rose - now.came)
    for i, limit in enumerate(now.limits):
        used, hidden, beyond = now.usage[i], pods.hidden_at(i, now.t), 0.0
        cost = following.cost[i] if following.cost[i] == following.cost[i] else 0.0
        parts = pods.host.usage[i] + pods.wanted[i] + now.extra * (cost if now.extra > 0 else following.min_cost[i])
        if now.unsettled and now.calm[i] == now.calm[i]:
            expected = now.calm[i] + now.came * (cost if now.came > 0 else following.min_cost[i])
            used = expected if now.rose else min(used, expected)  # usage does not show newcomers yet
            if now.calm[i] >= FULL:  # usage ends at 1, what Pods want does not
                used = max(used, parts) if parts == parts else used
                beyond = max(0.0, now.usage[i] - used)  # what those that stay will take of what others left, or nothing
            # newcomers that are among the measured Pods already are in both
            hidden = max(0.0, hidden - max(0, now.came - max(0, now.extra)) * following.slow_cost[i])
        elif now.extra > 0:
            hidden += now.extra * following.slow_cost[i]
        excess, unsure = 0.0 if now.resuming else pods.host.excess_of(i), 0.0
        if used != used:
            used = parts
        elif now.unsettled_s > LONG_UNSETTLED_S and parts == parts:
            # what was used before says nothing any more, who runs has changed; readings of Pods do not lag behind
            used, excess, unsure = parts, 0.0, PARTS_RATIO * parts
        elif pods.host.throttled and i == pods.host.cpu and parts == parts and not now.resuming:
            # the excess changes with every Pod that comes or goes, and is known only when Pods are read again
            unsure = PARTS_RATIO * parts + (0.0 if pods.host.told else GUESSED_RATIO * excess)
            used, excess = min(parts, now.usage[i]) if now.usage[i] < FULL else parts, 0.0
        predicted |= hidden > 0.01
        free.append(limit - used + excess - hidden)
        doubt = (0.1 * excess) ** 2 + HIDDEN_RATIO * hidden * cost + unsure**2
        if beyond == beyond:
            doubt += (CROWDED_RATIO * beyond) ** 2
        if now.unsettled:
            doubt += (UNSETTLED_RATIO * cost) ** 2 + following.one_sd[i] ** 2 * changed
        sd.append(sqrt(now.noise[i] + doubt))
    return Room(free, sd, predicted)


def next_pod(pods: MeasuredPods, prior: Prior) -> NextPod:
    """The mixture of workloads that arrive here, with the prior or the cluster's Pods in small print."""
    weights = pods.workloads.weights()
    total = sum(weight for _, weight in weights)
    known = [(workload, weight / total) for workload, weight in weights if workload.shown and prior.knows(workload)]
    cost, cost_sd = elsewhere(pods, prior)
    if not known or all(prior.sleeps(workload.cost) for workload, _ in known):
        shares = {workload.name: weight / total for workload, weight in weights} if total else {}
        nothing = [0.0] * len(cost)
        one_sd = [0.5 * c if c == c else 0.0 for c in cost]
        return NextPod(cost, cost_sd, nothing, nothing, shares, pods.workloads.learned and not known, one_sd)
    seen = sum(workload.seen for workload, _ in known)
    share = sum(part for _, part in known)
    alone = ELSEWHERE_WEIGHT / (1 + seen) ** 2
    parts = [(workload.cost, workload.cost_sd, part / share * (1 - alone)) for workload, part in known]
    parts.append((tuple(cost), tuple(cost_sd), alone))
    place = {workload.name: at for at, (workload, _) in enumerate(known)}
    order = tuple(place[name] for name in pods.workloads.order if name in place)
    recent = [known[at][0].cost for at in order]
    regular = [dispersion([c[i] for c in recent], len(recent)) for i in range(len(cost))]
    mixed = [_mixed([(c[i], s[i], w) for c, s, w in parts], (1 + seen) / regular[i]) for i in range(len(cost))]
    shares = {workload.name: weight / total for workload, weight in weights}
    slow = [
        (workload.cost, part * max(0.0, 1 - YOUNG_S / workload.ramp_s))
        for workload, part in known
        if workload.ramp_s > 0
    ]
    slow_cost = [sum(c[i] * part for c, part in slow if c[i] == c[i]) for i in range(len(cost))]
    likely_costs = [workload.cost for workload, part in known if part >= LIKELY]
    min_cost = [min((c[i] for c in likely_costs if c[i] == c[i]), default=0.0) for i in range(len(cost))]
    mean, mean_sd = [c for c, _ in mixed], [s for _, s in mixed]
    arrivals = [Arrival(workload.cost, workload.spread, part / share * (1 - alone)) for workload, part in known]
    arrivals.append(Arrival(cost, cost_sd, alone))
    one_sd = [_one_sd(arrivals, i, c) for i, c in enumerate(mean)]
    trusted = share >= TRUSTED_SHARE
    return NextPod(mean, mean_sd, slow_cost, min_cost, shares, trusted, one_sd, tuple(arrivals), order)


def _one_sd(arrivals: Sequence[Arrival], i: int, mean: float) -> float:
    """Standard deviation of what one of these Pods takes of resource `i`."""
    known = [(a.cost[i], a.spread[i], a.share) for a in arrivals if a.cost[i] == a.cost[i]]
    return sqrt(sum(share * ((c - mean) ** 2 + spread**2) for c, spread, share in known))


def _mixed(parts: list[tuple[float, float, float]], seen: float) -> tuple[float, float]:
    """Mean cost of a mixture and its standard deviation: that of the costs, and that of shares known from so many Pods
    that were `seen`, each drawn by itself."""
    total = sum(w for c, _, w in parts if c == c)
    if total <= 0:
        return nan, nan
    mean = sum(c * w for c, _, w in parts if c == c) / total
    variance = 0.0
    for c, sd, w in parts:
        if c == c:
            variance += (w / total * sd) ** 2 + w / total * (c - mean) ** 2 / seen
    return mean, sqrt(variance)


def elsewhere(pods: MeasuredPods, prior: Prior) -> tuple[list[float], list[float]]:
    """Cost of a Pod that is none of ours: the mean of what arrives in the cluster, the prior where that is unknown."""
    theirs = [cost for cost in pods.workloads.elsewhere.values() if cost.arrivals > 0 and cost.decides]
    cost, cost_sd = list(prior.cost), list(prior.cost_sd)
    for i in range(len(cost)):
        mean, sd = _mixed([(c.cost[i], CLUSTER_SPREAD_RATIO * c.cost[i], c.arrivals) for c in theirs], 2)
        if mean == mean:
            cost[i], cost_sd[i] = mean, max(sd, CLUSTER_SPREAD_RATIO * mean)
    return cost, cost_sd


def holding(span: Span, others: Sequence[Span]) -> Span:
    """The interval widened until it holds these answers, too."""
    low, high = span.low, span.high
    for fits in others:
        if fits.value == fits.value:
            low, high = min(low, fits.value), max(high, fits.value)
    return Span(span.value, low, high, span.limiting)
