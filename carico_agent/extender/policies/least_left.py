"""least-left: the node on which the least work is left first, among those with room.

Work left is what the jobs of a node still need of CPU time, by their own reports (docs/progress.md). What is compared
is by how much the newcomer and the jobs of a node would delay each other. Where jobs share the CPU, a newcomer of x CPU
seconds and a job with l left are together for min(l, x) of each one's work: so it is Σ min(l, x), per core.

Why not Σ l alone, as it was until now: a job with hours left delays a newcomer of a minute by a minute. On the
document's random schedules Σ l was 0.962 to 1.018 times the mean completion time of counting Pods; Σ min(l, x) is 0.947
to 0.997. On the two schedules with far more work than the nodes can do that is within noise (lab/results/progress.md):
there counting Pods is as good.

Why x is half of what the running jobs need from start to end: the work of the newcomer is not known, and short jobs are
many among those that come while long ones are many among those that run. With the exact x the result is that of an
oracle.

Why not the original's contention rate Σi − max i (*ProCon*, algorithm 1): a node with one job and an empty one tie at
0, and the newcomer goes to either; with random ties it is worse than counting Pods (lab/results/progress.md). Σ alone
needs no tie-break rule but one.

Why Pods of which nothing is known count as the mean job of the cluster: a Pod says nothing in its first seconds, and
ten Pods that come at once would all go to the node with least work left. Where no job reports at all, what remains is
the number of Pods per core. Of Pods that do not report but belong to a Kubeflow TrainJob, its own status says how long
they take (train_jobs.py).
"""

from math import inf
from typing import ClassVar

import numpy as np

from carico_agent.extender.nodes import Floats, NodeColumns, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.extender.policy import TOP_SCORE

NEWCOMER = 0.5
"""Of what a running job needs from start to end."""


class LeastLeft(PodCapacity):
    """Nodes with room for one more Pod; the one with the least work left per core first.

    >>> from carico_agent.extender.nodes import NodeState
    >>> done = NodeState("a", 8, 0, 150, assigned=2, cpu=4, work_jobs=2, work_s=10)
    >>> long = NodeState("b", 8, 0, 150, assigned=1, cpu=4, work_jobs=1, work_s=600)
    >>> LeastLeft().scores(NodeColumns.of([done, long]), PendingPod("uid-1"), now_s=10)
    [10, 0]
    """

    name: ClassVar[str] = "least-left"
    reads_train_jobs: ClassVar[bool] = True

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        """The best alone gets 10: kube-scheduler adds other scores, and a tie would leave the choice to them."""
        if not len(nodes):
            return []
        left = work_left(nodes)
        best = np.lexsort((nodes.assigned, left))[0]
        most = left.max()
        others = (TOP_SCORE - 1) * (1 - left / most) if most > 0 else np.zeros(len(left))
        scores = others.astype(int)
        scores[best] = TOP_SCORE
        found: list[int] = scores.tolist()
        return found


def work_left(nodes: NodeColumns) -> Floats:
    """Work that a newcomer would share with those on each node, per core [s], with the Pods of which nothing is known.
    Cores count only where all nodes say theirs."""
    jobs, max_s = nodes.work_jobs, newcomer_s(nodes)
    known, known_s = (jobs + nodes.train_pods).sum(), (nodes.work_s + nodes.train_s).sum()
    mean_s = min(known_s / known if known and known_s > 0 else 1.0, max_s)
    silent = np.maximum(0.0, nodes.assigned - jobs)
    trained = np.minimum(silent, nodes.train_pods)  # a Pod that reports to its node as well is counted there
    train_s = np.divide(nodes.train_s, nodes.train_pods, out=np.zeros(len(nodes)), where=nodes.train_pods > 0)
    all_s = shared_s(nodes, max_s) + trained * np.minimum(train_s, max_s) + (silent - trained) * mean_s
    cores = nodes.cpu if np.isfinite(nodes.cpu).all() else np.ones(len(nodes))
    left: Floats = all_s / cores
    return left


def newcomer_s(nodes: NodeColumns) -> float:
    """What the newcomer is taken to need [CPU seconds]; inf while no node knows what a whole job needs."""
    known = np.isfinite(nodes.run_s) & (nodes.work_jobs > 0)
    if not known.any():
        return inf
    return float(NEWCOMER * np.average(nodes.run_s[known], weights=nodes.work_jobs[known]))


def shared_s(nodes: NodeColumns, max_s: float) -> Floats:
    """Σ min(l, max_s) of the jobs of each node; those that are not published one by one count with their mean."""
    if max_s == inf:
        return nodes.work_s
    found = np.zeros(len(nodes))
    for at, lefts in enumerate(nodes.lefts_s()):
        others = max(0.0, nodes.work_jobs[at] - len(lefts))
        rest_s = max(0.0, nodes.work_s[at] - sum(lefts)) / others if others else 0.0
        found[at] = sum(min(one, max_s) for one in lefts) + others * min(rest_s, max_s)
    return found
