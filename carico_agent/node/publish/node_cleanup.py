"""Takes everything of ours off nodes again: for `carico kube remove` and for nodes whose agent is gone."""

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.names import ANNOTATIONS, RESOURCE
from carico_agent.lib.kube.node_taint import has_taint, set_taint
from carico_agent.lib.kube.placement_lease import PlacementLeases
from carico_agent.lib.kube.pods import UNFINISHED, facts


def removal(resource: str) -> Object:
    """The patch that takes everything of ours off a node."""
    gone = {resource: None}
    return {
        "metadata": {"annotations": dict.fromkeys(ANNOTATIONS)},
        "status": {"capacity": gone, "allocatable": gone},
    }


async def remove(client: KubeClient, node: str, resource: str = RESOURCE, lease_namespace: str = "") -> int:
    """Take carico's traces off `node`; returns how much of the resource bound Pods still hold."""
    pods = await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node},{UNFINISHED}"})
    held = sum(facts(pod, resource).holds for pod in pods.get("items") or ())
    patch = removal(resource)
    if held:  # the kubelet would refuse those Pods at its next start
        amount = {resource: str(held)}
        patch = {**patch, "status": {"capacity": amount, "allocatable": amount}}
    await client.patch(f"/api/v1/nodes/{node}/status", patch)
    await set_taint(client, node, full=False)
    if lease_namespace:
        await PlacementLeases(client, lease_namespace).remove(node)
    return held


async def marked(client: KubeClient, resource: str = RESOURCE) -> list[str]:
    """Nodes that carry something of ours."""
    nodes = (await client.get("/api/v1/nodes")).get("items") or ()
    return [node["metadata"]["name"] for node in nodes if _is_marked(node, resource)]


def _is_marked(node: Object, resource: str) -> bool:
    annotations, status = node["metadata"].get("annotations") or {}, node.get("status") or {}
    return (
        not annotations.keys().isdisjoint(ANNOTATIONS)
        or resource in (status.get("capacity") or {})
        or resource in (status.get("allocatable") or {})
        or has_taint(node)
    )
