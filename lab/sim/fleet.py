"""One carico agent per node: the production model, contention rule and write throttle, fed with simulated telemetry."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from carico_agent.core import CapacityModel, Estimate, ModelConfig, WorkloadCost
from carico_agent.federation.cluster_workloads import merge_nodes
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Moments
from carico_agent.federation.pairwise_merge import PairwiseMerge
from carico_agent.federation.wire_workloads import to_node
from carico_agent.federation.workloads import ReportedWorkloads
from carico_agent.lib.kube.workloads import NodeWorkloads
from carico_agent.node.publish.node_reasons import WORKLOADS_INTERVAL_S
from carico_agent.node.publish.node_workloads import moved, node_workloads
from carico_agent.node.publish.status import AgentFacts, status_of
from carico_agent.node.publish.throttle import ThrottleConfig, WriteThrottle
from carico_agent.node.sampling.contention import contention
from lab.sim.cluster import SimulatedCluster
from lab.sim.meter import SimulatedMeter


@dataclass(frozen=True)
class Faults:
    """What goes wrong between the node and the scheduler."""

    delay_s: float = 0.2
    """From the node's decision to publish to the scheduler's view [s]."""
    silent: frozenset[int] = frozenset()
    """Nodes that never publish again after `silent_from_s`."""
    silent_from_s: float = 0.0


@dataclass(frozen=True)
class AgentConfig:
    estimator: str = "resource-space"
    throttle: ThrottleConfig | None = field(default_factory=ThrottleConfig)
    """None publishes every second, as the paper does."""
    model: dict[str, object] = field(default_factory=dict)
    """Parameters of the ModelConfig that differ from its defaults."""
    faults: Faults = Faults()
    aggregator: type[Moments] | type[PairwiseMerge] | None = None
    """How nodes share what they know: production's exact moments, the paper's pairwise merges, or not at all."""
    measured: bool = True
    """Every Pod is measured, as on a node with cgroups. The paper's estimators know the number of Pods alone."""


SHARE_WEIGHT = 0.5


def _reported(resources: tuple[str, ...], workloads: Sequence[WorkloadCost]) -> ReportedWorkloads:
    """As the aggregator reads it; nodes are alike here, so a share is an amount."""
    rows = [[*one.cost, *one.spread, one.pods_seen, one.arrivals] for one in workloads]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 2 * len(resources) + 2)
    return ReportedWorkloads(resources, tuple(one.workload for one in workloads), table, b"")


OnPublished = Callable[[int, float, float, float, NodeWorkloads | None], None]
"""on_published(node, slots or Pod-Capacity, when it was true [s], how long to believe it [s], room and workloads)"""


