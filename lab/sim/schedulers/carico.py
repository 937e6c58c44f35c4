"""carico as shipped (production model, gate, policy and ledger), and the paper's CARICO for comparison."""

import numpy as np

from carico_agent.schedule.policy import Ledger, NodeView, PodCapacity, PodView, Policy
from lab.sim.cluster import Cluster
from lab.sim.fleet import AgentConfig, Fleet
from lab.sim.schedulers.base import Scheduler
from lab.sim.workload import Kind

FEW_NODES = 100
"""Up to here kube-scheduler looks at all nodes; beyond, at a part of them (percentageOfNodesToScore, adaptive)."""


def nodes_to_find(n: int) -> int:
    """How many nodes that fit are enough, as kube-scheduler's numFeasibleNodesToFind: 50 − n/125 %, at least 5 %."""
    return n if n <= FEW_NODES else max(FEW_NODES, n * max(5, 50 - n // 125) // 100)


class Extended(Scheduler):
    """kube-scheduler with our extender: filter, prioritize, ties at random. What it counts is up to the subclass."""

    def __init__(self, agents: AgentConfig, policy: Policy | None = None) -> None:
        self.agents, self.policy = agents, policy or PodCapacity()

    def begin(self, cluster: Cluster, kinds: list[Kind], rng: np.random.Generator) -> None:
        super().begin(cluster, kinds, rng)
        self.views = [NodeView(str(i)) for i in range(cluster.n)]
        self.ledger = Ledger()
        self.fleet = Fleet(cluster, self.agents, self.hear)
        self._from = 0
        self._pods = [PodView("", kind.name) for kind in kinds]

    def tick(self) -> None:
        self.fleet.tick()

    def hear(self, node: int, value: float, said_s: float, ttl_s: float) -> None:
        view = self.views[node]
        view.slots, view.said_s, view.ttl_s = value, said_s, ttl_s

    def pick(self, pod: int) -> int | None:
        now_s, policy, n = self.cluster.t, self.policy, self.cluster.n
        shown = self._pods[self.cluster.pods.kind[pod]]
        enough, fits = nodes_to_find(n), []
        for step in range(n):
            node = (self._from + step) % n
            if policy.refusal(self.views[node], shown, now_s) is None:
                fits.append(node)
                if len(fits) >= enough:
                    break
        self._from = (self._from + step + 1) % n
        if not fits:
            return None
        scores = np.array(policy.scores([self.views[node] for node in fits], shown, now_s))
        top = np.flatnonzero(scores == scores.max())
        return fits[int(top[0] if len(top) == 1 else self.rng.choice(top))]

    def bound(self, pod: int, node: int) -> None:
        self.ledger.assign(str(pod), str(node))
        self._count(node)

    def _free(self, pod: int, node: int) -> None:
        self.ledger.release(str(pod))
        self._count(node)

    def _count(self, node: int) -> None:
        view, name = self.views[node], str(node)
        view.assigned, view.starting = self.ledger.count(name), self.ledger.starting(name)


class Carico(Extended):
    """available = slots − all Pods assigned and unfinished."""

    name = "carico"

    def __init__(self, agents: AgentConfig | None = None, policy: Policy | None = None) -> None:
        super().__init__(agents or AgentConfig(), policy)

    def heard_start(self, pod: int, node: int) -> None:
        self.ledger.run(str(pod), str(node))
        self._count(node)

    def heard_end(self, pod: int, node: int) -> None:
        self._free(pod, node)


class PaperCarico(Extended):
    """available = Pod-Capacity − Pods reserved; a reservation ends when its Pod starts (paper 3.6). 1 Hz, dual filter."""

    name = "paper CARICO"

    def __init__(self, agents: AgentConfig | None = None) -> None:
        super().__init__(agents or AgentConfig(estimator="paper-dual", gate=None), PodCapacity(starting_ratio=1.0))

    def heard_start(self, pod: int, node: int) -> None:
        self._free(pod, node)

    def heard_end(self, pod: int, node: int) -> None:
        self._free(pod, node)
