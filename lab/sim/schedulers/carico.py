"""carico as shipped (production model, write throttle, policy and ledger), and the paper's CARICO for comparison."""

from math import inf

import numpy as np

from carico_agent.schedule.policy import Ledger, NodeState, PendingPod, Place, PodCapacity, Policy
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
        self.views = [NodeState(str(i), prior_slots=self.prior_slots()) for i in range(cluster.n)]
        self.ledger = Ledger()
        self.fleet = Fleet(cluster, self.agents, self.hear)
        self._from = 0
        self._pods = [PendingPod("", kind.name) for kind in kinds]
        # Nodes that may take a Pod of a kind: not refused since anything about them changed. Only time passes between
        # two changes, and time only closes nodes, so asking the others again would give the same refusal. Without this
        # 5,000 nodes are asked for every single Pod.
        self._open = np.ones((len(kinds), cluster.n), dtype=bool)

    def prior_slots(self) -> float:
        return inf

    def tick(self) -> None:
        self.fleet.tick()
        if round(self.cluster.t * 10) % 10 == 0:
            for view in self.views:
                if view.unprofiled or view.starting:
                    self._show(int(view.name))

    def hear(self, node: int, value: float, published_s: float, ttl_s: float) -> None:
        view = self.views[node]
        view.slots, view.published_s, view.ttl_s = value, published_s, ttl_s
        self._open[:, node] = True

    def _show(self, node: int) -> None:
        self.ledger.show(self.views[node], self.cluster.t)
        self._open[:, node] = True

    def pick(self, pod: int) -> int | None:
        now_s, policy, n = self.cluster.t, self.policy, self.cluster.n
        shown, may = self._pods[self.cluster.pods.kind[pod]], self._open[self.cluster.pods.kind[pod]]
        enough, fits, last = nodes_to_find(n), [], n - 1
        asked = np.flatnonzero(may)
        first = int(np.searchsorted(asked, self._from))
        for node in [*asked[first:].tolist(), *asked[:first].tolist()]:
            if policy.refusal(self.views[node], shown, now_s) is not None:
                may[node] = False
                continue
            fits.append(node)
            if len(fits) >= enough:
                last = (node - self._from) % n
                break
        self._from = (self._from + last + 1) % n
        if not fits:
            return None
        scores = np.array(policy.scores([self.views[node] for node in fits], shown, now_s))
        top = np.flatnonzero(scores == scores.max())
        return fits[int(top[0] if len(top) == 1 else self.rng.choice(top))]

    def bound(self, pod: int, node: int) -> None:
        self._put(pod, node, running=False)

    def _put(self, pod: int, node: int, running: bool) -> None:
        place = Place(str(node), self._pods[self.cluster.pods.kind[pod]].kind, running)
        self.ledger.put(str(pod), place, self.cluster.t)
        self._show(node)

    def _free(self, pod: int, node: int) -> None:
        self.ledger.release(str(pod), self.cluster.t)
        self._show(node)


class Carico(Extended):
    """available = slots − all Pods assigned and unfinished."""

    name = "carico"

    def __init__(self, agents: AgentConfig | None = None, policy: Policy | None = None) -> None:
        super().__init__(agents or AgentConfig(), policy)

    def prior_slots(self) -> float:
        return 2.0 * self.cluster.machine.cores

    def heard_start(self, pod: int, node: int) -> None:
        self._put(pod, node, running=True)

    def heard_end(self, pod: int, node: int) -> None:
        self._free(pod, node)


class PaperCarico(Extended):
    """available = Pod-Capacity − Pods reserved; a reservation ends when its Pod starts (paper 3.6). 1 Hz."""

    name = "paper CARICO"

    def __init__(self, agents: AgentConfig | None = None) -> None:
        super().__init__(agents or AgentConfig(estimator="paper-dual", throttle=None), PodCapacity(starting_ratio=1.0))

    def heard_start(self, pod: int, node: int) -> None:
        self._free(pod, node)

    def heard_end(self, pod: int, node: int) -> None:
        self._free(pod, node)
