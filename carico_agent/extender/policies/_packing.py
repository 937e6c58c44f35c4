"""What the packing policies share: Pods go to nodes that are in use, so that others stay empty and can be switched off.

Refusals are pod-capacity's: a packed node is never fuller than its number allows. Only the order of the nodes that are
left differs. It is online best fit: the score of extender/packing.py decides among nodes with Pods, and an empty node
is opened only when no other has room.

What is scored: on a node that publishes its room, that room and what the Pod's workload takes of it, as measured
(workload_columns.py): CPU, memory, and I/O and network where the node publishes them and the use of them is known. On
others requests, where a container that requests nothing counts for 100m and 200Mi, as in kube-scheduler.

Why the best node alone gets the highest score: an extender has eleven steps, and kube-scheduler chooses among equals at
random. With scores merely scaled to 0–10 it would spread Pods over all nodes within a tenth of the best one.

Why a Pod that prefers to be spread (ScheduleAnyway) is not packed: kube-scheduler gives spreading 200 points at most,
and some 18 for one Pod too many in a zone that has ten. One step of an extender of weight 5 is 50 points. So any
difference in our scores would overrule the Pod's own preference; with equal scores kube-scheduler decides alone.

Why memory has a ceiling and the CPU has none: "Analyse von Verfahren zur Optimierung des Container-Schedulings in
Kubernetes", section 5.3, leaves 12.5 to 15.6 % of memory free and finds no ceiling of the CPU below 92 %. As in its
scheduler profile (figure 6.1) the ceiling lowers a node's rank and refuses nothing.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, nan
from typing import Annotated, ClassVar

import numpy as np

from carico_agent.extender.nodes import Floats, NodeColumns, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.extender.policy import TOP_SCORE
from carico_agent.extender.workload_costs import requested
from carico_agent.lib.kube.workloads import RESOURCES
from carico_agent.plugin_api.declare import Range

BASE = 2
"""CPU and memory, which every node has."""


@dataclass(frozen=True)
class PackingSettings(PodCapacitySettings):
    """Which nodes have room for one more Pod, and up to which share memory is packed."""

    memory_ceiling: Annotated[float, Range(0.1, 1.0)] = 0.85
    """The share of a node's memory that packing aims at. A node that the Pod would lift above it comes last, after
    empty nodes. 1: none."""


class Packing(PodCapacity):
    """A policy that differs from pod-capacity in its scores only."""

    Settings: ClassVar[type] = PackingSettings
    settings: PackingSettings

    @abstractmethod
    def score(self, used: Floats, share: Floats) -> Floats:
        """How much nodes (…, N, d) are preferred for a Pod (…, d), both as shares of a node; the highest is best."""

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        if not len(nodes) or pod.spreads:
            return [0] * len(nodes)
        used, share = self.shares(nodes, pod)
        wanted = self.preference(nodes, used, share)
        known = np.isfinite(wanted)  # a node of unknown size comes last
        below = known & ~(used[:, 1] + share[:, 1] > (1.0 if self.settings.memory_ceiling < 1 else inf))
        for some in ((nodes.assigned > 0) & below, below, known):
            if some.any():
                return _steps(np.where(some, wanted, -inf))
        return _steps(np.full(len(nodes), -inf))

    def preference(self, nodes: NodeColumns, used: Floats, share: Floats) -> Floats:
        """How much each node is preferred; not finite where its size is unknown. A node is scored by the resources that
        it publishes: means, deviations and angles over two, three or four of them compare."""
        found: Floats = np.full(len(nodes), nan)
        published = np.isfinite(used[:, BASE:])
        for pattern in np.unique(published, axis=0):
            rows = np.flatnonzero((published == pattern).all(axis=1))
            columns = np.flatnonzero(np.concatenate([np.ones(BASE, dtype=bool), pattern]))
            found[rows] = self.score(used[np.ix_(rows, columns)][:, None, :], share[np.ix_(rows, columns)])[:, 0]
        return found

    def shares(self, nodes: NodeColumns, pod: PendingPod) -> tuple[Floats, Floats]:
        """What is used of each node and what the Pod would take of it, of what may be packed; CPU, memory, and a column
        more for I/O and network if a node publishes it. NaN where the node's size, or its I/O, is unknown. Nodes differ
        in size, so a Pod is another share of each."""
        most = nodes.memory * self.settings.memory_ceiling
        size = np.stack([nodes.cpu, most], axis=-1)
        used = np.stack([nodes.cpu_requested, nodes.memory_requested], axis=-1) / size
        share = np.array([pod.cpu, pod.memory]) / size
        measured = ~np.isnan(nodes.left_cpu) & ~np.isnan(nodes.left_memory) & np.isfinite(nodes.prior_places)
        if measured.any():
            room = np.stack([nodes.prior_places, most], axis=-1)  # an idle node has room for twice its cores of demand
            left = np.stack([nodes.left_cpu, nodes.left_memory], axis=-1)
            here = measured[:, None]
            used = np.where(here, np.clip(1.0 - left / room, 0.0, None), used)
            takes = _takes(nodes, pod)
            share = np.where(here, takes[:, :BASE] / room, share)
            for resource in range(BASE, len(RESOURCES)):  # these are shares of the node already
                free = nodes.left()[resource]
                known = measured & np.isfinite(free) & np.isfinite(takes[:, resource])
                if known.any():
                    used = np.column_stack([used, np.where(known, np.clip(1.0 - free, 0.0, None), nan)])
                    share = np.column_stack([share, np.where(known, takes[:, resource], nan)])
        return used, share


def _takes(nodes: NodeColumns, pod: PendingPod) -> Floats:
    """What the Pod takes of each resource on each node: by what the node has learned, else other nodes; of CPU and
    memory else requests."""
    asked = (*requested(pod.cpu, pod.memory)[:BASE], nan, nan)
    assumed = np.array([pod.elsewhere or (nan, nan, nan, nan), asked])
    fallback = np.where(np.isnan(assumed[0]), assumed[1], assumed[0])
    own = nodes.cost(pod.workload)
    found: Floats = np.where(np.isnan(own), fallback[:, None], own).T
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
