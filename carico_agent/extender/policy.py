"""The interface of a policy: which nodes are refused for a Pod, and how well the others suit.

A policy is pure: it is shown nodes, a Pod and the time, and answers. No watch, socket or clock is in here, so the
extender and the simulator in lab/ run the same code. Its rule is written once, over columns of nodes; `refusal` asks it
about a single node. A policy is one file in `policies/`, see there.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from carico_agent.extender.nodes import Floats, Mask, NodeColumns, NodeState, PendingPod

TOP_SCORE = 10
"""An extender's highest score: kube-scheduler decodes integers from 0 to 10 (extenderv1.MaxExtenderPriority)."""

S = TypeVar("S")
Texts = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for refusing nodes. `text` is a format of the `numbers` of each node."""

    refused: Mask
    text: str
    numbers: tuple[Floats, ...] = ()

    def texts(self, where: Mask) -> Texts:
        """The text of each node in `where`. Nodes with the same numbers share one: 5,000 full nodes have some tens, and
        formatting each would take 4 ms."""
        columns = [column[where] for column in self.numbers]
        key: NDArray[Any] = columns[0] if columns else np.zeros(int(where.sum()))
        if len(columns) == 2:
            key = key + 1j * columns[1]
        elif len(columns) > 2:
            key = np.unique(columns, axis=1, return_inverse=True)[1]
        _, first, alike = np.unique(key, return_index=True, return_inverse=True)
        made = [self.text.format(*(column[at] for column in columns)) for at in first]
        texts: Texts = np.array(made, dtype=object)[alike]
        return texts


class Policy(ABC, Generic[S]):
    """What the extender asks. No method changes anything."""

    name: ClassVar[str]
    """What `[extender] policy` calls it; its settings stand in `[extender.policies.NAME]`."""
    reads_train_jobs: ClassVar[bool] = False
    """It wants to know how much work Kubeflow TrainJobs have left."""
    Settings: ClassVar[type]
    """A frozen dataclass with a documented default for every field."""

    def __init__(self, settings: S | None = None) -> None:
        self.settings: S = self.Settings() if settings is None else settings

    @abstractmethod
    def reasons(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> Iterator[Reason]:
        """Why nodes cannot take `pod`; of several that apply to a node the first counts."""

    @abstractmethod
    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        """How well each of `nodes` suits, 0 to TOP_SCORE. Asked only for nodes that were not refused."""

    def refusals(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[str | None]:
        """Why each of `nodes` cannot take `pod`, in words for the event log; None if it can."""
        found, left = np.full(len(nodes), None, dtype=object), np.ones(len(nodes), dtype=bool)
        for reason in self.reasons(nodes, pod, now_s):
            if reason.refused.any():
                here = left & reason.refused
                found[here] = reason.texts(here)
                left ^= here
        return found.tolist()

    def refusal(self, node: NodeState, pod: PendingPod, now_s: float) -> str | None:
        """The same for one node."""
        return self.refusals(NodeColumns.of([node]), pod, now_s)[0]

    def fits(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> Mask:
        """Which of `nodes` can take `pod`: the same without words."""
        refused = np.zeros(len(nodes), dtype=bool)
        for reason in self.reasons(nodes, pod, now_s):
            refused |= reason.refused
        return ~refused
