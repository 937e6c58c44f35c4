"""What the plugin reads with the user's own rights: Nodes, Pods, placement Leases. It writes nothing.

Who may not list nodes sees the Pods of one namespace; who may not list all Pods, those of one namespace on the nodes;
who may not list the Leases, ages by the annotations alone. What is missing is noted, never guessed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from carico_agent.extender.published import SeenLease, read_lease
from carico_agent.kubectl.nodes import NodeView, node_view, slim
from carico_agent.kubectl.pods import PodRow, pod_view
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.leases import leases_path
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.pods import UNFINISHED

T = TypeVar("T")
PAGE = 500
"""Objects per page, as kubectl asks for them."""

LEASE_NAMESPACE = "carico"


@dataclass(frozen=True)
class Scope:
    """Which part of the cluster is asked for."""

    namespace: str = "default"
    """Where a user is who may not see more."""
    only: str = ""
    """Pods of this namespace only; empty: all that the user may list."""
    node_labels: str = ""
    """A label selector."""
    resource: str = RESOURCE
    lease_namespace: str = LEASE_NAMESPACE


@dataclass
class Seen:
    """What could be read. `nodes` None: this user may not list nodes."""

    nodes: list[Object] | None = None
    pods: list[PodRow] = field(default_factory=list)
    leases: dict[str, SeenLease] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def views(self, resource: str) -> list[NodeView]:
        return [node_view(node, self.leases.get(node["metadata"]["name"]), resource) for node in self.nodes or ()]


async def read(client: KubeClient, scope: Scope) -> Seen:
    """Raises KubeError when there is nothing to show."""
    seen = Seen()
    await _read_nodes(client, scope, seen)
    await _read_pods(client, scope, seen)
    return seen


async def _read_nodes(client: KubeClient, scope: Scope, seen: Seen) -> None:
    try:
        seen.nodes = await items(client, "/api/v1/nodes", slim, labelSelector=scope.node_labels)
    except Refused as refused:
        if refused.status != 403:
            raise
        seen.notes.append(f"nodes are not shown: {refused}")
        return
    path = leases_path(scope.lease_namespace)
    try:
        seen.leases = {one.name: one for one in await items(client, path, read_lease)}
    except Refused as refused:
        if refused.status not in (403, 404):
            raise
        seen.notes.append(f"ages are those of the annotations, Leases cannot be read: {refused}")


async def _read_pods(client: KubeClient, scope: Scope, seen: Seen) -> None:
    only = scope.only or (scope.namespace if seen.nodes is None else "")

    def pick(pod: Object) -> PodRow:
        return pod_view(pod, scope.resource)

    try:
        seen.pods = await items(client, _pods_path(only), pick, fieldSelector=UNFINISHED)
    except Refused as refused:
        if refused.status != 403 or only:
            raise
        seen.notes.append(f"only Pods of namespace {scope.namespace} are counted: {refused}")
        seen.pods = await items(client, _pods_path(scope.namespace), pick, fieldSelector=UNFINISHED)


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"


async def items(client: KubeClient, path: str, pick: Callable[[Object], T], **selectors: str) -> list[T]:
    """A whole list, page by page; what `pick` leaves out of an object does not stay in memory."""
    found: list[T] = []
    wanted = {"limit": str(PAGE), **{name: text for name, text in selectors.items() if text}}
    token = ""
    while True:
        page = await client.get(path, {**wanted, **({"continue": token} if token else {})})
        found += [pick(item) for item in page.get("items") or ()]
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return found
