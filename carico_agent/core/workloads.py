"""Workloads: what one costs, how much they differ, and how often they arrive.

Why the mean over Pods, each counted once, and not over readings: Pods of one workload differ more from each other than
one Pod's readings do, and a thousand readings of one Pod are not a thousand Pods. Pods that were measured while they
waited for a CPU weigh less than others (`evidence.py`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, nan, sqrt
from typing import Any

from carico_agent.core.evidence import CLUSTER_SPREAD_RATIO, CLUSTER_WEIGHT, READING_RATIO, CostEvidence, believed
from carico_agent.core.pods import MEAN_AGE_S, MIN_RISE, MIN_WATCHED_S, PodReadings, certainty
from carico_agent.core.profile import Profile

MAX_WORKLOADS = 64
"""Workloads remembered on one node; Pods of further ones are counted as OTHER."""

OTHER = "other"

ARRIVALS_S = 1800.0
"""Arrivals are forgotten over half an hour (time constant [s])."""

MAX_ORDER = 64
"""Arrivals whose order is remembered: Pods come in rounds or in rollouts, which no share tells."""

MAX_PAST = 24.0
"""Pods that have left count at most as much as this many that run: what runs now knows better."""

MIN_PAST = 0.25
"""What a workload once cost is never forgotten; it weighs at least a quarter of a Pod, and the interval widens."""

BRIEF_WEIGHT = 0.3
"""A Pod that left before it had shown itself says less."""

SPREAD_RATIO = 0.1
"""Two Pods of one workload are believed to differ by a tenth until more of them were seen."""

ASLEEP_RATIO = 0.1
"""A Pod below a tenth of its workload's heaviest sleeps: it may wake, so it does not make its workload look cheap."""

SURPRISE = 9.0
"""If those that run differ from those that left by more than three standard deviations, the latter hardly count."""

CHANGE, NEWEST = 25.0, 5
"""If the five newest do, by more than five standard deviations, the workload has changed and the others are forgotten.
With three it happened to Pods that differ by a fifth and swing: relative error .064, not .049."""

MAX_RAMP_S, MAX_RISES = 120.0, 7
"""How long a workload's Pods rise, at most [s]: the lower median over so many, as some whose demand swings seem to
rise."""

ASLEEP_S = 600.0
"""Until a workload has run for this long [s] it is not believed that its Pods only sleep: they may wait for their
work."""

MAX_PAUSE_S = 30.0
"""Between two readings of all Pods a workload is known to have run for this long at most [s]."""

LEAK_RATIO, ENOUGH_GROWING = 0.1, 3
"""A workload leaks if three Pods or more grow together, by more than noise and by a tenth of the cost in half a
life."""

READING_NOISE_RATIO = 0.05
"""Relative noise of one reading of a Pod."""

SURPRISING_RATIO = 2.0
"""A young Pod that uses this much more than its workload costs has shown enough: its workload costs at least that.
Without it ten heavy Pods of a template known to be light were placed on a node before the first of them counted."""

MAX_COST = 1000.0
"""Shares of this node that a Pod elsewhere may cost: larger nodes run larger Pods. More is nonsense."""


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    """What nodes send each other about a workload: cost and spread per resource in the node's unit (NaN: unknown)."""

    workload: str
    cost: tuple[float, ...]
    spread: tuple[float, ...]
    pods_seen: int
    arrivals: float
    decides: bool = True
    """Whether enough nodes say so. If not, it widens the interval of a workload's answer and moves nothing else."""
    profile: Profile | None = None
    """Its day and its lifetimes, where they are known."""


