"""How many more Pods of one workload fit on nodes that publish their room: a division per resource, over columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from numpy.typing import NDArray

from carico_agent.extender.nodes import Floats, Mask, NodeColumns, PendingPod
from carico_agent.extender.policy import Reason
from carico_agent.extender.workload_costs import PRIOR_CORES, requested
from carico_agent.lib.kube.workloads import Amounts

LEAST: Amounts = (1e-3, 1e5, 1e-4, 1e-4)
"""No Pod takes less: otherwise a sleeping one would fit any number of times."""

MARGIN = 0.2
"""Room is taken for a place when it is this much above the next whole one [Pods]: it is read with a noise of 0.14 Pods
where Pods come and go (lab/sim), and too many places hurt running Pods, too few cost a little throughput. The number of
places has its own margins (publish/throttle.py)."""

IDLE_RATIO = 0.8
"""A node with this much of its cpu left takes one Pod of any workload that its memory holds: Pods that would use more
than a whole node (one thread per task, say) must run somewhere, and share its CPUs with no other Pod there."""

_TEXTS = ("{:g} of cpu left", "{:g} MB of memory left", "{:g} % of io left", "{:g} % of network left")
_UNITS = (1.0, 1e6, 0.01, 0.01)
_DIGITS = (1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class WorkloadRoom:
    """One workload on some nodes."""

    fits: Floats
    """How many more of it fit; NaN on nodes that publish no room."""
    limiting: NDArray[np.intp]
    """The resource (kube.workloads.RESOURCES) of which there is too little for another."""
    measured: Mask
    """Nodes that publish room."""
    certain: Mask
    """Of those, the ones where what the workload takes was measured; elsewhere it is what the Pod requests, or
    the prior."""


def room_for(nodes: NodeColumns, pod: PendingPod) -> WorkloadRoom | None:
    """None if none of these nodes publishes its room."""
    measured = ~np.isnan(nodes.left_cpu)
    if not measured.any():
        return None
    costs, here = taken_by(nodes, pod)
    certain = measured if pod.elsewhere is not None else measured & here
    fits, limiting = np.full(len(nodes), inf), np.zeros(len(nodes), dtype=np.intp)
    for at, left in enumerate(nodes.left()):
        pods = left / costs[at]
        if at == 0:
            pods = np.where(_idle(nodes), np.maximum(pods, 1.0), pods)
        lower = pods < fits  # never where something is unknown
        fits[lower] = pods[lower]
        limiting[lower] = at
    fits[~measured | (fits == inf)] = nan
    return WorkloadRoom(fits, limiting, measured, certain)


def taken_by(nodes: NodeColumns, pod: PendingPod) -> tuple[list[Floats], Mask]:
    """What this Pod would take of each resource on each node, and the nodes that know that themselves. Elsewhere it is
    what other nodes know, else what the Pod requests, else the prior."""
    own = nodes.cost(pod.workload)
    here = ~(np.isnan(own[0]) & np.isnan(own[1]))
    assumed = pod.elsewhere or (requested(pod.cpu, pod.memory) if pod.requested else (PRIOR_CORES, nan, nan, nan))
    return [np.maximum(np.where(here, own[at], assumed[at]), LEAST[at]) for at in range(len(LEAST))], here


def pods_that_fit(nodes: NodeColumns, pod: PendingPod) -> Floats:
    """How many more Pods like this one fit on each node: by the room where what it takes has been measured, within the
    slots where it has not, and by the slots on nodes that publish no room. NaN where nothing is published."""
    room = room_for(nodes, pod)
    if room is None:
        return nodes.available()
    bounded = np.fmin(room.fits, nodes.places - nodes.assigned)
    return np.where(room.measured, np.where(room.certain, room.fits, bounded), nodes.available())


def _idle(nodes: NodeColumns) -> Mask:
    idle: Mask = nodes.left_cpu >= IDLE_RATIO * 2 * nodes.cpu  # False where one of them is unknown
    return idle


def refusals(room: WorkloadRoom, nodes: NodeColumns, workload: str, least: float) -> Iterator[Reason]:
    """Nodes without room for `least` of the workload, by what is missing."""
    full = room.fits < np.where(_idle(nodes), least, least + MARGIN)
    name = workload.replace("{", "{{").replace("}", "}}")
    for at, (left, text) in enumerate(zip(nodes.left(), _TEXTS, strict=True)):
        refused = full & (room.limiting == at)
        if refused.any():
            shown = np.round(np.maximum(left, 0.0) / _UNITS[at], _DIGITS[at])
            yield Reason(refused, f"no room for {name}: {text}", (shown,))
