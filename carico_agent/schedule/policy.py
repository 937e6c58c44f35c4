"""Which node takes the next Pod: the policy interface, `pod-capacity`, and the ledger of who holds a place where.

A policy is pure: it is shown nodes, a Pod and the time, and answers. No watch, socket or clock is in here, so the
extender, the local API and the simulator in lab/ run the same code. Another policy is a small class with the two
methods of `Policy` and a row in POLICIES; one for thousands of nodes also answers for many at once.

Why `slots − assigned` and not the paper's `Pod-Capacity − reserved`: the paper drops a reservation when the Pod starts,
but the node's number is older than that by then, so for a second nobody counts the Pod, and nodes overfill. Slots
(Pods counted + Pod-Capacity, both of one instant) hardly move when Pods come and go, so they may be old.

Why only a part of the slots may be starting at once: Pods that start together end together, and then the node idles
while the next ones start. And Pods that have not started are Pods nobody has measured. On 1000 pi-2000 Pods, which it
was not chosen on, it lowers the job's time by 5 % and the Pods' by 10 % (lab/REPORT.md, "Waves").

Why that part follows the node's own Pods: by Little's law a full node whose Pods start for S and run for R seconds has
S/(S+R) of them starting at any time. A fixed part of 0.4 held back Pods that start for longer than they run (a job
took 1.6 times as long) and let in 16 unmeasured ones at once where Pods of 20 s start in 3.

Why unprofiled (Pods of a kind that has not yet run here) count at the prior cost when that is higher: a node that has
learned light Pods would take in forty heavy ones before the first of them shows in its telemetry (paper 5.9).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, nan
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

TOP_SCORE = 10
"""An extender's highest score; kube-scheduler decodes integers 0–10 only (FACTS.md B)."""

PROOF_S = 12.0
"""A kind is known on a node this long after its first start there [s]: settling 1.5 s, three batches, the publishing
gate's 5 s, and the way to us."""

RECENT_WEIGHT = 0.2
"""Weight of the newest Pod in a node's mean times to start and to run: about the last five count."""

LONGEST_START_S = 60.0
"""A Pod that has been starting for longer is stuck [s] (an image, a volume). It holds its place, but no longer keeps
others from starting, and it says nothing about how long Pods start here."""

