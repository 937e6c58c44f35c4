"""`kubectl carico drain-check`: what becomes of the Pods of a node, by requests and by use, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from carico_agent.kubectl.cells import Cell, number
from carico_agent.kubectl.drain.planner import TRIES, DrainPlan, Fate, drain
from carico_agent.kubectl.drain.reading import ReadCluster
from carico_agent.kubectl.drain.state import TrialCluster
from carico_agent.kubectl.tables import Column, Table, TableRow

PODS = (
    Column("namespace"),
    Column("pod"),
    Column("workload", wide=True),
    Column("by-requests"),
    Column("by-use"),
    Column("note"),
    Column("why"),
)
NODES = (
    Column("node"),
    Column("pods"),
    Column("left-over"),
    Column("left-over-by-use"),
    Column("kept"),
    Column("bare"),
    Column("local-data"),
    Column("verdict"),
)


@dataclass(frozen=True)
class NodeCheck:
    """One node's drain, planned by requests and, where nodes publish their room, by use."""

    node: str
    requests: DrainPlan
    use: DrainPlan | None

    @property
    def kept(self) -> list[Fate]:
        return [fate for fate in self.requests.fates if fate.stays]

    @property
    def bare(self) -> list[Fate]:
        return [fate for fate in self.requests.fates if not fate.pod.owner[0]]

    @property
    def left_over(self) -> int:
        """How many Pods fit nowhere at worst, without those that a budget keeps or that have no controller."""
        return max(self.requests.displaced, default=0)

    @property
    def left_over_by_use(self) -> int | None:
        return None if self.use is None else max(self.use.displaced, default=0)

    @property
    def clear(self) -> bool:
        """All Pods would go, and run elsewhere."""
        return not self.requests.left_over and not self.left_over_by_use

    @property
    def verdict(self) -> str:
        if self.clear:
            return "can be drained"
        if self.kept:
            return "a PodDisruptionBudget keeps Pods"
        if self.left_over:
            return "Pods fit nowhere else" if min(self.requests.displaced) else "Pods may fit nowhere else"
        return "bare Pods would be lost" if self.bare else "Pods fit by requests but not by use"


@dataclass
class Checker:
    """Both situations, made once for all nodes."""

    cluster: ReadCluster
    tries: int = TRIES
    in_order: bool = False

    def __post_init__(self) -> None:
        self._requests = self.cluster.by_requests()
        self._use = self.cluster.by_use() if self.cluster.measured else None

    def check(self, node: str) -> NodeCheck:
        return NodeCheck(node, self._plan(self._requests, node), None if not self._use else self._plan(self._use, node))

    def _plan(self, situation: TrialCluster, node: str) -> DrainPlan:
        return drain(situation, [node], self.cluster.budgets, self.cluster.waiting, self.tries, in_order=self.in_order)


def pods_table(check: NodeCheck) -> Table:
    by_use = {} if check.use is None else {fate.pod.uid: fate for fate in check.use.fates}
    rows = [_pod_row(fate, by_use.get(fate.pod.uid)) for fate in check.requests.fates]
    rows.sort(key=lambda row: (str(row.cell("by-requests").value)[:4] not in ("left", "kept", "lost"),))
    return Table("pods", PODS, tuple(rows))


def _pod_row(fate: Fate, use: Fate | None) -> TableRow:
    pod = fate.pod
    why = fate.why or (use.why if use else "")
    return TableRow(
        {
            "namespace": Cell(pod.namespace),
            "pod": Cell(pod.name),
            "workload": Cell(pod.workload),
            "by-requests": Cell(said(fate)),
            "by-use": Cell(said(use) if use else None),
            "note": Cell("loses local data" if pod.local_data else ""),
            "why": Cell(why),
        }
    )


def said(fate: Fate) -> str:
    """Where a Pod goes, in a few words."""
    if not fate.left_over:
        return fate.to[0]
    if not fate.pod.owner[0]:
        return "lost (bare Pod)"
    word = "kept" if fate.stays else "left over"
    return word if fate.left_over == fate.tries else f"{word} in {fate.left_over} of {fate.tries} tries"


def nodes_table(checks: Sequence[NodeCheck]) -> Table:
    rows = tuple(
        TableRow(
            {
                "node": Cell(one.node),
                "pods": number(len(one.requests.fates), "pods"),
                "left-over": number(one.left_over, "pods"),
                "left-over-by-use": number(one.left_over_by_use, "pods"),
                "kept": number(len(one.kept), "pods"),
                "bare": number(len(one.bare), "pods"),
                "local-data": number(sum(fate.pod.local_data for fate in one.requests.fates), "pods"),
                "verdict": Cell(one.verdict),
            }
        )
        for one in checks
    )
    return Table("nodes", NODES, rows)
