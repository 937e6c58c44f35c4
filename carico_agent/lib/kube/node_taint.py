"""The taint of nodes without room, as patches of a Node that change no other taint.

A Node's taints are one list that a patch replaces as a whole. So the patch carries the version of the Node that was
read: when another controller has written meanwhile, the API server answers 409, and nothing of that is lost.
"""

from carico_agent.lib.kube.client import MERGE, KubeClient, Object
from carico_agent.lib.kube.errors import Refused

FULL = "carico.dev/full"
TRIES = 3


async def set_taint(client: KubeClient, name: str, full: bool) -> Object | None:
    """Give the node the taint, or take it away: the Node object as it is then. None: there is no such node. Raises
    KubeError, also when other clients wrote the Node between each of our reads and writes."""
    for tried in range(1, TRIES + 1):
        found = (await client.get("/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})).get("items") or ()
        node: Object | None = next(iter(found), None)
        if node is None or has_taint(node) == full:
            return node
        try:
            body, whole = taint_patch(node, full), {"Content-Type": MERGE}  # the answer is the whole object
            return await client.request("PATCH", f"/api/v1/nodes/{name}", body, whole)
        except Refused as refused:
            if refused.status != 409 or tried == TRIES:
                raise
    return None


def taint_patch(node: Object, full: bool) -> Object:
    """A merge patch that gives this Node object the taint, or takes it away.

    >>> node = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}
    >>> [one["key"] for one in taint_patch(node, True)["spec"]["taints"]], taint_patch(node, False)["metadata"]
    (['other', 'carico.dev/full'], {'resourceVersion': '7'})
    """
    kept = [one for one in (node.get("spec") or {}).get("taints") or () if one.get("key") != FULL]
    ours = [{"key": FULL, "effect": "PreferNoSchedule"}] if full else []
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": kept + ours or None},
    }


def has_taint(node: Object) -> bool:
    return any(one.get("key") == FULL for one in (node.get("spec") or {}).get("taints") or ())
