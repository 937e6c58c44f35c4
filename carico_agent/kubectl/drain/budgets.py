"""PodDisruptionBudgets: which Pods the eviction API would let go, and how many of them at once. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from carico_agent.kubectl.drain.facts import PlannedPod
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.filters.selectors import selects


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    name: str
    selector: Mapping[str, Any] | None
    allowed: int
    """How many Pods may go right now (status.disruptionsAllowed)."""
    healthy: bool
    """At least as many Pods are ready as must be: then Pods that are not ready may go without a budget."""
    unready_go: bool
    """unhealthyPodEvictionPolicy AlwaysAllow."""

    def covers(self, pod: PlannedPod) -> bool:
        return pod.namespace == self.namespace and selects(self.selector, pod.labels)


def budget(pdb: Object) -> Budget:
    spec, status = pdb.get("spec") or {}, pdb.get("status") or {}
    return Budget(
        str(pdb["metadata"].get("namespace", "")),
        str(pdb["metadata"]["name"]),
        spec.get("selector"),
        int(status.get("disruptionsAllowed") or 0),
        int(status.get("currentHealthy") or 0) >= int(status.get("desiredHealthy") or 0),
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
    )


@dataclass
class Remaining:
    """What is left of all budgets while a drain goes on. A Pod that was placed again gives its budget back."""

    budgets: tuple[Budget, ...] = ()
    spent: dict[tuple[str, str], int] = field(default_factory=dict)

    def refusal(self, pod: PlannedPod) -> str:
        """Why the eviction API would keep this Pod; empty: it would not."""
        covering = [one for one in self.budgets if one.covers(pod)]
        if len(covering) > 1:
            return f"more than one PodDisruptionBudget covers it ({', '.join(one.name for one in covering)})"
        for one in covering:
            if pod.node and not pod.ready and (one.unready_go or one.healthy):
                continue
            if one.allowed - self.spent.get((one.namespace, one.name), 0) < 1:
                return f"PodDisruptionBudget {one.name} allows no eviction"
        return ""

    def spend(self, pod: PlannedPod, amount: int = 1) -> None:
        for one in self.budgets:
            if one.covers(pod) and pod.ready:
                key = one.namespace, one.name
                self.spent[key] = self.spent.get(key, 0) + amount


def remaining(pdbs: Iterable[Object]) -> tuple[Budget, ...]:
    return tuple(budget(one) for one in pdbs)
