"""A cluster that can be tried out: Pods are placed and taken away, and what is left on each node follows.

Nodes are rows of arrays, so that a filter or a score of a thousand nodes is one numpy expression.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from carico_agent.kubectl.drain.facts import PlannedNode, PlannedPod

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
SCORED = ("cpu", "memory")


@dataclass(frozen=True)
class MeasuredUse:
    """By use: what each node has room for, and what a Pod takes of it [cores, bytes, shares]."""

    room: Floats
    """Nodes × resources; NaN: this resource is not known, a row of -inf: the node publishes nothing that is valid."""
    cost: Mapping[str, Floats]
    """By the Pod's UID."""


@dataclass
class TrialCluster:
    """Nodes with the Pods on them. `use` None: only requests count; `requests` False: only use does."""

    nodes: Sequence[PlannedNode]
    volumes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By namespace/claim: nodes from which its volume can be reached. A claim that is not here restricts nothing."""
    use: MeasuredUse | None = None
    requests: bool = True

    def __post_init__(self) -> None:
        self.at = {node.name: n for n, node in enumerate(self.nodes)}
        self.names = sorted({name for node in self.nodes for name in node.allocatable})
        self.column = {name: n for n, name in enumerate(self.names)}
        self.allocatable: Ints = np.array(
            [[node.allocatable.get(name, 0) for name in self.names] for node in self.nodes], dtype=np.int64
        ).reshape(len(self.nodes), len(self.names))
        self.requested = np.zeros_like(self.allocatable)
        self.scored = np.zeros((len(self.nodes), 2), dtype=np.int64)
        self.room = None if self.use is None else self.use.room.copy()
        self.pods: list[dict[str, PlannedPod]] = [{} for _ in self.nodes]
        self.cordoned: Mask = np.array([node.cordoned for node in self.nodes], dtype=bool)
        self.with_terms: dict[str, tuple[int, PlannedPod]] = {}
        """Pods with affinity terms of their own: each of them has a say about every other Pod."""

    def add(self, pods: Iterable[PlannedPod]) -> None:
        """Pods that run already: their use is in the published room."""
        for pod in pods:
            if pod.node in self.at:
                self._put(pod, self.at[pod.node], 1)

    def place(self, pod: PlannedPod, at: int) -> None:
        self._put(pod, at, 1)
        if self.room is not None and self.use is not None:
            self.room[at] -= np.nan_to_num(self.use.cost.get(pod.uid, np.zeros(self.room.shape[1])))

    def take(self, pod: PlannedPod) -> None:
        """From the node where it ran; what it used there is not credited before the node has measured it."""
        self._put(pod, self.at[pod.node], -1)

    def _put(self, pod: PlannedPod, at: int, sign: int) -> None:
        for name, amount in pod.requests.items():
            if name in self.column:
                self.requested[at, self.column[name]] += sign * amount
        self.scored[at] += sign * np.array(pod.scored)
        if sign > 0:
            self.pods[at][pod.uid] = pod
            if pod.terms:
                self.with_terms[pod.uid] = (at, pod)
        else:
            self.pods[at].pop(pod.uid, None)
            self.with_terms.pop(pod.uid, None)

    def copy(self) -> "TrialCluster":
        other = TrialCluster.__new__(TrialCluster)
        other.__dict__.update(self.__dict__)
        other.requested, other.scored = self.requested.copy(), self.scored.copy()
        other.room = None if self.room is None else self.room.copy()
        other.pods = [dict(one) for one in self.pods]
        other.with_terms, other.cordoned = dict(self.with_terms), self.cordoned.copy()
        return other

    def domains(self, key: str) -> list[str | None]:
        """The value of a topology label on each node."""
        return [node.labels.get(key) for node in self.nodes]
