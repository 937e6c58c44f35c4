"""pod-capacity: nodes with room for one more Pod, the one with most room first.

Why `places − assigned` and not the dissertation's `Pod-Capacity − reserved` (*CARICO*, section 3.6): there a
reservation ends when the Pod starts, but the node's number is older than that by then, so for a second no number counts
the Pod, and nodes overfill. Places (the node's slots: Pods counted + Pod-Capacity, both of one instant) hardly move
when Pods come and go, so they may be old.

Why only a part of the places may be starting at once: Pods that start together end together, and then the node idles
while the next ones start. And Pods that have not started are Pods that no node has measured. On 1000 pi-2000 Pods,
which it was not chosen on, it lowers the job's time by 5 % and the Pods' by 10 % (lab/REPORT.md, "Waves").

Why that part follows the node's own Pods: by Little's law a full node whose Pods start for S and run for R seconds has
S/(S+R) of them starting at any time. A fixed part of 0.4 held back Pods that start for longer than they run (a job
took 1.6 times as long) and let in 16 unmeasured ones at once where Pods of 20 s start in 3.

Why unprofiled Pods (of a workload that has not yet run here) count at the prior cost when that is higher: a node that
has learned light Pods would take in forty heavy ones before the first of them shows in its telemetry (*CARICO*, section
5.9).

Why fewer still after a surprise: a template whose Pods suddenly take twice as much (a Job that reaches its large
inputs) is priced by what it was. Between the binding of the first such Pod and its being seen further ones are let in.
So until the price has settled on all nodes, each takes in few at a time.

Why two Pods of an unmeasured workload per node: all Pods of a job are placed within seconds, on the prior
of one core each, and nothing that is placed can be taken back. Over six jobs without a prehistory (the jobs of
lab/experiments/probes.py, seed 11) the worst of JCT and mean PCT, as a multiple of the best setting's, was 3.2 without
a limit, 1.17 with one Pod, 1.16 with two and 2.0 with four. It costs 4 % of the job's time where the prior is right.

On nodes that publish their room (kube/workloads.py) none of that is needed for a Pod whose workload some node has
measured: it fits as often as what is left (workload_costs.py) holds what it takes, which may be more or less often than
places say, for these are made for the next Pod to arrive. A Pod of a workload that no node knows counts with its
requests, or else one core, and gets no place that the node does not have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from carico_agent.extender.nodes import Floats, Mask, NodeColumns, PendingPod
from carico_agent.extender.policy import TOP_SCORE, Policy, Reason
from carico_agent.extender.workload_room import WorkloadRoom, pods_that_fit, refusals, room_for
from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class PodCapacitySettings:
    """Which nodes have room for one more Pod."""

    least: Annotated[float, Range(0.1, 100.0)] = 1.0
    """The room that a Pod needs on a node [Pods]."""

    starting_ratio: Annotated[float, Range(0.0, 1.0)] = 0.6
    """The part of a node's places that may be starting at once, until Pods that ended there have shown how long they
    start and run. 1: never a limit, as in the dissertation."""

    starting_headroom: Annotated[float, Range(0.1, 10.0)] = 1.25
    """From then on this many times the part of a full node's Pods that is starting at any time."""

    surprised_ratio: Annotated[float, Range(0.0, 1.0)] = 0.1
    """The part that may be starting at once while a workload is a surprise: a node has found that they take twice
    what they did. 1: never."""

    surprise_s: Annotated[float, Range(0.0, 3600.0)] = 180.0
    """For how long it is one [s]."""

    max_unmeasured: Annotated[int, Range(0, 1000)] = 2
    """Pods of a workload that no node has measured are let in up to this many on a node at a time. 0: no limit."""

    open_when_stale: bool = False
    """true: use expired numbers instead of closing their nodes."""

    open_when_unknown: bool = False
    """true: nodes that have never published are left to the other filters, with the lowest score. false: closed."""


