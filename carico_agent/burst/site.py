"""A target as the planner sees it: what is there, what it costs, how it grows."""

from dataclasses import dataclass, field

from carico_agent.burst.cluster import ClusterView
from carico_agent.burst.overflow import NodeRoom
from carico_agent.burst.provisioner import Provisioner
from carico_agent.burst.target import Target


@dataclass
class Site:
    """Prices are per node and hour, times in seconds; `ordered_s` and `idle_since_s` are monotonic."""

    target: Target
    view: ClusterView
    region: str = ""
    price_per_h: float | None = None
    image_s: float = 0.0
    data_s_per_gb: float = 0.0
    autoscales_s: float | None = None
    provisioner: Provisioner | None = None
    new_node: NodeRoom = field(default_factory=lambda: NodeRoom("new"))
    boot_s: float = 300.0
    max_nodes: int = 0
    ordered_s: float = 0.0
    idle_since_s: float | None = None

    def obstacle(self, now_s: float) -> str:
        """Why it cannot be used now."""
        silent_s = self.target.silent_since_s
        if silent_s is not None and not (self.provisioner is not None and self.provisioner.report.state == "absent"):
            return f"does not answer for {now_s - silent_s:.0f} s"
        if not self.view.synced and self.provisioner is None:
            return "is not known yet"
        return ""
