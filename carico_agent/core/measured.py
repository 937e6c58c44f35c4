"""All Pods of a node, measured: who runs, what they use together, and what that leaves to the host."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan
from typing import Any

from carico_agent.core.host import Host
from carico_agent.core.kinds import Kind, KindCost, Kinds
from carico_agent.core.pods import Pod, PodSample, pods_from_state

REPEAT_S = 4.0
"""The same PodSample object again within this time [s] is the same reading, not a new one."""

STALE_S = 30.0
"""Pods not measured for this long [s] are unknown: the node-wide filter answers."""


class MeasuredPods:
    """Takes the readings of all Pods; keeps their sums, their kinds and the host."""

    def __init__(self, m: int, cpu: int | None, cores: int) -> None:
        self._m = m
        self.kinds = Kinds(m)
        self.host = Host(m, cpu, cores)
        self.pods: dict[str, Pod] = {}
        self.t: float | None = None
        self.counts_daemons = True  # the count of Pods that comes with the node's usage includes daemons
        self._watching = False  # Pods unknown from now on have arrived
        self._sum_up()

    def restart_clock(self) -> None:
        """A new clock: who runs is asked again; those we know are old, those we do not were there before us."""
        self.t = None
        self._watching = False
        for pod in self.pods.values():
            pod.since_t = pod.t = pod.mark_t = -inf

    def fresh(self, t: float | None) -> bool:
        return self.t is not None and (t is None or t - self.t <= STALE_S)

    # ---- in

    def observe(
        self, t: float, samples: Sequence[PodSample], node: Sequence[float], host: Sequence[float] | None = None
    ) -> None:
        """Take all Pods that run at `t`. `node` is the node's usage, `host` the host's if it was measured."""
        self._check(t, samples, host)
        if self.t is not None:
            self.kinds.forget(t - self.t)
        arrived = False
        running = self.pods
        self.pods = {}
        for sample in samples:
            pod = running.pop(sample.uid, None)
            if pod is None or (pod.sample is not sample and self._is_another(pod, sample)):
                if pod is not None:
                    self.kinds.by_name[pod.kind].leave(sample.uid)
                pod = self._welcome(t, sample)
                arrived = True
            self.pods[sample.uid] = pod
            if pod.sample is not sample or t - pod.t >= REPEAT_S:
                self._read(t, pod, sample)
        for uid, pod in running.items():
            self.kinds.by_name[pod.kind].leave(uid)
        for kind in self.kinds.by_name.values():
            if kind.dirty:
                kind.renew()
        self.t, self._watching = t, True
        self._sum_up()
        if host is not None:
            self.host.known(host)
        else:
            self.host.learn(node, self.together, arrived, self.young > 0)

    def compare_count(self, counted: int) -> None:
        """Find out whether the settled count of Pods includes daemons."""
        if counted in (len(self.pods), self.workload):
            self.counts_daemons = counted == len(self.pods)

    def _check(self, t: float, samples: Sequence[PodSample], host: Sequence[float] | None) -> None:
        if not isfinite(t):
            raise ValueError(f"time {t} is not finite")
        if self.t is not None and t < self.t:
            raise ValueError(f"time went backwards: Pods of {t} after those of {self.t}")
        if host is not None and len(host) != self._m:
            raise ValueError(f"{len(host)} values of the host's usage for {self._m} resources")
        for sample in samples:
            pod = self.pods.get(sample.uid)
            if pod is None or pod.sample is not sample:
                sample.check(self._m)
        if len({sample.uid for sample in samples}) != len(samples):
            raise ValueError("a Pod appears twice among the samples")

    def _is_another(self, pod: Pod, sample: PodSample) -> bool:
        """The same uid with another kind: its labels were changed. A kind merged into OTHER stays there."""
        return pod.kind != sample.kind and sample.kind in self.kinds.by_name

    def _welcome(self, t: float, sample: PodSample) -> Pod:
        kind = self.kinds.find(sample.kind, sample.daemon)
        kind.seen += 1
        if self._watching:
            kind.arrivals += 1.0
            self.kinds.arrived |= not kind.daemon
        pod = kind.pods[sample.uid] = Pod(kind.name, t if self._watching else -inf, self._m)
        return pod

    def _read(self, t: float, pod: Pod, sample: PodSample) -> None:
        pod.sample = sample
        kind = self.kinds.by_name[pod.kind]
        if pod.read(t, sample.usage, kind.ramp_s, kind.cost) and pod.since_t > -inf:
            kind.learn_ramp(pod.calm_age_s)
        kind.dirty = True

    def _sum_up(self) -> None:
        """What all Pods use together: as measured, but the young at least at what their kind costs."""
        kinds = self.kinds.by_name
        rows, workload = [], []
        self.young = 0
        for pod in self.pods.values():
            kind, counted = kinds[pod.kind], pod.now
            if not pod.shown:
                counted = _at_least(counted, kind.cost)
                self.young += 1
            rows.append(counted)
            if not kind.daemon:
                workload.append(counted)
        nothing = [0.0] * self._m
        self.together = [sum(column) for column in zip(*rows, strict=True)] or nothing
        self.workload = len(workload)
        self.workload_sum = [sum(column) for column in zip(*workload, strict=True)] or nothing  # daemons left out
        # per resource: some Pod was measured
        self.seen = [x == x or any(row[i] == row[i] for row in rows) for i, x in enumerate(self.together)]

    # ---- out

    def expected(self, i: int, extra: int, next_cost: float) -> float:
        """Usage of resource `i` by parts, with `extra` Pods counted since the last reading (or missing, if below 0)."""
        if extra < 0:
            typical = self.workload_sum[i] / self.workload if self.workload else 0.0
            return self.host.usage[i] + self.together[i] + max(extra, -self.workload) * typical
        return self.host.usage[i] + self.together[i] + (extra * next_cost if extra else 0.0)

    def kind(self, name: str) -> Kind | None:
        """A kind by name; one that only the cluster knows is made for this answer and not kept."""
        found = self.kinds.by_name.get(name)
        if found is None and (theirs := self.kinds.elsewhere.get(name)) is not None:
            found = Kind(name, False, self._m)
            found.elsewhere = theirs
            found.renew()
        return found

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "watching": self._watching,
            "counts_daemons": self.counts_daemons,
            "arrived": self.kinds.arrived,
            "kinds": {name: kind.state() for name, kind in self.kinds.by_name.items()},
            "elsewhere": [_cost_state(cost) for cost in self.kinds.elsewhere.values()],
            "pods": {uid: pod.state() for uid, pod in self.pods.items()},
            "host": self.host.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.t = None if state["t"] is None else float(state["t"])
        self._watching, self.kinds.arrived = bool(state["watching"]), bool(state["arrived"])
        self.counts_daemons = bool(state["counts_daemons"])
        self.kinds.elsewhere = {cost.kind: cost for cost in map(_cost_from_state, state["elsewhere"])}
        for name, saved in state["kinds"].items():
            kind = self.kinds.by_name[name] = Kind(name, bool(saved["daemon"]), self._m)
            kind.elsewhere = self.kinds.elsewhere.get(name)
            kind.restore(saved)
        self.pods = pods_from_state(state["pods"], self._m)
        for uid, pod in self.pods.items():
            self.kinds.by_name[pod.kind].pods[uid] = pod
        for kind in self.kinds.by_name.values():
            kind.renew()
        self.host.restore(state["host"])
        self._sum_up()


def _at_least(now: Sequence[float], cost: Sequence[float]) -> list[float]:
    """The larger of both, where known; NaN where neither is."""
    return [c if not x >= c and c == c else x for x, c in zip(now, cost, strict=True)]


def _cost_state(cost: KindCost) -> list[Any]:
    known = [[x if x == x else None for x in row] for row in (cost.cost, cost.spread)]
    return [cost.kind, *known, cost.pods_seen, cost.arrivals]


def _cost_from_state(state: Sequence[Any]) -> KindCost:
    kind, cost, spread, pods_seen, arrivals = state
    return KindCost(str(kind), _known(cost), _known(spread), int(pods_seen), float(arrivals))


def _known(row: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(nan if x is None else float(x) for x in row)
