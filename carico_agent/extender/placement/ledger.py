"""All places: the scheduler's side of `available = places − assigned`. Keyed by Pod, so a watch may repeat itself.

Every change is an event (placement/lifecycle.py); `apply` is the only way in.
"""

from collections.abc import Iterable, Mapping
from math import nan

from carico_agent.extender.node_record import NodeRecords
from carico_agent.extender.nodes import NodeState
from carico_agent.extender.placement.lifecycle import PodEvent, PodState, after
from carico_agent.extender.placement.place import Place
from carico_agent.extender.placement.tally import PROFILE_S, NodeTally
from carico_agent.extender.workload_costs import WorkloadTally

REMEMBER_S = 300.0
"""How long an ended Pod is remembered [s], so that an old answer does not bring it back."""

_SEEN = (PodEvent.SEEN_BOUND, PodEvent.SEEN_RUNNING)


class Ledger:
    """Every Pod that holds a place, or ended lately. Times are monotonic seconds.

    >>> ledger, state = Ledger(), NodeState("a", places=40, prior_places=8)
    >>> for uid in "123": ledger.apply(PodEvent.ASSUME, uid, 0.0, Place("a", "job-x", until_s=30.0))
    >>> ledger.apply(PodEvent.SEEN_RUNNING, "1", 5.0, Place("a", "job-x"))
    >>> ledger.show(state, now_s=6.0); state.assigned, state.starting, state.unprofiled, len(ledger)
    (3, 2, 3, 3)
    >>> ledger.expire(now_s=31.0); ledger.show(state, now_s=31.0); state.assigned, state.unprofiled
    (1, 0)
    """

    def __init__(self, profile_s: float = PROFILE_S, nodes: NodeRecords | None = None) -> None:
        """`nodes`: where what the Pods of a node add up to is kept."""
        self._profile_s, self._nodes = profile_s, NodeRecords() if nodes is None else nodes
        self._places: dict[str, Place] = {}
        # Pods by state in the order in which they came into it, and when: where something ends by time.
        self._since_s: dict[PodState, dict[str, float]] = {
            state: {} for state in (PodState.ASSUMED, PodState.ACCEPTED, PodState.ENDED)
        }
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        """How many places are held."""
        return len(self._places) - len(self._since_s[PodState.ENDED])

    def state(self, uid: str) -> PodState | None:
        place = self._places.get(uid)
        return None if place is None else place.state

    def place(self, uid: str) -> Place | None:
        """The place that this Pod holds."""
        place = self._places.get(uid)
        return place if place is not None and place.state.holds_place else None

    def longest_s(self, state: PodState, now_s: float) -> float:
        """For how long a Pod has been in this state at most [s]; 0 if none is."""
        since_s = self._since_s[state]
        return now_s - next(iter(since_s.values())) if since_s else 0.0

    def apply(self, event: PodEvent, uid: str, now_s: float, place: Place | None = None) -> None:
        """Something happened to a Pod. `place`: where, for ASSUME and what a watch has seen."""
        old = self._places.get(uid)
        state = after(None if old is None else old.state, event)
        if state is None:
            new = None
        elif place is not None and (event in _SEEN or state is PodState.ASSUMED):
            new = place.into(state)
        elif old is not None:
            new = old.into(state)
        else:  # gone before we ever saw it
            new = Place("", state=state)
        if new != old:
            self._move(uid, old, new, now_s, ended=event is PodEvent.GONE)

    def listed(self, pods: Iterable[tuple[str, Place, bool]], now_s: float) -> None:
        """A list of all bound, unfinished Pods, and whether each runs: what it does not name is gone, unless it is only
        assumed."""
        named = {uid: (place, running) for uid, place, running in pods}
        for uid in [uid for uid in self._places if uid not in named]:
            self.apply(PodEvent.UNLISTED, uid, now_s)
        for uid, (place, running) in named.items():
            self.apply(PodEvent.SEEN_RUNNING if running else PodEvent.SEEN_BOUND, uid, now_s, place)

    def expire(self, now_s: float) -> None:
        """Release places that were not confirmed in time, forget Pods that ended long ago."""
        assumed = [uid for uid in self._since_s[PodState.ASSUMED] if self._places[uid].until_s < now_s]
        for uid in assumed:
            self.apply(PodEvent.RELEASE, uid, now_s)
        ended = self._since_s[PodState.ENDED]
        while ended and next(iter(ended.values())) < now_s - REMEMBER_S:
            uid = next(iter(ended))
            del ended[uid], self._places[uid]

    def drop(self, node: str) -> None:
        """The node is gone, and what was learned on it. Pods that outlive their Node object go on holding places."""
        self._nodes.drop_unused(node)

    def show(self, state: NodeState, now_s: float) -> None:
        """Bring a node's state up to date. Needed when a Pod of it changed, and while some are unprofiled or start."""
        record = self._nodes.find(state.name)
        (NodeTally() if record is None else record.tally).show(state, now_s, self._profile_s)

    def workloads(self, node: str) -> Mapping[str, WorkloadTally]:
        """The Pods that hold a place on `node`, by workload."""
        record = self._nodes.find(node)
        return {} if record is None else record.tally.workloads

    def take_changed(self) -> list[str]:
        """The nodes whose Pods changed since this was last asked."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def _move(self, uid: str, old: Place | None, new: Place | None, now_s: float, ended: bool) -> None:
        times = (nan, nan)
        if old is not None:
            if (since_s := self._since_s.get(old.state)) is not None:
                since_s.pop(uid, None)
            if old.state.holds_place:
                tally = self._nodes.of(old.node).tally
                times = tally.remove(uid, old)
                if ended:
                    tally.ran(now_s - times[1])
                self._changed[old.node] = None
        if new is None:
            self._places.pop(uid, None)
            return
        self._places[uid] = new
        if (since_s := self._since_s.get(new.state)) is not None:
            since_s[uid] = now_s
        if new.state.holds_place:
            self._nodes.of(new.node).tally.add(uid, new, now_s, times)
            self._changed[new.node] = None
