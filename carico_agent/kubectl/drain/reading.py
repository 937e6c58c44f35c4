"""What the planner needs of a cluster, read with the user's own rights.

Nodes and Pods must be readable. Without PodDisruptionBudgets, volumes or namespaces the plan is made without them, and
a note says so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any, TypeVar

import numpy as np

from carico_agent.extender.published import SeenLease, read_lease
from carico_agent.kubectl.drain.budgets import Budget, budget
from carico_agent.kubectl.drain.facts import PlannedNode, PlannedPod, node_facts, pod_facts
from carico_agent.kubectl.drain.state import Floats, Mask, MeasuredUse, TrialCluster
from carico_agent.kubectl.nodes import INVALID, NodeView, node_view, slim
from carico_agent.kubectl.reading import Scope, items
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.filters.pod_rules import node_terms_of
from carico_agent.lib.kube.filters.selectors import node_term
from carico_agent.lib.kube.leases import leases_path
from carico_agent.lib.kube.pods import UNFINISHED
from carico_agent.lib.kube.workloads import RESOURCES

T = TypeVar("T")
PRIOR_CORES = 1.0
"""What a Pod takes of which nothing is known, as the extender assumes."""


@dataclass
class ReadCluster:
    nodes: list[PlannedNode] = field(default_factory=list)
    views: list[NodeView] = field(default_factory=list)
    pods: list[PlannedPod] = field(default_factory=list)
    budgets: tuple[Budget, ...] = ()
    volumes: dict[str, Mask] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> list[PlannedPod]:
        """Pods without a node, of any scheduler; those that are leaving do not want one."""
        return [pod for pod in self.pods if not pod.node and not pod.leaving]

    @property
    def measured(self) -> bool:
        """A node publishes room."""
        return any(_publishes(view) for view in self.views)

    def by_requests(self) -> TrialCluster:
        return self._situation(None, True)

    def by_use(self) -> TrialCluster:
        return self._situation(measured_use(self), False)

    def by_both(self) -> TrialCluster:
        """As with the extender: requests and, where any node publishes it, use."""
        return self._situation(measured_use(self) if self.measured else None, True)

    def _situation(self, use: MeasuredUse | None, requests: bool) -> TrialCluster:
        made = TrialCluster(self.nodes, self.volumes, use, requests)
        made.add(self.pods)
        return made


def _publishes(view: NodeView) -> bool:
    return view.workloads is not None and view.state not in INVALID


def measured_use(cluster: ReadCluster) -> MeasuredUse:
    """Room as nodes publish it. A Pod's cost is what its own node has measured of its workload, else the highest that
    another node has, else its requests."""
    room = np.full((len(cluster.nodes), len(RESOURCES)), -inf)
    highest: dict[str, Floats] = {}
    for at, view in enumerate(cluster.views):
        if view.workloads is None or not _publishes(view):
            continue
        room[at] = [nan if not isfinite(one) else one for one in view.workloads.room]
        for name, one in view.workloads.workloads.items():
            highest[name] = np.fmax(highest.get(name, np.full(len(RESOURCES), nan)), one.cost)
    on_node = {view.name: view.workloads.workloads for view in cluster.views if view.workloads and _publishes(view)}
    cost = {}
    for pod in cluster.pods:
        here = on_node.get(pod.node, {}).get(pod.workload)
        found = np.array(here.cost) if here is not None else highest.get(pod.workload, np.full(len(RESOURCES), nan))
        cost[pod.uid] = np.where(np.isfinite(found), found, _assumed(pod))
    return MeasuredUse(room, cost)


def _assumed(pod: PlannedPod) -> Floats:
    cpu, memory = pod.requests.get("cpu", 0) / 1000, float(pod.requests.get("memory", 0))
    return np.array([cpu if cpu or memory else PRIOR_CORES, memory, 0.0, 0.0])


async def read_cluster(client: KubeClient, scope: Scope) -> ReadCluster:
    """Raises KubeError when nodes or Pods cannot be read."""
    found = ReadCluster()
    leases = await _tolerant(client, leases_path(scope.lease_namespace), read_lease, found, "ages of numbers")
    by_name: dict[str, SeenLease] = {one.name: one for one in leases}
    for node in await items(client, "/api/v1/nodes", dict):
        found.nodes.append(node_facts(node))
        found.views.append(node_view(slim(node), by_name.get(node["metadata"]["name"]), scope.resource))
    found.pods = await items(client, "/api/v1/pods", pod_facts, fieldSelector=UNFINISHED)
    pdbs = "/apis/policy/v1/poddisruptionbudgets"
    found.budgets = tuple(await _tolerant(client, pdbs, budget, found, "PodDisruptionBudgets"))
    if _selects_namespaces(found.pods):
        labels = dict(await _tolerant(client, "/api/v1/namespaces", _labels, found, "labels of namespaces"))
        found.pods = [_with_namespace(pod, labels.get(pod.namespace, {})) for pod in found.pods]
    if any(pod.claims for pod in found.pods):
        await _read_volumes(client, found)
    return found


async def _tolerant(
    client: KubeClient, path: str, pick: Callable[[Object], T], found: ReadCluster, what: str
) -> list[T]:
    try:
        return await items(client, path, pick)
    except Refused as refused:
        if refused.status not in (403, 404):
            raise
        found.notes.append(f"the plan does not know {what}: {refused}")
        return []


def _labels(namespace: Object) -> tuple[str, Mapping[str, str]]:
    return namespace["metadata"]["name"], namespace["metadata"].get("labels") or {}


def _selects_namespaces(pods: Iterable[PlannedPod]) -> bool:
    """An empty selector selects every namespace, whatever its labels."""
    return any(term.by_labels for pod in pods for term in pod.terms)


def _with_namespace(pod: PlannedPod, labels: Mapping[str, str]) -> PlannedPod:
    return replace(pod, me=replace(pod.me, namespace_labels=labels))


async def _read_volumes(client: KubeClient, found: ReadCluster) -> None:
    """Where the volume behind each claim can be reached."""

    def volume(pv: Object) -> tuple[str, Any]:
        return pv["metadata"]["name"], ((pv.get("spec") or {}).get("nodeAffinity") or {}).get("required")

    def claim(pvc: Object) -> tuple[str, str]:
        meta = pvc["metadata"]
        return f"{meta.get('namespace')}/{meta['name']}", str((pvc.get("spec") or {}).get("volumeName") or "")

    affinities = dict(await _tolerant(client, "/api/v1/persistentvolumes", volume, found, "volumes"))
    claims = await _tolerant(client, "/api/v1/persistentvolumeclaims", claim, found, "claims of volumes")
    for key, name in claims:
        if (required := affinities.get(name)) is not None:
            terms = node_terms_of(required)
            reachable = [any(node_term(one, node.name, node.labels) for one in terms) for node in found.nodes]
            found.volumes[key] = np.array(reachable, dtype=bool)
