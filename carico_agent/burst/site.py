"""A target as the planner sees it: what is there, what it costs, how it grows."""

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from carico_agent.burst.catalogue import INSTANCE
from carico_agent.burst.cluster import ClusterView
from carico_agent.burst.overflow import NodeRoom
from carico_agent.burst.provisioner import Provisioner
from carico_agent.burst.sizing import IdleNodes
from carico_agent.burst.target import NOWHERE, Target
from carico_agent.lib.kube.access import from_text


@dataclass
class Site:
    """Prices are per node and hour, times in seconds; `ordered_s` is monotonic."""

    target: Target
    view: ClusterView
    region: str = ""
    price_per_h: float | None = None
    image_s: float = 0.0
    data_s_per_gb: float = 0.0
    autoscales_s: float | None = None
    provisioner: Provisioner | None = None
    new_node: NodeRoom = field(default_factory=lambda: NodeRoom("new"))
    machines: dict[str, tuple[NodeRoom, float | None]] = field(default_factory=dict)
    """Machine → a new node of it, and its price per hour. Empty: all nodes are `new_node` for `price_per_h`."""
    on_demand: bool = False
    """It has no kubeconfig of its own: its provisioner hands one back."""
    boot_s: float = 300.0
    max_nodes: int = 0
    min_nodes: int = 0
    ordered_s: float = 0.0
    idle: IdleNodes = field(default_factory=IdleNodes)
    looked_s: float = -inf
    """When the Secret of its kubeconfig was read last (monotonic)."""
    used_kubeconfig: str = field(default="", repr=False)

    def obstacle(self, now_s: float) -> str:
        """Why it cannot be used now."""
        if self.can_be_made():
            return ""
        silent_s = self.target.silent_since_s
        if silent_s is not None:
            return f"does not answer for {now_s - silent_s:.0f} s"
        if not self.view.synced and self.provisioner is None:
            return "is not known yet"
        return ""

    def can_be_made(self) -> bool:
        """Whether it need not answer: it does not exist yet, or is being made."""
        if self.provisioner is None:
            return False
        state = self._reported()
        if state == "absent" or (state == "unknown" and self.provisioner.order.number == 0 and self.on_demand):
            return True
        return self.provisioner.order.open and self.provisioner.order.verb == "scale" and not self.target.known

    def _reported(self) -> str:
        assert self.provisioner is not None
        report = self.provisioner.report
        return (self.provisioner.last_report if report.state == "unknown" else report).state

    def condition(self, now_s: float) -> str:
        """For `status`: what stands in the way, or what is being done, or nothing."""
        provisioner = self.provisioner
        if provisioner is not None and provisioner.trouble:
            return f"its provisioner fails: {provisioner.trouble}"
        if provisioner is not None and provisioner.order.open:
            order = provisioner.order
            return "is being deleted" if order.verb == "delete" else f"is being made: {order.nodes} nodes are ordered"
        if self.can_be_made():
            return "does not exist; it is made when Jobs need it"
        return self.obstacle(now_s)

    def machine_of(self, node: str) -> str:
        """Which machine a node of the view is; of one that does not say, the first that may be ordered."""
        seen = self.view.nodes.get(node)
        said = seen.traits.labels.get(INSTANCE, "") if seen is not None else ""
        return said if said in self.machines else next(iter(self.machines), "")

    def kept_machines(self, busy: set[str]) -> dict[str, int]:
        """How many nodes of each machine stay when the target shrinks: busy ones, and `min_nodes` of the first one."""
        if not self.machines:
            return {}
        counts = Counter(map(self.machine_of, busy))
        counts[next(iter(self.machines))] += max(0, self.min_nodes - len(busy))
        return {name: count for name, count in counts.items() if count}

    def use_kubeconfig(self) -> None:
        """Take the way into the cluster that the provisioner has handed back; raises BadAccess for one that is none."""
        provisioner = self.provisioner
        if not self.on_demand or provisioner is None or provisioner.kubeconfig == self.used_kubeconfig:
            return
        text = provisioner.kubeconfig
        access = from_text(text, f"kubeconfig of {self.target.name}") if text else NOWHERE
        self.used_kubeconfig = text
        if text:
            self.target.use(access)
        else:
            self.target.forget()
            self.view.forget()
