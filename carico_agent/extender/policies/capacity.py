"""capacity: filter, score and reserve of *CARICO* (section 3.6) as written: Pod-Capacity − reserved.

A reservation begins with the binding and ends when the Pod runs. The node's number is up to a second older than that,
so for a moment the Pod is counted twice or not at all: docs/paper.md has what this costs. `pod-capacity` counts slots
instead and is the default. Agents write Pod-Capacity whenever its whole part changes with `[model] method = "carico"`;
with `measured` they write when slots change, which Pod-Capacity does not follow, so use this policy with carico only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from carico_agent.extender.nodes import Floats, NodeColumns, PendingPod
from carico_agent.extender.policy import TOP_SCORE, Policy, Reason
from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class CapacitySettings:
    """Which nodes have room for one more Pod, by the document's rule."""

    least: Annotated[float, Range(0.1, 100.0)] = 1.0
    """Pod-Capacity − reserved that a Pod needs on a node; the document has 1."""


class Capacity(Policy[CapacitySettings]):
    """Nodes with Pod-Capacity − reserved of at least 1, the largest first, as in *CARICO*; for comparison.

    >>> from carico_agent.extender.nodes import NodeState
    >>> policy, pod = Capacity(), PendingPod("uid-1")
    >>> roomy = NodeState("a", 8, 0, 150, pod_capacity=4.5, assigned=4, starting=1)
    >>> full = NodeState("b", 8, 0, 150, pod_capacity=2.5, assigned=7, starting=2)
    >>> policy.refusal(roomy, pod, now_s=10), policy.refusal(full, pod, now_s=10)
    (None, 'no room: Pod-Capacity 2.5, 2 reserved')
    """

    name: ClassVar[str] = "capacity"
    Settings: ClassVar[type] = CapacitySettings

    def reasons(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> Iterator[Reason]:
        unknown = np.isnan(nodes.pod_capacity)
        yield Reason(unknown, "unknown: this node has published no capacity")
        age_s = now_s - nodes.published_s
        stale = (age_s > nodes.ttl_s) & ~unknown
        yield Reason(stale, "stale: published {:.0f} s ago, valid for {:.0f} s", (np.round(age_s), nodes.ttl_s))
        full = self._left(nodes) < self.settings.least
        yield Reason(full, "no room: Pod-Capacity {:g}, {:.0f} reserved", (nodes.pod_capacity, nodes.starting))

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        left = self._left(nodes)
        most = np.fmax.reduce(left, initial=0.0)
        if not most > 0:
            return [0] * len(left)
        scores: list[int] = (TOP_SCORE * np.fmax(0.0, left) / most).astype(int).tolist()
        return scores

    @staticmethod
    def _left(nodes: NodeColumns) -> Floats:
        left: Floats = nodes.pod_capacity - nodes.starting
        return left
