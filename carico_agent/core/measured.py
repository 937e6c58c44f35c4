"""All Pods of a node, measured: who runs, what they use together, and what that leaves to the host."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan
from typing import Any

from carico_agent.core.host import Changes, HostShare
from carico_agent.core.pods import MIN_RISE, MIN_RISE_CORES, PodReadings, PodSample, pods_from_state
from carico_agent.core.workloads import MAX_RAMP_S, OTHER, Workload, WorkloadCost, Workloads

REPEAT_S = 6.0
"""The same PodSample object again within this time [s] is the same reading, not a new one. Pods are read every 5 s;
with 4 s each reading of a busy Pod counted twice, once when it came and once just before the next."""

FIRST_RAMP_S = 6.0
"""A Pod below what its workload costs is given at least this long to show itself [s]."""

COUNT_LEAD_S = 2.5
"""A Pod may be counted this long before the list of measured Pods has it [s]; an older count is not news."""

STALE_S = 30.0
"""Pods not measured for this long [s] are unknown: the node-wide filter answers."""


class MeasuredPods:
    """Takes the readings of all Pods; keeps their sums, their workloads and the host."""

    def __init__(self, m: int, cpu: int | None, cores: int) -> None:
        self._m = m
        self._min_rise = [MIN_RISE] * m
        if cpu is not None:
            self._min_rise[cpu] = min(MIN_RISE, MIN_RISE_CORES / (2 * cores))
        self.workloads = Workloads(m, cpu)
        self.host = HostShare(m, cpu, cores)
        self._changes = Changes(cpu)
        self.pods: dict[str, PodReadings] = {}
        self._uids: list[str] = []  # of them, in their order
        self.shares: dict[str, float] = {}  # chance of each workload to be the next to arrive
        self.t: float | None = None
        self.serves = False  # a service runs here
        self.counts_per_node = True  # the count of Pods that comes with the node's usage includes per-node Pods
        self._watching = False  # Pods unknown from now on have arrived
        self._sum_up()

    def restart_clock(self) -> None:
        """A new clock: who runs is asked again; those we know are old, those we do not were there before us."""
        self.t = None
        self._watching = False
        for pod in self.pods.values():
            pod.since_t = pod.t = pod.mark_t = pod.shown_t = -inf
            pod.rise, pod.remembered = None, True

    def fresh(self, t: float | None) -> bool:
        return self.t is not None and (t is None or t - self.t <= STALE_S)

    # ---- in

    def observe(self, t: float, samples: Sequence[PodSample]) -> bool:
        """Take all Pods that run at `t`. False: no workload costs or arrives otherwise than before."""
        uids = [sample.uid for sample in samples]
        self._check(t, samples, uids)
        changed = self.workloads.forget(t - self.t) if self.t is not None else True
        if uids != self._uids:
            self._come_and_go(t, samples, uids)
            changed = True
        for sample, pod in zip(samples, self.pods.values(), strict=True):
            if pod.sample is not sample or t - pod.t >= REPEAT_S:
                self._read(t, pod, sample)
        for workload in self.workloads.by_name.values():
            if workload.dirty:
                workload.learn_growth()
                workload.renew()
                changed = True
        self.serves = any(sample.service for sample in samples)
        self.t, self._watching = t, True
        if changed:
            self.shares = self.workloads.shares()
        self._sum_up()
        return changed

    def _come_and_go(self, t: float, samples: Sequence[PodSample], uids: list[str]) -> None:
        """Other Pods than before run, or in another order."""
        running, self.pods, self._uids = self.pods, {}, uids
        for sample in samples:
            pod = running.pop(sample.uid, None)
            self.pods[sample.uid] = self._welcome(t, sample) if pod is None else pod
        for uid, pod in running.items():
            self.workloads.by_name[pod.workload].leave(uid)
            self._changes.left(uid, pod)

    def learn_host(self, node: Sequence[float], jump: float, settled: bool) -> None:
        """What the `node` uses beyond its Pods is the host's; `jump` is how far its cpu moved while Pods changed."""
        cpu = node[self.host.cpu] if self.host.cpu is not None else nan
        self.host.learn(node, self.together, self._changes.beyond(self.pods, cpu, jump, settled), settled)

    def compare_count(self, counted: int) -> None:
        """Find out whether the settled count of Pods includes per-node Pods."""
        if counted in (len(self.pods), self.ordinary):
            self.counts_per_node = counted == len(self.pods)

    def _check(self, t: float, samples: Sequence[PodSample], uids: list[str]) -> None:
        if not isfinite(t):
            raise ValueError(f"time {t} is not finite")
        if self.t is not None and t < self.t:
            raise ValueError(f"time went backwards: Pods of {t} after those of {self.t}")
        for sample in samples:
            pod = self.pods.get(sample.uid)
            if pod is None or pod.sample is not sample:
                sample.check(self._m)
        if uids != self._uids and len(set(uids)) != len(uids):
            raise ValueError("a Pod appears twice among the samples")

    def _is_another(self, pod: PodReadings, sample: PodSample) -> bool:
        """The same uid with another workload: its labels were changed. A Pod counted as OTHER stays there."""
        if pod.sample is None:  # restored
            return pod.workload not in (sample.workload, OTHER)
        return pod.sample.workload != sample.workload

    def _welcome(self, t: float, sample: PodSample) -> PodReadings:
        workload = self.workloads.find(sample.workload, sample.per_node)
        workload.seen += 1
        if self._watching:
            workload.arrivals += 1.0
            if not workload.per_node:
                self.workloads.arrived = True
                self.workloads.order.append(workload.name)
            self._changes.arrived(sample.uid)
        since_t = t if self._watching else -inf
        pod = workload.pods[sample.uid] = PodReadings(workload.name, since_t, self._m, self._min_rise, self.host.cpu)
        return pod

    def _read(self, t: float, pod: PodReadings, sample: PodSample) -> None:
        if pod.sample is not sample and self._is_another(pod, sample):
            self.workloads.by_name[pod.workload].leave(sample.uid)
            pod = self.pods[sample.uid] = self._welcome(t, sample)
        workload = self.workloads.by_name[pod.workload]
        if pod.sample is sample and pod.repeats(t, sample) and not any(workload.growth):
            return
        pod.sample = sample
        if (
            pod.read(t, sample.usage, max(FIRST_RAMP_S, workload.ramp_s), workload.cost, sample.got_ratio)
            and pod.since_t > -inf
        ):
            workload.learn_ramp(sample.uid, pod.calm_age_s)
        workload.dirty = True

    def _sum_up(self) -> None:
        """What all Pods use together, as measured, and who of them still rises."""
        workloads, nothing, pods = self.workloads.by_name, [0.0] * self._m, self.pods.values()
        young = [pod for pod in pods if pod.t - pod.since_t < MAX_RAMP_S]
        rising = [(pod, workloads[pod.workload]) for pod in young]
        self._rising = [(pod, workload) for pod, workload in rising if pod.t - pod.since_t < workload.ramp_s]
        rows = [pod.now for pod in pods]
        self.together = _sums(rows) or nothing
        self.wanted, self.seen = self.together, [True] * self._m  # per resource: some Pod was measured
        if (total := sum(self.together)) != total:  # some are unknown
            self._sum_up_unread(rows)
        self.ordinary = sum(
            [len(workload.pods) for workload in workloads.values() if not workload.per_node]
        )  # Pods that are no per-node Pods

    def _sum_up_unread(self, rows: list[list[float]]) -> None:
        """The same with Pods that were not read yet at what their workload costs."""
        costs = [self.workloads.by_name[pod.workload].cost for pod in self.pods.values()]
        self.wanted = [
            sum([row[i] for row in rows if row[i] == row[i]])
            + sum([cost[i] for row, cost in zip(rows, costs, strict=True) if row[i] != row[i]])
            for i in range(self._m)
        ]
        self.seen = [any(row[i] == row[i] for row in rows) for i in range(self._m)]

    # ---- out

    def extra(self, counted: int, changed_t: float) -> int:
        """Pods counted since they were measured last; below 0 if some have left."""
        if self.t is None or changed_t < self.t - COUNT_LEAD_S:
            return 0
        return counted - (len(self.pods) if self.counts_per_node else self.ordinary)

    def hidden_at(self, i: int, t: float) -> float:
        """What Pods that still rise will use of resource `i` and the node does not show at `t`.

        Each hides the rest of its ramp: cost × (1 − age / ramp), at most what it is below what its workload costs.
        """
        hidden = 0.0
        for pod, workload in self._rising:
            now, cost, rest = pod.now[i], workload.cost[i], 1 - (t - pod.since_t) / workload.ramp_s
            if rest > 0 and cost == cost:
                hidden += min(cost * rest, max(0.0, cost - now) if now == now else cost)
        return hidden

    def remembers(self) -> bool:
        """Some Pod was last read before a restart: what it uses now is not known yet."""
        return any(pod.remembered for pod in self.pods.values())

    def workload(self, name: str) -> Workload | None:
        """A workload by name; one that only the cluster knows is made for this answer and not kept."""
        found = self.workloads.by_name.get(name)
        if found is None and (theirs := self.workloads.elsewhere.get(name)) is not None:
            found = self.workloads.make(name, False)
            found.elsewhere = theirs
            found.renew()
        return found

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "watching": self._watching,
            "serves": self.serves,
            "counts_per_node": self.counts_per_node,
            "arrived": self.workloads.arrived,
            "order": list(self.workloads.order),
            "workloads": {name: workload.state() for name, workload in self.workloads.by_name.items()},
            "elsewhere": [_cost_state(cost) for cost in self.workloads.elsewhere.values()],
            "pods": {uid: pod.state() for uid, pod in self.pods.items()},
            "host": self.host.state(),
            "changes": self._changes.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.t = None if state["t"] is None else float(state["t"])
        self._watching, self.workloads.arrived = bool(state["watching"]), bool(state["arrived"])
        self.workloads.order.extend(str(name) for name in state.get("order", ()))  # missing in older states
        self.counts_per_node = bool(state["counts_per_node"])
        self.serves = bool(state.get("serves", False))  # missing in older states
        self.workloads.elsewhere = {cost.workload: cost for cost in map(_cost_from_state, state["elsewhere"])}
        for name, saved in state["workloads"].items():
            workload = self.workloads.by_name[name] = self.workloads.make(name, bool(saved["per_node"]))
            workload.elsewhere = self.workloads.elsewhere.get(name)
            workload.restore(saved)
        self.pods = pods_from_state(state["pods"], self._m, self._min_rise, self.host.cpu)
        for uid, pod in self.pods.items():
            self.workloads.by_name[pod.workload].pods[uid] = pod
        self._uids = list(self.pods)
        for workload in self.workloads.by_name.values():
            workload.renew()
        self.shares = self.workloads.shares()
        self.host.restore(state["host"])
        self._changes.restore(state["changes"])
        self._sum_up()


def _sums(rows: list[list[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _cost_state(cost: WorkloadCost) -> list[Any]:
    known = [[x if x == x else None for x in row] for row in (cost.cost, cost.spread)]
    return [cost.workload, *known, cost.pods_seen, cost.arrivals, cost.decides]


def _cost_from_state(state: Sequence[Any]) -> WorkloadCost:
    workload, cost, spread, pods_seen, arrivals, *decides = state  # the last one is missing in older states
    return WorkloadCost(
        str(workload),
        _known(cost),
        _known(spread),
        int(pods_seen),
        float(arrivals),
        bool(decides[0]) if decides else True,
    )


def _known(row: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(nan if x is None else float(x) for x in row)
