"""procon: the node with the least contention, as the document computes it, among those with room.

*ProCon* ("Progress-based Container Scheduling for Short-lived Applications in a Kubernetes Cluster"), algorithm 2, word
for word: of the workers that are not at their upper limit the one with the least contention; if all are, the one whose
contention is least after the newcomer has come. The agent computes both (carico_agent/progress/procon.py).

Choose `least-left` instead, unless you want to compare: lab/results/progress.md has both. Equal contention is an equal
score here, as the document has no rule for it: kube-scheduler then adds its own scores and draws lots. The one thing
that is ours: a node without room is refused, as with every policy.
"""

from typing import ClassVar

import numpy as np

from carico_agent.extender.nodes import NodeColumns, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.extender.policy import TOP_SCORE


class ProCon(PodCapacity):
    """Nodes with room for one more Pod; the one with the least contention first, as in the document of ProCon.

    >>> from carico_agent.extender.nodes import NodeState
    >>> busy = NodeState("a", 8, 0, 150, contention_s=90, expected_contention_s=120, at_limit=0)
    >>> full = NodeState("b", 8, 0, 150, contention_s=10, expected_contention_s=40, at_limit=1)
    >>> ProCon().scores(NodeColumns.of([busy, full]), PendingPod("uid-1"), now_s=10)
    [10, 0]
    """

    name: ClassVar[str] = "procon"

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        if not len(nodes):
            return []
        candidates = nodes.at_limit == 0
        found = nodes.contention_s if candidates.any() else nodes.expected_contention_s
        candidates |= ~candidates.any()
        own = found[candidates]
        ranked = (TOP_SCORE - 1) * (1 - own / own.max()) if own.max() > 0 else np.zeros(len(own))
        ranked[own <= own.min() + 1e-9] = TOP_SCORE
        scores = np.zeros(len(nodes), dtype=int)
        scores[candidates] = ranked.astype(int)
        whole: list[int] = scores.tolist()
        return whole
