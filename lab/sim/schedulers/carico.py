"""carico as shipped (production model, write throttle, policy and ledger), and the dissertation's for comparison."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from carico_agent.core.estimators import HALT_S
from carico_agent.extender.nodes import NodeState, NodeTable, PendingPod
from carico_agent.extender.placement.ledger import Ledger
from carico_agent.extender.placement.lifecycle import PodEvent
from carico_agent.extender.placement.place import Place
from carico_agent.extender.policies.capacity import Capacity
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.extender.policy import Policy
from carico_agent.extender.workload_costs import ClusterCosts
from carico_agent.federation.pairwise_merge import PairwiseMerge
from carico_agent.lib.kube.workloads import UNKNOWN, NodeWorkloads
from lab.sim.cluster import SimulatedCluster
from lab.sim.fleet import AgentConfig, Fleet
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.workload import SimulatedWorkload

FEW_NODES = 100
"""Up to here kube-scheduler looks at all nodes; beyond, at a part of them (percentageOfNodesToScore, adaptive)."""


def nodes_to_find(n: int) -> int:
    """How many nodes that fit are enough, as kube-scheduler's numFeasibleNodesToFind: 50 − n/125 %, at least 5 %."""
    return n if n <= FEW_NODES else max(FEW_NODES, n * max(5, 50 - n // 125) // 100)


class Extended(SimulatedScheduler):
    """kube-scheduler with our extender: filter, prioritize, ties at random. What it counts is up to the subclass."""

    def __init__(self, agents: AgentConfig, policy: Policy[Any] | None = None) -> None:
        self.agents, self.policy = agents, policy or PodCapacity()

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        super().begin(cluster, workloads, rng)
        self.states = [NodeState(str(i), prior_places=self.prior_places()) for i in range(cluster.n)]
        self.table, self.ledger = NodeTable(cluster.n), Ledger()
        for state in self.states:
            self.table.put(state)
        names = [self.template(workload) for workload in workloads]
        self.fleet = Fleet(cluster, self.agents, names, self.on_published)
        self._from = 0
        self._pods = [PendingPod("", name) for name in names]
        self._costs = ClusterCosts()
        # Nodes that may take a Pod of a workload: not refused since anything about them changed. Only time passes
        # between two changes, and time only closes nodes, so asking the others again would give the same refusal.
        # Without this 5,000 nodes are asked for every single Pod.
        self._open = np.ones((len(workloads), cluster.n), dtype=bool)

    def prior_places(self) -> float:
        return inf

    def template(self, workload: SimulatedWorkload) -> str:
        """The name under which Pods of this workload are known."""
        return workload.name

    def tick(self) -> None:
        self.fleet.tick()
        if round(self.cluster.t * 10) % 10 == 0:
            self.ledger.expire(self.cluster.t)
            for node, state in enumerate(self.states):
                if state.unprofiled or state.starting:
                    self._refresh(node)
            self._renew_pods()

    def _renew_pods(self) -> None:
        """What the cluster knows about each workload, as the extender asks for every Pod."""
        now_s = self.cluster.t
        for number, pod in enumerate(self._pods):
            cost, surprised_for_s = (
                self._costs.of(pod.workload, now_s),
                self._costs.surprised_for_s(pod.workload, now_s),
            )
            if cost != pod.elsewhere or surprised_for_s != pod.surprised_for_s:
                self._pods[number] = replace(pod, elsewhere=cost, surprised_for_s=surprised_for_s)
                self._open[number] = True

    def on_published(
        self, node: int, value: float, published_s: float, ttl_s: float, workloads: NodeWorkloads | None
    ) -> None:
        state = self.states[node]
        state.places, state.published_s, state.ttl_s, state.workloads = value, published_s, ttl_s, workloads
        self._costs.put(state.name, workloads, self.cluster.t)
        self._renew_pods()
        self._refresh(node)

    def _refresh(self, node: int) -> None:
        state, now_s = self.states[node], self.cluster.t
        self.ledger.show(state, now_s)
        workloads = state.workloads
        state.left = (
            UNKNOWN if workloads is None else self._costs.left(workloads, self.ledger.workloads(state.name), now_s)
        )
        self.table.put(state)
        self._open[:, node] = True

    def pick(self, pod: int) -> int | None:
        now_s, n = self.cluster.t, self.cluster.n
        workload = self.cluster.pods.workload[pod]
        shown, may = self._pods[workload], self._open[workload]
        asked = np.flatnonzero(may)
        asked = np.roll(asked, -int(np.searchsorted(asked, self._from)))
        passed = self.policy.fits(self.table.at(asked), shown, now_s) if len(asked) else np.zeros(0, dtype=bool)
        may[asked[~passed]] = False
        fits = asked[passed][: nodes_to_find(n)]
        last = int(fits[-1] - self._from) % n if len(fits) == nodes_to_find(n) else n - 1
        self._from = (self._from + last + 1) % n
        if not len(fits):
            return None
        scores = np.array(self.policy.scores(self.table.at(fits), shown, now_s))
        top = np.flatnonzero(scores == scores.max())
        return int(fits[int(top[0] if len(top) == 1 else self.rng.choice(top))])

    def bound(self, pod: int, node: int) -> None:
        self._apply(PodEvent.SEEN_BOUND, pod, node)

    def _apply(self, event: PodEvent, pod: int, node: int) -> None:
        place = Place(str(node), self._pods[self.cluster.pods.workload[pod]].workload)
        self.ledger.apply(event, str(pod), self.cluster.t, place)
        self._refresh(node)


class Carico(Extended):
    """available = places − all Pods assigned and unfinished."""

    name = "carico"

    def __init__(self, agents: AgentConfig | None = None, policy: Policy[Any] | None = None) -> None:
        super().__init__(agents or AgentConfig(), policy)

    def prior_places(self) -> float:
        return 2.0 * self.cluster.machine.cores

    def on_started(self, pod: int, node: int) -> None:
        self._apply(PodEvent.SEEN_RUNNING, pod, node)

    def on_ended(self, pod: int, node: int) -> None:
        self._apply(PodEvent.GONE, pod, node)


PAPER_AGENTS = AgentConfig("paper-dual", None, {"settle_s": HALT_S}, aggregator=PairwiseMerge)
"""The document's chain: dual filter, numbers once a second, the aggregation server's queue of pairwise merges."""


class PaperCarico(Extended):
    """Pod-Capacity − Pods reserved (the policy capacity); a reservation ends when its Pod starts (3.6). 1 Hz."""

    name = "paper CARICO"

    def __init__(self, agents: AgentConfig | None = None) -> None:
        super().__init__(
            agents or PAPER_AGENTS,
            Capacity(),
        )

    def on_published(
        self, node: int, value: float, published_s: float, ttl_s: float, workloads: NodeWorkloads | None
    ) -> None:
        self.states[node].pod_capacity = value
        super().on_published(node, value, published_s, ttl_s, workloads)

    def on_started(self, pod: int, node: int) -> None:
        self._apply(PodEvent.GONE, pod, node)

    def on_ended(self, pod: int, node: int) -> None:
        self._apply(PodEvent.GONE, pod, node)
