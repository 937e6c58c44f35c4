"""Who holds a place where: the scheduler's side of `available = slots − assigned`. Pure; time is an argument.

Keyed by Pod: saying the same thing twice changes nothing, so a watch may repeat itself, and a relist is `replace`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from carico_agent.schedule.policy import NodeView

PROOF_S = 12.0
"""A kind is known on a node this long after its first start there [s]: settling 1.5 s, three batches, the publishing
gate's 5 s, and the way to us."""

MOST_KINDS = 64
"""Kinds remembered per node; beyond, the one met longest ago is forgotten and would be a stranger again."""


@dataclass(frozen=True, slots=True)
class Place:
    """One Pod's place. An assumed one (chosen, not yet seen bound) ends at `until_s` unless it is confirmed."""

    node: str
    kind: str = ""
    running: bool = False
    until_s: float = inf


@dataclass(slots=True)
class _Node:
    pods: int = 0
    starting: int = 0
    new: dict[str, int] = field(default_factory=dict)  # Pods here per kind that is not known yet
    met_s: dict[str, float] = field(default_factory=dict)  # first start of those kinds
    known: dict[str, None] = field(default_factory=dict)  # kinds in the order in which they became known


class Ledger:
    """All places. `show` copies what a policy needs to know into a node's view.

    >>> ledger, view = Ledger(), NodeView("a", slots=40, prior_slots=8)
    >>> for uid in "123": ledger.put(uid, Place("a", kind="job-x", until_s=30.0))
    >>> ledger.put("1", Place("a", "job-x", running=True), now_s=5.0)
    >>> ledger.show(view, now_s=6.0); view.assigned, view.starting, view.strangers, view.available()
    (3, 2, 3, 25.0)
    >>> ledger.expire(now_s=31.0), ledger.show(view, now_s=31.0), view.strangers, view.available()
    (['2', '3'], None, 0, 39)
    """

    def __init__(self, proof_s: float = PROOF_S) -> None:
        self._proof_s = proof_s
        self._places: dict[str, Place] = {}
        self._nodes: dict[str, _Node] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, uid: str, place: Place, now_s: float = 0.0) -> None:
        """`uid` holds `place`. A confirmed place does not become assumed again, a running Pod does not un-run."""
        old = self._places.get(uid)
        if old is not None and old.node == place.node:
            place = Place(place.node, place.kind, old.running or place.running, max(old.until_s, place.until_s))
        if old == place:
            return
        self.release(uid)
        self._places[uid] = place
        node = self._nodes.setdefault(place.node, _Node())
        node.pods += 1
        node.starting += not place.running
        if place.kind not in node.known:
            node.new[place.kind] = node.new.get(place.kind, 0) + 1
            if place.running:
                node.met_s.setdefault(place.kind, now_s)

    def release(self, uid: str) -> str | None:
        """`uid` finished or vanished: returns the node that it frees, None if it held nothing."""
        place = self._places.pop(uid, None)
        if place is None:
            return None
        node = self._nodes[place.node]
        node.pods -= 1
        node.starting -= not place.running
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
        """The node is gone, and what was learned on it."""
        for uid in [uid for uid, place in self._places.items() if place.node == name]:
            self.release(uid)
        self._nodes.pop(name, None)

    def show(self, view: NodeView, now_s: float) -> None:
        """Bring `view` up to date. Needed when a Pod of that node changed, and while it has strangers."""
        node = self._nodes.get(view.name)
        if node is None:
            view.assigned = view.starting = view.strangers = 0
            return
        if node.met_s:
            self._prove(node, now_s)
        view.assigned, view.starting, view.known = node.pods, node.starting, node.known
        view.strangers = sum(node.new.values()) if node.new else 0

    def _prove(self, node: _Node, now_s: float) -> None:
        for kind in [kind for kind, met_s in node.met_s.items() if now_s - met_s >= self._proof_s]:
            del node.met_s[kind]
            node.new.pop(kind, None)
            node.known[kind] = None
        while len(node.known) > MOST_KINDS:
            del node.known[next(iter(node.known))]
