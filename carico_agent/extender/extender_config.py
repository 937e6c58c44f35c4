"""How an extender answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """Times in seconds."""

    lease_namespace: str = "carico"
    """Where the placement Leases are; empty: there are none, and no other extender binds."""
    resource: str = ""
    """The extended resource that Pods ask for, if any."""
    bound_within_s: float = 15.0
    """A Pod that was placed is seen bound within this, or its place is free again."""
    bind_s: float = 4.0
    """Bind answers within this; kube-scheduler gives up after 5 s by default."""
    max_nodes: int = 100
    """Nodes that filter hands back at most, 0: all."""
    max_nodes_per_pod: int = 3
    """Nodes that hold a place for one Pod that others bind. A scheduler tries one node after the other, and
    kube-scheduler waits a second, then two, then four between two tries."""
    admissions_per_s: float = 100.0
    """Bindings by others to one node that are let in per second. kube-scheduler binds some 300 in the whole cluster."""