class Fleet:
    """All agents. `tick` every 100 ms; what they publish reaches `on_published` after the delay."""

    def __init__(
        self, cluster: SimulatedCluster, config: AgentConfig, workloads: Sequence[str], on_published: OnPublished
    ) -> None:
        self.cluster, self.config, self._on_published = cluster, config, on_published
        self._cores = cluster.cores.astype(int).tolist()
        models = [
            ModelConfig(cores=cores, estimator=config.estimator, max_pods=110, **config.model) for cores in self._cores
        ]
        self.models = [CapacityModel(("cpu", "memory"), model) for model in models]
        self.throttles = [WriteThrottle(config.throttle) if config.throttle else None for _ in range(cluster.n)]
        self.estimates: list[Estimate | None] = [None] * cluster.n
        self.published = np.full(cluster.n, np.nan)
        self.writes = 0
        self._post: list[tuple[float, int, int, float, float, float, NodeWorkloads | None]] = []
        self._ticks = 0
        measured = config.measured and config.estimator == ModelConfig.estimator
        self._meter = SimulatedMeter(cluster, workloads) if measured else None
        self._facts = [
            AgentFacts(sizes={"cpu": 2.0 * cores, "memory": mib * 2**20})
            for cores, mib in zip(cluster.cores.tolist(), cluster.memory_mib.tolist(), strict=True)
        ]
        self._written: list[NodeWorkloads | None] = [None] * cluster.n
        self._wrote_s = [0.0] * cluster.n
        self._aggregator = config.aggregator() if config.aggregator else None

    def tick(self) -> None:
        t = self.cluster.t
        utilisation, pressure, memory = self.cluster.telemetry()
        counts, churn = self.cluster.running.tolist(), (self.cluster.churn_until_s > t).tolist()
        turns = (self._ticks + np.arange(self.cluster.n)) % 10 == 0  # once a second, not all nodes at once
        read = self._meter.read(turns) if self._meter else {}
        samples = zip(self.models, utilisation.tolist(), pressure.tolist(), memory.tolist(), counts, churn, strict=True)
        for i, (model, u, p, m, pods, churning) in enumerate(samples):
            model.observe(t, ((u + contention(p, u, self._cores[i])) / 2, m), pods, churning)
            if i in read:
                model.observe_pods(t, read[i])
            if turns[i]:
                self._publish(i, t, model.estimate())
        self._ticks += 1
        if self._aggregator is not None and self._ticks % 10 == 0:  # an empty one is falsy
            self._share(self._aggregator)
        self._deliver(t)

    def _share(self, cluster: Moments | PairwiseMerge) -> None:
        """Once a second: every node sends its local model and takes the cluster's, at production's default weight."""
        reports = []
        for i, model in enumerate(self.models):
            cost, precision = model.local_cost
            cluster.put(str(i), Contribution(model.resources, model.subspace, 10, cost, precision, model.pods))
            reports.append(_reported(model.resources, model.local_workloads()))
        if not len(cluster):
            return  # the first second: nobody has closed a batch yet
        sums = cluster.sums()
        view = sums.subspace()
        cost, precision = (np.nan_to_num(part) for part in sums.mean_cost())
        *_, workloads = merge_nodes(reports)
        assert workloads is not None
        for model in self.models:
            model.merge(view, SHARE_WEIGHT)
            model.learn_cost(np.minimum(cost, 1.0).tolist(), precision.tolist())
            model.learn_workloads(to_node(workloads, model.resources, np.ones(len(model.resources))))

    def _publish(self, i: int, t: float, estimate: Estimate) -> None:
        self.estimates[i] = estimate
        faults, throttle = self.config.faults, self.throttles[i]
        if i in faults.silent and t >= faults.silent_from_s:
            return
        value, ttl_s, workloads = estimate.pod_capacity, 1e9, self._workloads(i, estimate)
        if throttle is not None:
            summary = throttle.summary(estimate.slots, estimate.mode)
            if throttle.reason(t, summary) is None and not self._worth(i, t, workloads):
                return
            throttle.wrote(t, summary)
            value, ttl_s = float("nan") if summary.slots is None else float(summary.slots), throttle.config.ttl_s
        self.writes += 1
        self._written[i], self._wrote_s[i] = workloads, t
        heapq.heappush(self._post, (t + faults.delay_s, self.writes, i, value, t, ttl_s, workloads))

    def _worth(self, i: int, t: float, workloads: NodeWorkloads | None) -> bool:
        """A workload's cost has changed, as production's writer judges it."""
        return t - self._wrote_s[i] >= WORKLOADS_INTERVAL_S and moved(self._written[i], workloads) is not None

    def _workloads(self, i: int, estimate: Estimate) -> NodeWorkloads | None:
        """What the node's annotation says, by production's own function."""
        if not estimate.measured:
            return None
        status = status_of("", self.models[0].resources, estimate, {}, self._facts[i])
        return node_workloads(status, {workload.workload: workload.pods for workload in estimate.workloads})

    def _deliver(self, t: float) -> None:
        while self._post and self._post[0][0] <= t:
            _, _, node, value, published_s, ttl_s, workloads = heapq.heappop(self._post)
            self.published[node] = value
            self._on_published(node, value, published_s, ttl_s, workloads)
