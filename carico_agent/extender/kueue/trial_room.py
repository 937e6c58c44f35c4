"""The room of all nodes, from which the Pods of one Workload after another are taken on trial.

Pods go to the nodes where most of them fit first. With several unlike PodSets a better packing may exist, so a Workload
that just fits may be answered with no; one that is answered with yes fits.
"""

from collections.abc import Iterable

import numpy as np

from carico_agent.extender.nodes import Floats, Mask, NodeColumns, PendingPod
from carico_agent.extender.workload_room import MARGIN, pods_that_fit, taken_by

Wanted = tuple[PendingPod, int, Mask]
"""So many Pods like this one, on these nodes."""


class TrialRoom:
    """Room as of `now_s`. Nodes whose number has expired, and those that publish none, have no room.

    >>> from math import inf
    >>> from carico_agent.extender.nodes import NodeState
    >>> nodes = [NodeState("a", 4, 0, 150, assigned=1), NodeState("b", 8, 0, 150, assigned=7), NodeState("c")]
    >>> room = TrialRoom(NodeColumns.of(nodes), [inf, inf, inf], now_s=10)
    >>> room.take(PendingPod(""), 9, room.everywhere), room.take(PendingPod(""), 1, room.everywhere)
    ({'a': 3, 'b': 1}, {})
    >>> room = TrialRoom(NodeColumns.of(nodes), [inf, inf, inf], now_s=10)
    >>> room.take_all([(PendingPod(""), 3, room.everywhere), (PendingPod(""), 2, room.everywhere)])
    ({'a': 3, 'b': 1}, False)
    >>> room.take_all([(PendingPod(""), 4, room.everywhere)])
    ({'a': 3, 'b': 1}, True)
    """

    def __init__(self, nodes: NodeColumns, resource_left: Iterable[float], now_s: float) -> None:
        """`nodes`: columns of their own, which change here. `resource_left`: what each node has left of the extended
        resource; inf where it publishes none."""
        self._nodes, self.names = nodes, nodes.names()
        self._valid = now_s - nodes.published_s <= nodes.ttl_s
        self._resource_left = np.fromiter(resource_left, float, len(nodes))
        self.everywhere: Mask = np.ones(len(nodes), dtype=bool)

    def take_all(self, wanted: Iterable[Wanted]) -> tuple[dict[str, int], bool]:
        """Place all of these Pods, or none: how many would go to each node, and whether all fit."""
        before = [column.copy() for column in self._columns()]
        taken: dict[str, int] = {}
        all_fit = True
        for pod, count, allowed in wanted:
            found = self.take(pod, count, allowed)
            all_fit &= sum(found.values()) == count
            for name, pods in found.items():
                taken[name] = taken.get(name, 0) + pods
        if not all_fit:
            for column, old in zip(self._columns(), before, strict=True):
                column[:] = old
        return taken, all_fit

    def _columns(self) -> tuple[Floats, ...]:
        """All that changes when Pods are taken."""
        return (*self._nodes.left(), self._nodes.assigned, self._resource_left)

    def take(self, pod: PendingPod, count: int, allowed: Mask) -> dict[str, int]:
        """Place up to `count` Pods like this one on `allowed` nodes: how many on each."""
        fits = np.nan_to_num(pods_that_fit(self._nodes, pod), posinf=float(count))
        measured = ~np.isnan(self._nodes.left_cpu)
        whole = np.floor(np.where(measured & (fits >= 1 + MARGIN), fits - MARGIN, fits))
        if pod.holds:
            whole = np.minimum(whole, self._resource_left // pod.holds)
        whole = np.where(self._valid & allowed, np.maximum(whole, 0.0), 0.0)
        taken = np.zeros(len(whole))
        for at in np.argsort(-whole, kind="stable").tolist():
            taken[at] = min(whole[at], count - taken.sum())
            if taken.sum() >= count or not whole[at]:
                break
        self._subtract(pod, taken)
        return {self.names[at]: int(taken[at]) for at in np.flatnonzero(taken)}

    def _subtract(self, pod: PendingPod, taken: Floats) -> None:
        for left, cost in zip(self._nodes.left(), taken_by(self._nodes, pod)[0], strict=True):
            left -= taken * np.nan_to_num(cost)
        self._nodes.assigned += taken
        self._resource_left -= taken * pod.holds
