"""Which node takes the next Pod: the policy interface, and `pod-capacity`, the paper's own policy.

A policy is pure: it is shown nodes, a Pod and the time, and answers. No watch, socket or clock is in here, so the
extender, the local API and the simulator in lab/ run the same code. Another policy is a small class with the two
methods of `Policy` and a row in POLICIES.

Why `slots − assigned` and not the paper's `Pod-Capacity − reserved`: the paper drops a reservation when the Pod starts,
but the node's number is older than that by then, so for a second nobody counts the Pod, and nodes overfill. Slots
(Pods counted + Pod-Capacity, both of one instant) hardly move when Pods come and go, so they may be old.

Why only a part of the slots may be starting at once: Pods that start together end together, and then the node idles
while the next ones start. And Pods that have not started are Pods nobody has measured. On 1000 pi-2000 Pods, which it
was not chosen on, it lowers the job's time by 5 % and the Pods' by 11 % (lab/REPORT.md, "Waves").

Why strangers (Pods of a kind that has not yet run here) count at the prior cost when that is higher: a node that has
learned light Pods would take in forty heavy ones before the first of them shows in its telemetry (paper 5.9).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, inf, nan
from typing import ClassVar, Protocol

TOP_SCORE = 10
"""An extender's highest score; kube-scheduler decodes integers 0–10 only (FACTS.md B)."""


@dataclass(frozen=True, slots=True)
class PodView:
    """What a policy may know of a Pod. `kind` names what made it (its controller's template): those Pods are alike."""

    uid: str
    kind: str = ""


@dataclass(slots=True)
class NodeView:
    """What a policy is shown of one node. Whoever watches the cluster keeps one per node and changes it in place."""

    name: str
    slots: float = nan
    """As published: Pods counted + Pod-Capacity. NaN when the node has never said."""
    said_s: float = -inf
    """When that was true [s], on the clock of `now_s`."""
    ttl_s: float = 0.0
    """How long it may be believed [s]."""
    assigned: int = 0
    """Pods that hold a place here: bound or assumed, not finished (see ledger.py)."""
    starting: int = 0
    """Those of them that do not run yet."""
    strangers: int = 0
    """Those of them whose kind has not run here long enough to show in `slots`."""
    known: Collection[str] = ()
    """The kinds that have."""
    prior_slots: float = inf
    """Places for Pods of which nothing is known: one for each half CPU (2 × cores); inf if that is unknown too."""

    def caution(self) -> float:
        """How many places a stranger counts for, at least one."""
        return max(1.0, self.slots / self.prior_slots)

    def available(self) -> float:
        """Pods that still fit if the published number is believed; NaN if there is none."""
        if self.strangers:
            return self.slots - self.assigned - (self.caution() - 1) * self.strangers
        return self.slots - self.assigned


class Policy(Protocol):
    """What the extender asks. Both methods change nothing."""

    name: ClassVar[str]

    def refusal(self, node: NodeView, pod: PodView, now_s: float) -> str | None:
        """Why `node` cannot take `pod`, in words for the event log; None if it can."""
        ...

    def scores(self, nodes: Sequence[NodeView], pod: PodView, now_s: float) -> list[int]:
        """How well each of `nodes` suits, 0 to TOP_SCORE. Asked only for nodes that did not refuse."""
        ...


@dataclass(frozen=True, slots=True)
class PodCapacity:
    """Take nodes with room for one more, prefer the one with most room (paper 000, 3.6).

    `least` is the room a Pod needs [Pods]; `starting_ratio` the part of the slots that may be starting at once (1 for
    all, as in the paper); `open_when_stale` believes an expired number instead of closing the node.

    >>> policy, pod = PodCapacity(), PodView("uid-1")
    >>> roomy, full = NodeView("a", slots=8, said_s=0, ttl_s=150, assigned=2), NodeView("b", 8, 0, 150, assigned=8)
    >>> policy.refusal(roomy, pod, now_s=10), policy.refusal(full, pod, now_s=10)
    (None, 'no room: 8 slots, 8 Pods')
    >>> policy.refusal(roomy, pod, now_s=200)
    'stale: last heard 200 s ago, believed for 150 s'
    >>> policy.scores([roomy, NodeView("c", 8, 0, 150, assigned=5)], pod, now_s=10)
    [10, 5]
    """

    name: ClassVar[str] = "pod-capacity"
    least: float = 1.0
    starting_ratio: float = 0.4
    open_when_stale: bool = False

    def refusal(self, node: NodeView, pod: PodView, now_s: float) -> str | None:
        if node.slots != node.slots:
            return "unknown: this node has published no capacity"
        if now_s - node.said_s > node.ttl_s and not self.open_when_stale:
            return f"stale: last heard {now_s - node.said_s:.0f} s ago, believed for {node.ttl_s:.0f} s"
        if node.available() < self.least:
            return f"no room: {node.slots:g} slots, {node.assigned} Pods"
        if node.slots > node.prior_slots and pod.kind not in node.known and node.available() < node.caution():
            return f"no room for a stranger: {node.slots:g} slots, {node.assigned} Pods, {node.strangers} strangers"
        if node.starting and node.starting >= ceil(self.starting_ratio * node.slots):
            return f"busy: {node.starting} Pods are starting"
        return None

    def scores(self, nodes: Sequence[NodeView], pod: PodView, now_s: float) -> list[int]:
        room = [node.available() for node in nodes]
        most = max(room, default=0.0)
        if not most > 0:
            return [0] * len(room)
        # The roomiest gets 10, so that a difference of one Pod shows whatever the size of the nodes.
        return [max(0, int(TOP_SCORE * r / most)) if r == r else 0 for r in room]


POLICIES: dict[str, type[Policy]] = {PodCapacity.name: PodCapacity}
