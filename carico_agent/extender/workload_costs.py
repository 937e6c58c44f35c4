"""What Pods take of nodes that publish their room (kube/workloads.py): the places rule, in resources.

    left = room − Σ over workloads of (Pods assigned − Pods that are in `room` already) × what one of its Pods takes

Room and the Pods that are in it were published together, so neither is a Pod counted twice nor missed, however old they
are: one that has started since is in neither, one that has ended since gives its room back at once.

What one takes: as this node has learned it, else as other nodes have, else what it requests, else the prior: one core
(the Pod that *CARICO* starts from). A Pod of which this node has learned nothing gives nothing back when it ends: what
it took is unknown until the node publishes again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf, nan
from statistics import median

from carico_agent.lib.kube.workloads import RESOURCES, Amounts, NodeWorkloads

PRIOR_CORES = 1.0
MAX_ASKED = 101
"""Nodes whose costs make the one of the cluster; more change it by less than nodes differ."""
CACHED_S = 10.0
"""How long that may be old [s]: a median of 101 nodes takes 60 µs, and it hardly moves."""


SURPRISE_RATIO = 2.0
"""A workload surprises when a node finds that it takes this much more than it did there."""
REFERENCE_S = 180.0
"""What it took is what the node said so long ago at most [s]."""


@dataclass(slots=True)
class WorkloadTally:
    """The Pods of one workload on one node."""

    pods: int = 0
    unrequested: int = 0
    """Those that do not say what CPU they need."""
    cpu: float = 0.0
    """What all request [cores]."""
    memory: float = 0.0
    """The same [bytes]."""


def is_known(cost: Amounts) -> bool:
    return cost[0] == cost[0] or cost[1] == cost[1]


def requested(cpu: float, memory: float) -> Amounts:
    return cpu, memory, nan, nan


class ClusterCosts:
    """What workloads take on the nodes that know them: the median, which one node that publishes nonsense hardly moves.

    >>> from carico_agent.lib.kube.workloads import WorkloadOnNode
    >>> costs = ClusterCosts()
    >>> for name, cpu in (("a", 0.4), ("b", 0.5), ("liar", 1e5)):
    ...     costs.put(name, NodeWorkloads(workloads={"shop/web": WorkloadOnNode((cpu, nan, nan, nan))}))
    >>> costs.of("shop/web", now_s=0.0), costs.of("shop/cache", now_s=0.0)
    ((0.5, nan, nan, nan), None)
    """

    def __init__(self) -> None:
        self._nodes: dict[str, NodeWorkloads] = {}
        self._by_workload: dict[str, dict[str, Amounts]] = {}
        self._medians: dict[str, tuple[float, Amounts]] = {}  # until when, what
        self._before: dict[
            tuple[str, str], tuple[float, Amounts]
        ] = {}  # by node and workload: since when, what it took
        self._surprised_s: dict[str, float] = {}  # by workload: when a node last found it far more expensive

    def put(self, node: str, workloads: NodeWorkloads | None, now_s: float = 0.0) -> None:
        """What `node` publishes now; None: nothing, or it is gone."""
        old = self._nodes.pop(node, None)
        for name in () if old is None else old.workloads:
            known = self._by_workload.get(name, {})
            known.pop(node, None)
            if not known:
                self._by_workload.pop(name, None)
                self._medians.pop(name, None)
            if workloads is None or name not in workloads.workloads:
                self._before.pop((node, name), None)
        if workloads is None:
            return
        self._nodes[node] = workloads
        for name, workload in workloads.workloads.items():
            if is_known(workload.cost):
                self._by_workload.setdefault(name, {})[node] = workload.cost
                self._compare(node, name, workload.cost, now_s)

    def _compare(self, node: str, name: str, cost: Amounts, now_s: float) -> None:
        """Whether a workload surprises: it takes far more here than it did, in one of its resources."""
        since_s, before = self._before.get((node, name), (now_s, cost))
        if any(now > SURPRISE_RATIO * was for now, was in zip(cost, before, strict=True)):
            self._surprised_s[name] = now_s
            self._medians.pop(name, None)
            since_s, before = now_s, cost
        elif now_s - since_s >= REFERENCE_S:
            since_s, before = now_s, cost
        self._before[node, name] = since_s, before

    def surprised_for_s(self, workload: str, now_s: float) -> float:
        """How long ago a node found that this workload takes twice what it did [s]; infinite: none has."""
        return now_s - self._surprised_s.get(workload, -inf)

    def known(self) -> dict[str, int]:
        """Every workload that some node knows, with the number of nodes that do."""
        return {workload: len(nodes) for workload, nodes in self._by_workload.items()}

    def of(self, workload: str, now_s: float) -> Amounts | None:
        """None: no node knows this workload."""
        known = self._by_workload.get(workload)
        if known is None:
            return None
        until_s, found = self._medians.get(workload, (0.0, None))
        if found is None or now_s >= until_s:
            found = _median(list(islice(known.values(), MAX_ASKED)))
            self._medians[workload] = now_s + CACHED_S, found
        return found

    def one_of(self, node: NodeWorkloads, workload: str, tally: WorkloadTally, now_s: float) -> Amounts:
        """What one Pod of this workload takes on `node`, or will."""
        if (listed := node.workloads.get(workload)) is not None and is_known(listed.cost):
            return listed.cost
        if (found := self.of(workload, now_s)) is not None:
            return found
        if tally.pods and not tally.unrequested:
            return requested(tally.cpu / tally.pods, tally.memory / tally.pods)
        cpu, *others = node.next
        return max(PRIOR_CORES, cpu if cpu == cpu else 0.0), others[0], others[1], others[2]

    def left(self, node: NodeWorkloads, assigned: Mapping[str, WorkloadTally], now_s: float) -> Amounts:
        """What is left on `node` after those Pods which its room does not account for yet.

        >>> from carico_agent.lib.kube.workloads import WorkloadOnNode
        >>> web = {"shop/web": WorkloadOnNode((0.5, 1e8, nan, nan), pods=3)}
        >>> node = NodeWorkloads(room=(2.0, 1e9, nan, nan), workloads=web)
        >>> ClusterCosts().left(node, {"shop/web": WorkloadTally(pods=5)}, now_s=0.0)[0]
        1.0
        """
        taken, others = [0.0] * len(RESOURCES), 0
        for name, tally in assigned.items():
            listed = node.workloads.get(name)
            if listed is None:
                others += tally.pods
            elif tally.pods > listed.pods or (tally.pods < listed.pods and is_known(listed.cost)):
                _take(taken, tally.pods - listed.pods, self.one_of(node, name, tally, now_s))
        for name, listed in node.workloads.items():
            if listed.pods and name not in assigned and is_known(listed.cost):
                _take(taken, -listed.pods, listed.cost)
        if others > node.other:
            coming = (others - node.other) / others
            for name, tally in assigned.items():
                if name not in node.workloads:
                    _take(taken, tally.pods * coming, self.one_of(node, name, tally, now_s))
        return less(node.room, 1.0, (taken[0], taken[1], taken[2], taken[3]))


def less(left: Amounts, pods: float, cost: Amounts) -> Amounts:
    """`left` without so many Pods of a cost. What is not known of the cost takes nothing."""
    a, b, c, d = (have - pods * one if one == one else have for have, one in zip(left, cost, strict=True))
    return a, b, c, d


def _take(taken: list[float], pods: float, cost: Amounts) -> None:
    for at, one in enumerate(cost):
        if one == one:
            taken[at] += pods * one


def _median(costs: list[Amounts]) -> Amounts:
    columns = [[one for one in column if one == one] for column in zip(*costs, strict=True)]
    a, b, c, d = (median(column) if column else nan for column in columns)
    return a, b, c, d
