"""What the Pods of one node add up to: how many, how many of them start, which kinds have shown what they cost."""

from dataclasses import dataclass, field
from math import nan

from carico_agent.schedule.kind_costs import KindTally
from carico_agent.schedule.nodes import NodeState
from carico_agent.schedule.placement.lifecycle import PodState
from carico_agent.schedule.placement.place import Place

PROFILE_S = 12.0
"""A kind is profiled on a node this long after its first start there [s]: settling 1.5 s, three batches, the write
throttle's 5 s, and the way to us."""

RECENT_WEIGHT = 0.2
"""Weight of the newest Pod in a node's mean times to start and to run: about the last five count."""

LONGEST_START_S = 60.0
"""A Pod that has been starting for longer is stuck [s] (an image, a volume). It holds its place, but no longer keeps
others from starting, and it says nothing about how long Pods start here."""

MOST_KINDS = 64
"""Kinds remembered per node; beyond, the one profiled longest ago is forgotten and would be unprofiled again."""


@dataclass(slots=True)
class NodeTally:
    """One node's sums, kept up to date Pod by Pod."""

    pods: int = 0
    held: int = 0
    cpu: float = 0.0  # requests [cores], [bytes]
    memory: float = 0.0
    kinds: dict[str, KindTally] = field(default_factory=dict)  # those that have Pods here
    starting: dict[str, float] = field(default_factory=dict)  # since when [s], the oldest first
    running: dict[str, float] = field(default_factory=dict)  # the same, of Pods that were seen to start
    start_s: float = nan  # how long Pods take to start here, and to run: recent means
    run_s: float = nan
    unprofiled: dict[str, int] = field(default_factory=dict)  # Pods here per kind that is not profiled yet
    first_start_s: dict[str, float] = field(default_factory=dict)  # of those kinds
    known: dict[str, None] = field(default_factory=dict)  # profiled kinds in the order in which they became so

    def add(self, uid: str, place: Place, now_s: float, times: tuple[float, float]) -> None:
        """A Pod holds a place here. `times`: since when it has been starting and running, NaN if it was not seen."""
        (began_s, ran_s), kind, running = times, place.kind, place.state is PodState.RUNNING
        self._count(place, 1)
        if not running:
            self.starting[uid] = now_s if began_s != began_s else began_s
        elif began_s == began_s:
            self.running[uid] = now_s
            self.start_s = _recent(self.start_s, now_s - began_s)
        elif ran_s == ran_s:
            self.running[uid] = ran_s
        if kind not in self.known:
            self.unprofiled[kind] = self.unprofiled.get(kind, 0) + 1
            if running:
                self.first_start_s.setdefault(kind, now_s)

    def remove(self, uid: str, place: Place) -> tuple[float, float]:
        """Its place is free. Returns since when it had been starting and running, NaN if it was not seen."""
        self._count(place, -1)
        if place.kind in self.unprofiled:
            self.unprofiled[place.kind] -= 1
        return self.starting.pop(uid, nan), self.running.pop(uid, nan)

    def _count(self, place: Place, sign: int) -> None:
        self.pods += sign
        self.held += sign * place.holds
        self.cpu = self.cpu + sign * place.cpu if self.pods else 0.0  # no rounding errors on an empty node
        self.memory = self.memory + sign * place.memory if self.pods else 0.0
        kind = self.kinds.setdefault(place.kind, KindTally())
        kind.pods += sign
        kind.unrequested += 0 if place.requested else sign
        kind.cpu += sign * place.cpu
        kind.memory += sign * place.memory
        if not kind.pods:
            del self.kinds[place.kind]

    def ran(self, seconds: float) -> None:
        """A Pod that was seen to start has ended after so long; NaN: it was not seen."""
        if seconds == seconds:
            self.run_s = _recent(self.run_s, seconds)

    def show(self, state: NodeState, now_s: float, profile_s: float) -> None:
        """Copy what a policy needs to know."""
        if self.first_start_s:
            self._profile(now_s - profile_s)
        while self.starting and now_s - next(iter(self.starting.values())) > LONGEST_START_S:
            del self.starting[next(iter(self.starting))]
        state.assigned, state.held, state.starting, state.known = self.pods, self.held, len(self.starting), self.known
        state.starting_share = self.start_s / max(self.start_s + self.run_s, 1e-9)
        state.cpu_requested, state.memory_requested = self.cpu, self.memory
        state.unprofiled = sum(self.unprofiled.values()) if self.unprofiled else 0

    def _profile(self, before_s: float) -> None:
        for kind in [kind for kind, first_s in self.first_start_s.items() if first_s <= before_s]:
            del self.first_start_s[kind]
            self.unprofiled.pop(kind, None)
            self.known[kind] = None
        while len(self.known) > MOST_KINDS:
            del self.known[next(iter(self.known))]


def _recent(mean_s: float, new_s: float) -> float:
    """A mean over the last few Pods; the first one is taken as it is."""
    return new_s if mean_s != mean_s else mean_s + RECENT_WEIGHT * (new_s - mean_s)