class Workload:
    """Pods from one template. `cost` is the mean of those that have shown themselves and of those that left lately.

    `spread` is the standard deviation of one Pod around it, `cost_sd` that of the mean itself; NaN where unknown.
    """

    def __init__(self, name: str, per_node: bool, m: int, cpu: int | None = 0) -> None:
        self.name = name
        self.per_node = per_node
        self._cpu = cpu  # which of the resources
        self.pods: dict[str, PodReadings] = {}
        self.arrivals = 0.0  # forgotten over ARRIVALS_S
        self.seen = 0  # Pods of this workload, ever
        self.ran_s = 0.0  # for how long at least one of its Pods has run [s]
        self.shown = False  # its cost is known from Pods that ran here
        self.rises: dict[str, float] = {}  # age at which each of its last Pods stopped rising [s]
        self.ramp_s = 0.0  # how long its Pods rise
        self.life_s = nan  # of those that left
        self.growth = [0.0] * m  # per second: its Pods leak
        self.past = [[0.0, 0.0, 0.0] for _ in range(m)]  # weight, mean and variance of the Pods that left
        self.past_waited = 0.0  # part of the cpu in that mean that they did not get
        self.elsewhere: WorkloadCost | None = None
        self.cost: tuple[float, ...] = (nan,) * m
        self.spread: tuple[float, ...] = (nan,) * m
        self.cost_sd: tuple[float, ...] = (nan,) * m
        self.dirty = True

    def learn_ramp(self, uid: str, age_s: float) -> None:
        """A Pod stopped rising at this age."""
        self.rises.pop(uid, None)
        self.rises[uid] = age_s
        if len(self.rises) > MAX_RISES:
            del self.rises[next(iter(self.rises))]
        self._renew_ramp()

    def _renew_ramp(self) -> None:
        ages_s = sorted(self.rises.values())
        self.ramp_s = min(ages_s[(len(ages_s) - 1) // 2], MAX_RAMP_S) if ages_s else 0.0

    def forget(self, factor: float) -> None:
        """Time passes: arrivals and Pods that left weigh less, by `factor`."""
        self.arrivals *= factor
        for past in self.past:
            if past[0] > MIN_PAST:
                past[0] = max(MIN_PAST, past[0] * factor)
                self.dirty = True  # less sure

    def leave(self, uid: str) -> None:
        """A Pod is gone; what it cost is remembered."""
        pod = self.pods[uid]
        values, weight = (self._at_half_life([pod])[0], 1.0) if pod.shown else (pod.now, BRIEF_WEIGHT)
        if pod.shown:
            self._doubt_past()
        del self.pods[uid]
        self.dirty = True
        if pod.since_t > -inf and pod.t > pod.since_t:
            age_s = pod.t - pod.since_t
            self.life_s = age_s if self.life_s != self.life_s else self.life_s + 0.1 * (age_s - self.life_s)
        if not pod.shown and (self.shown or pod.t - pod.since_t < 3.0):
            return
        for i, x in enumerate(values):
            if x == x and not (self.cost[i] == self.cost[i] and x < ASLEEP_RATIO * self.cost[i]):
                if self.past[i][1] < ASLEEP_RATIO * x:  # those that left before have only slept
                    self.past[i] = [0.0, 0.0, 0.0]
                self._remember(i, x, weight, pod.waited)

    def _doubt_past(self) -> None:
        """A new version was rolled out, if the newest Pods differ from those that left: they hardly count any more."""
        newest = sorted(self._awake(), key=lambda pod: pod.since_t)[-NEWEST:]
        if len(newest) < NEWEST:
            return
        for i, column in enumerate(zip(*self._at_half_life(newest), strict=True)):
            past = self.past[i]
            mean = sum(column) / NEWEST  # NaN if one is unknown: then nothing is doubted
            own = sum((x - mean) ** 2 for x in column) / (NEWEST - 1)
            got = [self._got(pod, i) for pod in newest]
            # while both versions leave, what is remembered scatters more than each of them
            if _differ(column, got, past[0], past[1], max(own, past[2] / 2)) > CHANGE:
                past[0] = min(past[0], 1.0)

    def _got(self, pod: PodReadings, i: int) -> float:
        """Part of what it is believed to want that it got for certain."""
        return 1 - pod.waited if i == self._cpu else 1.0

    def _remember(self, i: int, x: float, weight: float, waited: float) -> None:
        past, total = self.past[i], self.past[i][0] + weight
        share = weight / total
        if i == self._cpu and (waited or self.past_waited):
            sure, past_sure = weight * certainty(1 - waited), past[0] * certainty(1 - self.past_waited)
            share = sure / (sure + past_sure)
        if i == self._cpu:
            self.past_waited += share * (waited - self.past_waited)
        deviation = x - past[1]
        # mean ← mean + w·(x − mean), variance ← (1 − w)·(variance + w·(x − mean)²)
        past[1] += share * deviation
        past[2] = (1 - share) * (past[2] + share * deviation * deviation)
        past[0] = min(total, MAX_PAST)

    def _at_half_life(self, pods: list[PodReadings]) -> list[list[float]]:
        """What Pods use, or, if their workload leaks, what they use at half the age that its Pods reach: a node at
        most."""
        if not any(self.growth):
            return [pod.mean for pod in pods]
        half_s, asleep = self._span_s() / 2 + MEAN_AGE_S, self._asleep_below()
        return [self._at_age(pod, half_s, asleep) if pod.since_t > -inf else pod.mean for pod in pods]

    def _at_age(self, pod: PodReadings, age_s: float, asleep: list[float]) -> list[float]:
        rest_s = age_s - (pod.t - pod.since_t)
        leaks = zip(pod.mean, self.growth, asleep, strict=True)
        return [min(max(0.0, x + growth * rest_s), 1.0) if x >= least else x for x, growth, least in leaks]

    def _shown(self) -> list[PodReadings]:
        """Its Pods that have shown themselves, without those that wake in this moment if there are others."""
        shown = [pod for pod in self.pods.values() if pod.shown]
        return [pod for pod in shown if any(pod.readings)] or shown

    def _surprising(self) -> list[PodReadings]:
        """Young Pods that take far more than their workload costs; of the others nothing is known yet."""
        young = [pod for pod in self.pods.values() if not pod.shown and pod.since_t > -inf]
        cpu = self._cpu if self._cpu is not None else 0
        least = SURPRISING_RATIO * self.cost[cpu] + MIN_RISE
        return [pod for pod in young if pod.now[cpu] > least]

    def _awake(self) -> list[PodReadings]:
        """Those of them that use the cpu as others do: who waits for work may hold less memory, too."""
        shown = self._shown()
        if self._cpu is None or len(shown) < 2:
            return shown
        used = [pod.mean[self._cpu] for pod in shown]
        asleep = _tenth_of_most(used)
        return [pod for pod, x in zip(shown, used, strict=True) if not x < asleep]

    def _asleep_below(self) -> list[float]:
        """A tenth of what the heaviest of its Pods uses now, per resource."""
        return [_tenth_of_most(column) for column in zip(*[pod.mean for pod in self._shown()], strict=True)]

    def _span_s(self) -> float:
        """How long its Pods live; while none has left, twice as long as the oldest has."""
        if self.life_s == self.life_s:
            return self.life_s
        return 2 * max((pod.t - pod.since_t for pod in self.pods.values() if pod.since_t > -inf), default=0.0)

    def learn_growth(self) -> None:
        """The mean growth of the Pods watched long enough, where it matters: a tenth of the cost in half a life."""
        span_s = self._span_s()
        if not span_s > 0:
            return
        watched = [pod for pod in self.pods.values() if pod.shown and pod.watched_s >= MIN_WATCHED_S]
        if len(watched) < ENOUGH_GROWING:
            return
        for i, (cost, asleep) in enumerate(zip(self.cost, self._asleep_below(), strict=True)):
            awake = [pod for pod in watched if pod.mean[i] >= asleep and pod.first[i] == pod.first[i]]
            if len(awake) < ENOUGH_GROWING:
                continue
            growth, growth_sd = _mean_growth([(p.mean[i] - p.first[i], p.watched_s) for p in awake], cost)
            leaks = growth * span_s / 2 > LEAK_RATIO * cost and growth > 2 * growth_sd
            self.growth[i] += 0.2 * ((growth if leaks else 0.0) - self.growth[i])
            if not leaks and self.growth[i] * span_s / 2 < 0.1 * LEAK_RATIO * cost:
                self.growth[i] = 0.0

    def renew(self) -> None:
        """Cost, spread and certainty from the Pods that run and the memory of those that left."""
        self.dirty = False
        awake = self._awake()
        means = self._at_half_life(awake)
        self.shown = bool(means) or any(past[0] > 0 for past in self.past)
        self._believe(awake, means)
        if self.shown and (young := self._surprising()):
            self._believe(awake + young, means + [pod.now for pod in young])

    def _believe(self, pods: list[PodReadings], means: list[list[float]]) -> None:
        found = []
        for i, past in enumerate(self.past):
            values = [(mean[i], self._got(pod, i)) for pod, mean in zip(pods, means, strict=True) if mean[i] == mean[i]]
            found.append(self._believed(i, values, *past))
        self.cost, self.spread, self.cost_sd = zip(*found, strict=True)

    def _believed(
        self, i: int, pods: list[tuple[float, float]], past: float, past_mean: float, past_variance: float
    ) -> tuple[float, float, float]:
        """Cost, spread and certainty of resource `i` from what its `pods` want and the part of it that they got."""
        theirs = self._cluster_cost(i)
        if pods:
            known = (
                *[x for x, _ in pods],
                past_mean if past > MIN_PAST else 0.0,
                theirs if theirs == theirs else 0.0,
            )
            asleep = ASLEEP_RATIO * max(known)
            pods = [(x, got) for x, got in pods if x >= asleep]
            past = past if past_mean >= asleep else 0.0
        values, got = [x for x, _ in pods], [got for _, got in pods]
        n, total = len(values), sum(values)
        if not n and past <= 0:
            return self._from_elsewhere(i)
        floor = SPREAD_RATIO * (total / n if n else past_mean)
        past_got, contradicted = 1 - self.past_waited if i == self._cpu else 1.0, False
        if n and _differ(values, got, past, past_mean, past_variance) > SURPRISE:
            past, contradicted = past * 0.1, True
        if not all(g == 1 for g in got) or past_got < 1:
            left = CostEvidence(past_mean, past_got, past, past_variance)
            found = believed([CostEvidence(*pod) for pod in pods], left, theirs, floor, contradicted)
            leak = self.growth[i] * self._span_s() / 6 if self.growth[i] else 0.0
            return found.cost, sqrt(found.spread_2), sqrt(found.variance + leak * leak)
        weight, total = n + past, total + past * past_mean
        if theirs == theirs:
            weight, total = weight + CLUSTER_WEIGHT, total + CLUSTER_WEIGHT * theirs
        mean = total / weight
        squares = past * (past_variance + (past_mean - mean) ** 2) + 2 * floor * floor
        for x in values:
            squares += (x - mean) * (x - mean)
        spread_2 = squares / (n + past + 1)
        leak = self.growth[i] * self._span_s() / 4 if self.growth[i] else 0.0
        return mean, sqrt(spread_2), sqrt(spread_2 / weight + (READING_RATIO * mean) ** 2 + leak * leak)

    @property
    def waits(self) -> bool:
        """Some of what is known was measured while its Pods waited for a CPU."""
        return self.past_waited > 0 or any(pod.shown and pod.waited > 0 for pod in self.pods.values())

    def _cluster_cost(self, i: int) -> float:
        return self.elsewhere.cost[i] if self.elsewhere is not None and self.elsewhere.decides else nan

    @property
    def hint(self) -> WorkloadCost | None:
        """What too few nodes say to be believed."""
        return None if self.elsewhere is None or self.elsewhere.decides else self.elsewhere

    def _from_elsewhere(self, i: int) -> tuple[float, float, float]:
        theirs = self._cluster_cost(i)
        if theirs != theirs or self.elsewhere is None:
            return nan, nan, nan
        spread = self.elsewhere.spread[i]
        sd = max(spread if spread == spread else 0.0, CLUSTER_SPREAD_RATIO * theirs)
        return theirs, sd, sd

    def state(self) -> dict[str, Any]:
        return {
            "per_node": self.per_node,
            "arrivals": self.arrivals,
            "seen": self.seen,
            "ran_s": self.ran_s,
            "rises": [[uid, age_s] for uid, age_s in self.rises.items()],
            "life_s": self.life_s if self.life_s == self.life_s else None,
            "growth": list(self.growth),
            "past": [list(row) for row in self.past],
            "past_waited": self.past_waited,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.arrivals, self.seen = float(state["arrivals"]), int(state["seen"])
        self.ran_s = float(state.get("ran_s", 0.0))  # this and the rises are missing in older states
        rises = state["rises"] if "rises" in state else [["", state["ramp_s"]]]
        self.rises = {str(uid): float(age_s) for uid, age_s in rises}
        if not all(map(isfinite, (self.ran_s, *self.rises.values()))):
            raise ValueError(f"damaged model state: workload {self.name!r}")
        self._renew_ramp()
        self.life_s = nan if state["life_s"] is None else float(state["life_s"])
        self.growth = [float(x) for x in state["growth"]]
        past = [[float(x) for x in row] for row in state["past"]]
        if len(past) != len(self.past) or any(len(row) != 3 or not all(map(isfinite, row)) for row in past):
            raise ValueError(f"damaged model state: workload {self.name!r}")
        self.past = past
        self.past_waited = float(state.get("past_waited", 0.0))  # missing in older states
        if not 0 <= self.past_waited <= 1:
            raise ValueError(f"damaged model state: workload {self.name!r}")


def _tenth_of_most(values: Sequence[float]) -> float:
    """Who uses less than this sleeps, beside the one that uses most; NaN is unknown."""
    return ASLEEP_RATIO * max([x for x in values if x == x], default=0.0)


def _differ(values: Sequence[float], got: Sequence[float], past: float, past_mean: float, variance: float) -> float:
    """By how much those that run differ from `past` ones that left, in variances of that difference; 0 without any.

    Those that waited want between what they got and what was read: what lies in between is no difference.
    """
    if not past > 0:
        return 0.0
    n, mean = len(values), sum(values) / len(values)
    one = max(variance, (SPREAD_RATIO * mean) ** 2)
    least = sum(x * g for x, g in zip(values, got, strict=True)) / n
    beyond = mean - past_mean if mean < past_mean else max(least - past_mean, 0.0)
    return beyond**2 / (one * (1 / n + 1 / past)) if one > 0 else 0.0


def _mean_growth(grown: list[tuple[float, float]], cost: float) -> tuple[float, float]:
    """Growth per second of Pods that have `grown` by so much in so many seconds, and its standard deviation.

    The error of one is the larger of a reading's noise and the scatter between Pods: those that swing do not leak.
    """
    watched_s = sum(in_s for _, in_s in grown)
    growth = sum(by for by, _ in grown) / watched_s
    differ = sum((by - growth * in_s) ** 2 for by, in_s in grown) / (len(grown) - 1)
    return growth, sqrt(len(grown) * max(differ, (READING_NOISE_RATIO * cost) ** 2)) / watched_s


class Workloads:
    """All kinds of one node, at most MAX_KINDS, and what the cluster says about kinds."""

    def __init__(self, m: int, cpu: int | None = 0) -> None:
        self._m, self._cpu = m, cpu
        self.by_name: dict[str, Workload] = {}
        self.elsewhere: dict[str, WorkloadCost] = {}
        self.arrived = False  # a Pod has arrived while we watched
        self.order: deque[str] = deque(maxlen=MAX_ORDER)  # kinds of the last Pods that did

    def find(self, name: str, per_node: bool) -> Workload:
        """The kind of this name, made if it is new; OTHER if there is no room for it."""
        workload = self.by_name.get(name)
        if workload is not None:
            return workload
        if len(self.by_name) >= MAX_WORKLOADS - 1 and not self._dropped_one():
            name, per_node = OTHER, False
            if name in self.by_name:
                return self.by_name[name]
        workload = self.by_name[name] = self.make(name, per_node)
        workload.elsewhere = self.elsewhere.get(name)
        return workload

    def make(self, name: str, per_node: bool) -> Workload:
        """A kind of which nothing is known, not kept."""
        return Workload(name, per_node, self._m, self._cpu)

    def _dropped_one(self) -> bool:
        """Forget the workload that has not arrived for longest, if none of it runs and it is nearly forgotten
        anyway."""
        idle = [workload for workload in self.by_name.values() if not workload.pods and workload.arrivals < 0.1]
        if idle:
            del self.by_name[min(idle, key=lambda workload: workload.arrivals).name]
        return bool(idle)

    def forget(self, elapsed_s: float) -> bool:
        """Time passes. Shares stay, so an idle night changes nothing but the weight against new arrivals.

        True: some workload has run for long enough to be believed from now on.
        """
        workloads, ran_s, believed = self.by_name.values(), min(elapsed_s, MAX_PAUSE_S), False
        for workload in workloads:
            if workload.pods:
                believed |= workload.ran_s < ASLEEP_S <= workload.ran_s + ran_s
                workload.ran_s += ran_s
        factor = exp(-elapsed_s / ARRIVALS_S)
        if factor * sum([workload.arrivals for workload in workloads]) >= 1e-3:
            for workload in workloads:
                workload.forget(factor)
        return believed

    def weights(self) -> list[tuple[Workload, float]]:
        """How often each workload arrives; if none ever has, how many of each were there. Daemons never arrive."""
        able = [workload for workload in self.by_name.values() if not workload.per_node]
        if self.arrived:
            return [(workload, workload.arrivals) for workload in able if workload.arrivals > 0]
        return [(workload, float(len(workload.pods) or workload.seen)) for workload in able]

    def shares(self) -> dict[str, float]:
        """Chance of each workload to be the next to arrive."""
        weights = self.weights()
        total = sum(weight for _, weight in weights)
        return {workload.name: weight / total for workload, weight in weights} if total > 0 else {}

    def learn(self, costs: Iterable[WorkloadCost]) -> None:
        """What the cluster knows, replacing what it knew before; at most MAX_WORKLOADS, those that arrive most."""
        most = sorted(costs, key=lambda cost: -cost.arrivals)[:MAX_WORKLOADS]
        self.elsewhere = {cost.workload: cost for cost in most}
        for workload in self.by_name.values():
            workload.elsewhere = self.elsewhere.get(workload.name)
            workload.renew()

    @property
    def learned(self) -> bool:
        """Whether enough nodes told us about some workload."""
        return any(cost.decides for cost in self.elsewhere.values())

    def local(self, most: int, believes: Callable[[Sequence[float], float], bool]) -> list[WorkloadCost]:
        """What this node knows by itself, for others: those that arrive most. OTHER means nothing elsewhere."""
        own = [workload for workload in self.by_name.values() if workload.shown and workload.name != OTHER]
        own.sort(key=lambda workload: (-workload.arrivals, -len(workload.pods), workload.name))
        costs = ((own_cost(workload), workload.ran_s) for workload in own)
        return [cost for cost, ran_s in costs if believes(cost.cost, ran_s)][:most]


def own_cost(workload: Workload) -> WorkloadCost:
    """A workload's cost without what the cluster knows about it: a node must not learn from its own echo."""
    alone, workload.elsewhere = workload.elsewhere, None
    workload.renew()
    spread = workload.spread
    if workload.waits:  # what is not sure here must not look sure elsewhere
        spread = tuple(sd if sd > one else one for one, sd in zip(spread, workload.cost_sd, strict=True))
    cost = WorkloadCost(workload.name, workload.cost, spread, workload.seen, workload.arrivals)
    workload.elsewhere = alone
    workload.renew()
    return cost


def checked(costs: Sequence[WorkloadCost], m: int) -> Sequence[WorkloadCost]:
    """Raise ValueError unless every cost is NaN or a share of the node, which may be more than all of it."""
    for cost in costs:
        if len(cost.cost) != m or len(cost.spread) != m:
            raise ValueError(f"workload {cost.workload!r}: a cost and a spread for each of {m} resources are needed")
        if not all(x != x or 0 <= x <= MAX_COST for x in (*cost.cost, *cost.spread)):
            raise ValueError(
                f"workload {cost.workload!r}: cost {cost.cost} and spread {cost.spread} are no shares of a node"
            )
        if cost.pods_seen < 0 or not 0 <= cost.arrivals < float("inf"):
            raise ValueError(
                f"workload {cost.workload!r}: {cost.pods_seen} Pods and {cost.arrivals} arrivals are no counts"
            )
        if cost.profile is not None:
            cost.profile.check(m)
    return costs