class PodCapacity(Policy[PodCapacitySettings]):
    """Nodes with room for one more Pod; the one with most room first.

    >>> from carico_agent.extender.nodes import NodeState
    >>> policy, pod = PodCapacity(), PendingPod("uid-1")
    >>> roomy, full = NodeState("a", 8, 0, 150, assigned=2), NodeState("b", 8, 0, 150, assigned=8)
    >>> policy.refusal(roomy, pod, now_s=10), policy.refusal(full, pod, now_s=10)
    (None, 'no room: 8 places, 8 Pods')
    >>> policy.refusal(roomy, pod, now_s=200)
    'stale: published 200 s ago, valid for 150 s'
    >>> policy.scores(NodeColumns.of([roomy, NodeState("c", 8, 0, 150, assigned=5)]), pod, now_s=10)
    [10, 5]
    """

    name: ClassVar[str] = "pod-capacity"
    Settings: ClassVar[type] = PodCapacitySettings

    def reasons(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> Iterator[Reason]:
        """A node that has never published has NaN for places, and no comparison with NaN refuses."""
        unknown = np.isnan(nodes.places)
        if not self.settings.open_when_unknown:
            yield Reason(unknown, "unknown: this node has published no capacity")
        if not self.settings.open_when_stale:
            age_s = now_s - nodes.published_s
            stale = (age_s > nodes.ttl_s) & ~unknown
            yield Reason(stale, "stale: published {:.0f} s ago, valid for {:.0f} s", (np.round(age_s), nodes.ttl_s))
        of_workload = room_for(nodes, pod)
        yield from self._full(nodes, pod) if of_workload is None else self._full_for_workload(nodes, pod, of_workload)
        if self.settings.max_unmeasured and pod.elsewhere is None:
            yield self._probed(nodes, pod)
        surprised = pod.surprised_for_s < self.settings.surprise_s
        busy = (nodes.starting > 0) & (nodes.starting >= self._max_starting(nodes, of_workload, surprised))
        yield Reason(busy, "busy: {:.0f} Pods are starting", (nodes.starting,))

    def _full(self, nodes: NodeColumns, pod: PendingPod, known: Mask | None = None) -> Iterator[Reason]:
        """By the number of places, except on nodes where room is `known`."""
        room = nodes.available() if known is None else np.where(known, np.nan, nodes.available())
        yield Reason(room < self.settings.least, "no room: {:g} places, {:.0f} Pods", (nodes.places, nodes.assigned))
        narrow = (nodes.places > nodes.prior_places) & (room < nodes.caution()) & (room >= self.settings.least)
        yield Reason(
            nodes.unknown_workload(pod.workload, narrow),
            "no room for an unprofiled Pod: {:g} places, {:.0f} Pods, {:.0f} of them unprofiled",
            (nodes.places, nodes.assigned, nodes.unprofiled),
        )

    def _full_for_workload(self, nodes: NodeColumns, pod: PendingPod, of_workload: WorkloadRoom) -> Iterator[Reason]:
        """By what is left where that is known."""
        if not of_workload.measured.all():
            yield from self._full(nodes, pod, of_workload.measured)
        if not of_workload.certain.all():
            full = (nodes.places - nodes.assigned < self.settings.least) & of_workload.measured & ~of_workload.certain
            yield Reason(full, "no room: {:g} places, {:.0f} Pods", (nodes.places, nodes.assigned))
        yield from refusals(of_workload, nodes, pod.workload, self.settings.least)

    def _probed(self, nodes: NodeColumns, pod: PendingPod) -> Reason:
        """Nodes on which as many Pods of an unmeasured workload run or start as may be let in before it is measured;
        only those that measure Pods one by one and say so."""
        most = self.settings.max_unmeasured
        unmeasured = nodes.unmeasured(pod.workload, (nodes.unprofiled >= most) & ~np.isnan(nodes.left_cpu))
        return Reason(unmeasured >= most, "probing: {:.0f} Pods like this one are not measured yet", (unmeasured,))

    def _max_starting(self, nodes: NodeColumns, of_workload: WorkloadRoom | None, surprised: bool) -> Floats:
        """How many may be starting at once. Little's law: of full places, `starting_share` are starting at any time.
        Where more Pods of this workload fit than places say, those are the places. Few of a workload that is a
        surprise."""
        places = nodes.places
        if of_workload is not None:
            places = np.where(of_workload.certain, np.fmax(places, np.floor(nodes.assigned + of_workload.fits)), places)
        if self.settings.starting_ratio >= 1:
            return np.full(len(nodes), np.inf)
        ratio = np.minimum(1.0, self.settings.starting_headroom * nodes.starting_share)
        ratio = np.where(np.isnan(ratio), self.settings.starting_ratio, ratio)
        if surprised:
            ratio = np.minimum(ratio, self.settings.surprised_ratio)
        most: Floats = np.ceil(ratio * places)
        return most

    def scores(self, nodes: NodeColumns, pod: PendingPod, now_s: float) -> list[int]:
        room = pods_that_fit(nodes, pod)
        most = np.fmax.reduce(room, initial=0.0)
        if not most > 0:
            return [0] * len(room)
        # The roomiest gets 10, so that a difference of one Pod shows whatever the size of the nodes.
        scores: list[int] = (TOP_SCORE * np.fmax(0.0, room) / most).astype(int).tolist()
        return scores
