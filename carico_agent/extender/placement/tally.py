"""What the Pods of one node add up to: how many, how many of them start, which workloads have shown what they cost."""

from dataclasses import dataclass, field
from math import nan

from carico_agent.extender.nodes import NodeState
from carico_agent.extender.placement.lifecycle import PodState
from carico_agent.extender.placement.place import Place
from carico_agent.extender.workload_costs import WorkloadTally

PROFILE_S = 12.0
"""A workload is profiled on a node this long after its first start there [s]: settling 1.5 s, three batches, the write
throttle's 5 s, and the way to us."""

RECENT_WEIGHT = 0.2
"""Weight of the newest Pod in a node's mean times to start and to run: about the last five count."""

LONGEST_START_S = 60.0
"""A Pod that has been starting for longer is stuck [s] (an image, a volume). It holds its place, but no longer keeps
others from starting, and it says nothing about how long Pods start here."""

MAX_WORKLOADS = 64
"""Workloads remembered per node; beyond, the one profiled longest ago is forgotten and would be unprofiled again."""


@dataclass(slots=True)
class NodeTally:
    """One node's sums, kept up to date Pod by Pod."""

    pods: int = 0
    held: int = 0
    cpu: float = 0.0  # requests [cores], [bytes]
    memory: float = 0.0
    workloads: dict[str, WorkloadTally] = field(default_factory=dict)  # those that have Pods here
    starting: dict[str, float] = field(default_factory=dict)  # since when [s], the oldest first
    running: dict[str, float] = field(default_factory=dict)  # the same, of Pods that were seen to start
    start_s: float = nan  # how long Pods take to start here, and to run: recent means
    run_s: float = nan
    unprofiled: dict[str, int] = field(default_factory=dict)  # Pods here per workload that is not profiled yet
    first_start_s: dict[str, float] = field(default_factory=dict)  # of those workloads
    known: dict[str, None] = field(default_factory=dict)  # profiled workloads in the order in which they became so

    def add(self, uid: str, place: Place, now_s: float, times: tuple[float, float]) -> None:
        """A Pod holds a place here. `times`: since when it has been starting and running, NaN if it was not seen."""
        (began_s, ran_s), workload, running = times, place.workload, place.state is PodState.RUNNING
        self._count(place, 1)
        if not running:
            self.starting[uid] = now_s if began_s != began_s else began_s
        elif began_s == began_s:
            self.running[uid] = now_s
            self.start_s = _recent(self.start_s, now_s - began_s)
        elif ran_s == ran_s:
            self.running[uid] = ran_s
        if workload not in self.known:
            self.unprofiled[workload] = self.unprofiled.get(workload, 0) + 1
            if running:
                self.first_start_s.setdefault(workload, now_s)

    def remove(self, uid: str, place: Place) -> tuple[float, float]:
        """Its place is free. Returns since when it had been starting and running, NaN if it was not seen."""
        self._count(place, -1)
        if place.workload in self.unprofiled:
            self.unprofiled[place.workload] -= 1
        return self.starting.pop(uid, nan), self.running.pop(uid, nan)

    def _count(self, place: Place, sign: int) -> None:
        self.pods += sign
        self.held += sign * place.holds
        self.cpu = self.cpu + sign * place.cpu if self.pods else 0.0  # no rounding errors on an empty node
        self.memory = self.memory + sign * place.memory if self.pods else 0.0
        workload = self.workloads.setdefault(place.workload, WorkloadTally())
        workload.pods += sign
        workload.unrequested += 0 if place.requested else sign
        workload.cpu += sign * place.cpu
        workload.memory += sign * place.memory
        if not workload.pods:
            del self.workloads[place.workload]

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
        state.unprofiled, state.unprofiled_workloads = sum(self.unprofiled.values()), self.unprofiled

    def _profile(self, before_s: float) -> None:
        for workload in [workload for workload, first_s in self.first_start_s.items() if first_s <= before_s]:
            del self.first_start_s[workload]
            self.unprofiled.pop(workload, None)
            self.known[workload] = None
        while len(self.known) > MAX_WORKLOADS:
            del self.known[next(iter(self.known))]


def _recent(mean_s: float, new_s: float) -> float:
    """A mean over the last few Pods; the first one is taken as it is."""
    return new_s if mean_s != mean_s else mean_s + RECENT_WEIGHT * (new_s - mean_s)