MOST_KINDS = 64
"""Kinds remembered per node; beyond, the one met longest ago is forgotten and would be an unprofiled Pod again."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """What a policy may know of a Pod. `kind` names what made it (its controller's template): those Pods are alike."""

    uid: str
    kind: str = ""
    holds: int = 0
    """What it asks of the extended resource."""


@dataclass(slots=True)
class NodeState:
    """What a policy is shown of one node. Whoever watches the cluster keeps one per node and changes it in place."""

    name: str
    slots: float = nan
    """As published: Pods counted + Pod-Capacity. NaN when the node has never said."""
    published_s: float = -inf
    """When that was true [s], on the clock of `now_s`."""
    ttl_s: float = 0.0
    """How long it may be believed [s]."""
    assigned: int = 0
    """Pods that hold a place here: bound or assumed, not finished (see Ledger)."""
    held: int = 0
    """What those Pods ask of the extended resource."""
    starting: int = 0
    """Those of them that do not run yet."""
    unprofiled: int = 0
    """Those of them whose kind has not run here long enough to show in `slots`."""
    known: Collection[str] = ()
    """The kinds that have."""
    starting_share: float = nan
    """The part of a Pod's stay here that it spends starting, by the Pods that ended lately; NaN while none has."""
    resource: int | None = None
    """The extended resource as published; None when there is none."""
    prior_slots: float = inf
    """Places for Pods of which nothing is known: one for each half CPU (2 × cores); inf if that is unknown too."""

    def caution(self) -> float:
        """How many places an unprofiled Pod counts for, at least one."""
        return max(1.0, self.slots / self.prior_slots)

    def available(self) -> float:
        """Pods that still fit if the published number is believed; NaN if there is none."""
        if self.unprofiled:
            return self.slots - self.assigned - (self.caution() - 1) * self.unprofiled
        return self.slots - self.assigned


Floats = NDArray[np.float64]


class Nodes(Sequence[NodeState]):
    """Many nodes: their views, and the same numbers as arrays, for policies that look at all in one go."""

    slots: Floats
    published_s: Floats
    ttl_s: Floats
    assigned: Floats
    starting: Floats
    unprofiled: Floats
    starting_share: Floats
    prior_slots: Floats

    def __init__(self, views: Sequence[NodeState], rows: NDArray[np.intp], columns: Floats) -> None:
        """`columns`: a row for each of COLUMNS; `rows`: which of `views` these nodes are."""
        self._views, self._rows = views, rows
        for name, column in zip(COLUMNS, columns, strict=True):
            setattr(self, name, column)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return self._views[self._rows[at]]

    def __iter__(self) -> Iterator[NodeState]:
        return map(self._views.__getitem__, self._rows.tolist())

    def caution(self) -> Floats:
        caution: Floats = np.fmax(1.0, self.slots / self.prior_slots)
        return caution

    def available(self) -> Floats:
        return self.slots - self.assigned - (self.caution() - 1) * self.unprofiled


COLUMNS = tuple(Nodes.__annotations__)


class Policy(Protocol):
    """What the extender asks. No method changes anything."""

    name: ClassVar[str]

    def refusal(self, node: NodeState, pod: PendingPod, now_s: float) -> str | None:
        """Why `node` cannot take `pod`, in words for the event log; None if it can."""
        ...

    def refusals(self, nodes: Sequence[NodeState], pod: PendingPod, now_s: float) -> list[str | None]:
        """The same for each of `nodes`."""
        return [self.refusal(node, pod, now_s) for node in nodes]

    def scores(self, nodes: Sequence[NodeState], pod: PendingPod, now_s: float) -> list[int]:
        """How well each of `nodes` suits, 0 to TOP_SCORE. Asked only for nodes that did not refuse."""
        ...


@dataclass(frozen=True, slots=True)
class PodCapacity(Policy):
    """Take nodes with room for one more, prefer the one with most room (paper 000, 3.6).

    `least` is the room a Pod needs [Pods]; `starting_ratio` the part of the slots that may be starting at once until
    Pods have ended here (1 for no limit ever, as in the paper), `starting_headroom` times their steady state from then
    on; `open_when_stale` believes an expired number instead of closing the node.

    >>> policy, pod = PodCapacity(), PendingPod("uid-1")
    >>> roomy, full = NodeState("a", slots=8, published_s=0, ttl_s=150, assigned=2), NodeState("b", 8, 0, 150, assigned=8)
    >>> policy.refusal(roomy, pod, now_s=10), policy.refusal(full, pod, now_s=10)
    (None, 'no room: 8 slots, 8 Pods')
    >>> policy.refusal(roomy, pod, now_s=200)
    'stale: last heard 200 s ago, believed for 150 s'
    >>> policy.scores([roomy, NodeState("c", 8, 0, 150, assigned=5)], pod, now_s=10)
    [10, 5]
    """

    name: ClassVar[str] = "pod-capacity"
    least: float = 1.0
    starting_ratio: float = 0.6
    starting_headroom: float = 1.25
    open_when_stale: bool = False

    def refusal(self, node: NodeState, pod: PendingPod, now_s: float) -> str | None:
        if node.slots != node.slots:
            return "unknown: this node has published no capacity"
        if now_s - node.published_s > node.ttl_s and not self.open_when_stale:
            return f"stale: last heard {now_s - node.published_s:.0f} s ago, believed for {node.ttl_s:.0f} s"
        room = node.available()
        if room < self.least:
            return f"no room: {node.slots:g} slots, {node.assigned} Pods"
        if node.slots > node.prior_slots and pod.kind not in node.known and room < node.caution():
            return f"no room for an unprofiled Pod: {node.slots:g} slots, {node.assigned} Pods, {node.unprofiled} unprofiled"
        if node.starting and node.starting >= self._most_starting(node):
            return f"busy: {node.starting} Pods are starting"
        return None

    def _most_starting(self, node: NodeState) -> float:
        """How many may be starting at once. Little's law: of full slots, `starting_share` are starting at any time."""
        if self.starting_ratio >= 1:
            return inf
        share = node.starting_share
        ratio = self.starting_ratio if share != share else min(1.0, self.starting_headroom * share)
        return ceil(ratio * node.slots)

    def _most_starting_of(self, nodes: Nodes) -> Floats:
        if self.starting_ratio >= 1:
            return np.full(len(nodes), inf)
        ratio = np.minimum(1.0, self.starting_headroom * nodes.starting_share)
        most: Floats = np.ceil(np.where(np.isnan(ratio), self.starting_ratio, ratio) * nodes.slots)
        return most

    def refusals(self, nodes: Sequence[NodeState], pod: PendingPod, now_s: float) -> list[str | None]:
        """Nodes that pass, or have no room, are told by their columns; the others are asked one by one."""
        if not isinstance(nodes, Nodes):
            return [self.refusal(node, pod, now_s) for node in nodes]
        room, caution = nodes.available(), nodes.caution()
        believed = now_s - nodes.published_s <= (inf if self.open_when_stale else nodes.ttl_s)
        familiar = (nodes.slots <= nodes.prior_slots) | (room >= caution)
        calm = (nodes.starting == 0) | (nodes.starting < self._most_starting_of(nodes))
        passes = believed & (room >= self.least) & familiar & calm
        full = believed & (room < self.least)
        found = np.full(len(nodes), None, dtype=object)
        if full.any():  # a text about slots and Pods only: nodes that are alike in both share it
            pairs = nodes.slots[full] + 1j * nodes.assigned[full]
            _, first, alike = np.unique(pairs, return_index=True, return_inverse=True)
            texts = [self.refusal(nodes[at], pod, now_s) for at in np.flatnonzero(full)[first]]
            found[full] = np.array(texts, dtype=object)[alike]
        for at in np.flatnonzero(~(passes | full)):
            found[at] = self.refusal(nodes[at], pod, now_s)
        return found.tolist()

    def scores(self, nodes: Sequence[NodeState], pod: PendingPod, now_s: float) -> list[int]:
        room = nodes.available() if isinstance(nodes, Nodes) else np.array([node.available() for node in nodes])
        most = np.fmax.reduce(room, initial=0.0)
        if not most > 0:
            return [0] * len(room)
        # The roomiest gets 10, so that a difference of one Pod shows whatever the size of the nodes.
        scores: list[int] = np.fmax(0.0, TOP_SCORE * room / most).astype(int).tolist()
        return scores


POLICIES: dict[str, type[Policy]] = {PodCapacity.name: PodCapacity}


@dataclass(frozen=True, slots=True)
class Place:
    """One Pod's place. An assumed one (chosen, not yet seen bound) ends at `until_s` unless it is confirmed."""

    node: str
    kind: str = ""
    running: bool = False
    until_s: float = inf
    holds: int = 0


@dataclass(slots=True)
class _Node:
    pods: int = 0
    held: int = 0
    starting: dict[str, float] = field(default_factory=dict)  # since when [s], the oldest first
    running: dict[str, float] = field(default_factory=dict)  # the same, of Pods that were seen to start
    start_s: float = nan  # how long Pods take to start here, and to run: recent means
    run_s: float = nan
    new: dict[str, int] = field(default_factory=dict)  # Pods here per kind that is not known yet
    met_s: dict[str, float] = field(default_factory=dict)  # first start of those kinds
    known: dict[str, None] = field(default_factory=dict)  # kinds in the order in which they became known


class Ledger:
    """All places: the scheduler's side of `available = slots − assigned`. Keyed by Pod, so a watch may repeat itself.

    `show` copies what a policy needs to know into a node's view.

    >>> ledger, view = Ledger(), NodeState("a", slots=40, prior_slots=8)
    >>> for uid in "123": ledger.put(uid, Place("a", kind="job-x", until_s=30.0))
    >>> ledger.put("1", Place("a", "job-x", running=True), now_s=5.0)
    >>> ledger.show(view, now_s=6.0); view.assigned, view.starting, view.unprofiled, view.available()
    (3, 2, 3, 25.0)
    >>> ledger.expire(now_s=31.0), ledger.show(view, now_s=31.0), view.unprofiled, view.available()
    (['2', '3'], None, 0, 39)
    """

    def __init__(self, proof_s: float = PROOF_S) -> None:
        self._proof_s = proof_s
        self._places: dict[str, Place] = {}
        self._nodes: dict[str, _Node] = {}

    def __len__(self) -> int:
        return len(self._places)

    def node_of(self, uid: str) -> str | None:
        place = self._places.get(uid)
        return None if place is None else place.node

    def put(self, uid: str, place: Place, now_s: float = 0.0) -> None:
        """`uid` holds `place`. A confirmed place does not become assumed again, a running Pod does not un-run."""
        old = self._places.get(uid)
        if old is not None and old.node == place.node:
            place = Place(
                place.node,
                place.kind,
                old.running or place.running,
                max(old.until_s, place.until_s),
                max(old.holds, place.holds),
            )
        if old == place:
            return
        before = self._nodes[old.node] if old is not None else _Node()
        began_s, ran_s = before.starting.get(uid), before.running.get(uid)
        self.release(uid)
        self._places[uid] = place
        node = self._nodes.setdefault(place.node, _Node())
        node.pods += 1
        node.held += place.holds
        if not place.running:
            node.starting[uid] = now_s if began_s is None else began_s
        elif began_s is not None:
            node.running[uid] = now_s
            node.start_s = _recent(node.start_s, now_s - began_s)
        elif ran_s is not None:
            node.running[uid] = ran_s
        if place.kind not in node.known:
            node.new[place.kind] = node.new.get(place.kind, 0) + 1
            if place.running:
                node.met_s.setdefault(place.kind, now_s)

    def release(self, uid: str, ended_s: float | None = None) -> str | None:
        """`uid` finished (at `ended_s`) or vanished: returns the node that it frees, None if it held nothing."""
        place = self._places.pop(uid, None)
        if place is None:
            return None
        node = self._nodes[place.node]
        node.pods -= 1
        node.held -= place.holds
        node.starting.pop(uid, None)
        ran_s = node.running.pop(uid, None)
        if ran_s is not None and ended_s is not None:
            node.run_s = _recent(node.run_s, ended_s - ran_s)
        if place.kind in node.new:
            node.new[place.kind] -= 1
        return place.node

    def expire(self, now_s: float) -> list[str]:
        """Drop assumptions that were never confirmed; returns their Pods."""
        late = [uid for uid, place in self._places.items() if place.until_s < now_s]
        for uid in late:
            self.release(uid)
        return late

    def replace(self, pods: Iterable[tuple[str, Place]], now_s: float) -> None:
        """A snapshot of all bound, unfinished Pods: what it does not name is gone, except open assumptions."""
        snapshot = dict(pods)
        for uid in [uid for uid, place in self._places.items() if uid not in snapshot and place.until_s == inf]:
            self.release(uid)
        for uid, place in snapshot.items():
            self.put(uid, place, now_s)

    def drop(self, name: str) -> None:
        """The node is gone, and what was learned on it. Pods that outlive their Node object go on holding places."""
        if (node := self._nodes.get(name)) is not None and not node.pods:
            del self._nodes[name]

    def show(self, view: NodeState, now_s: float) -> None:
        """Bring `view` up to date. Needed when a Pod of that node changed, and while some are unprofiled or starting."""
        node = self._nodes.get(view.name)
        if node is None:
            view.assigned = view.held = view.starting = view.unprofiled = 0
            view.starting_share = nan
            return
        if node.met_s:
            self._prove(node, now_s)
        while node.starting and now_s - next(iter(node.starting.values())) > LONGEST_START_S:
            del node.starting[next(iter(node.starting))]
        view.assigned, view.held, view.starting, view.known = node.pods, node.held, len(node.starting), node.known
        view.starting_share = node.start_s / max(node.start_s + node.run_s, 1e-9)
        view.unprofiled = sum(node.new.values()) if node.new else 0

    def _prove(self, node: _Node, now_s: float) -> None:
        for kind in [kind for kind, met_s in node.met_s.items() if now_s - met_s >= self._proof_s]:
            del node.met_s[kind]
            node.new.pop(kind, None)
            node.known[kind] = None
        while len(node.known) > MOST_KINDS:
            del node.known[next(iter(node.known))]


def _recent(mean_s: float, new_s: float) -> float:
    """A mean over the last few Pods; the first one is believed as it is."""
    return new_s if mean_s != mean_s else mean_s + RECENT_WEIGHT * (new_s - mean_s)
