"""What the packing policies share: Pods go to nodes that are in use, so that others stay empty and can be switched off.

Refusals are pod-capacity's: a packed node is never fuller than its number allows. Only the order of the nodes that are
left differs. It is online best fit by requests: the score of recommend/packing.py decides among nodes with Pods, and an
empty node is opened only when no other has room.

Why the best node alone gets the highest score: an extender has eleven steps, and kube-scheduler chooses among equals at
random. With scores merely scaled to 0–10 it would spread Pods over all nodes within a tenth of the best one.
"""

from abc import abstractmethod

import numpy as np

from carico_agent.schedule.nodes import Floats, NodeColumns, PendingPod
from carico_agent.schedule.policies.pod_capacity import PodCapacity
from carico_agent.schedule.policy import TOP_SCORE


class Packing(PodCapacity):
    """A policy that differs from pod-capacity in its scores only."""

    @abstractmethod
    def score(self, used: Floats, share: Floats) -> Floats:
        """How much nodes (…, N, d) are preferred for a Pod (…, d), both as shares of a node; the highest is best."""

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        if not len(nodes):
            return []
        wanted = self.preference(nodes, pod)
        wanted = np.where(np.isfinite(wanted), wanted, -np.inf)  # a node of unknown size comes last
        used = (nodes.assigned > 0) & np.isfinite(wanted)
        return _steps(np.where(used, wanted, -np.inf) if used.any() else wanted)

    def preference(self, nodes: NodeColumns, pod: PendingPod) -> Floats:
        """How much each node is preferred, NaN where its size is unknown. Nodes differ in size, so a Pod is another
        share of each of them."""
        size = np.stack([nodes.cpu, nodes.memory], axis=-1)
        used = np.stack([nodes.cpu_requested, nodes.memory_requested], axis=-1) / size
        share = np.array([pod.cpu, pod.memory]) / size
        found: Floats = self.score(used[:, None, :], share)[:, 0]
        return found


def _steps(wanted: Floats) -> list[int]:
    """10 for the first of the best, 0 to 9 for the others by how near they come.

    >>> _steps(np.array([0.1, 0.5, 0.5, -np.inf, 0.48]))
    [0, 10, 9, 0, 8]
    """
    best = int(np.argmax(wanted))
    known = np.isfinite(wanted)
    least = wanted[known].min() if known.any() else 0.0
    span = max(float(wanted[best] - least), 1e-12) if known.any() else 1.0
    steps = np.floor((TOP_SCORE - 1) * np.where(known, wanted - least, 0.0) / span).astype(int)
    steps[best] = TOP_SCORE
    scores: list[int] = steps.tolist()
    return scores
