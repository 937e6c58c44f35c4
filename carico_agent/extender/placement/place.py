"""One Pod's place."""

from dataclasses import dataclass
from math import inf

from carico_agent.extender.placement.lifecycle import PodState


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Pod is, or is to be."""

    node: str
    workload: str = ""
    holds: int = 0
    """What it asks of the extended resource."""
    until_s: float = inf
    """When it expires, while it is only assumed [s]."""
    state: PodState = PodState.ASSUMED
    cpu: float = 0.0
    """Its requests [cores]."""
    memory: float = 0.0
    """The same [bytes]."""
    requested: bool = False
    """Every container requests CPU."""

    def into(self, state: PodState) -> "Place":
        if state is self.state:
            return self
        return Place(self.node, self.workload, self.holds, self.until_s, state, self.cpu, self.memory, self.requested)
