"""A provisioner for a cluster whose nodes exist already: they are opened and closed by uncordon and cordon.

    provisioner = ["python3", "-m", "carico_agent.burst.cordon", "--kubeconfig", "FILE", "--label", "pool=burst"]

Speaks the contract of `provisioner`: JSON in, JSON out. As many nodes of the label are open as were asked for; nodes
with Jobs (`busy`) are not closed. Setting a number twice is setting it once, so request ids need no memory. It never
says `absent`: the cluster exists, whatever is closed.
"""

import argparse
import sys

from carico_agent.burst.provisioner_command import speak
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object


def changes(nodes: dict[str, bool], wanted: int, busy: set[str]) -> dict[str, bool]:
    """Which nodes to open (True) or close (False) so that `wanted` are open; busy ones stay open.

    >>> changes({"a": True, "b": False, "c": False}, 2, set())
    {'b': True}
    >>> changes({"a": True, "b": True, "c": True}, 1, {"c"})
    {'a': False, 'b': False}
    """
    open_ = [name for name, is_open in sorted(nodes.items()) if is_open]
    closed = [name for name, is_open in sorted(nodes.items()) if not is_open]
    if wanted >= len(open_):
        return dict.fromkeys(closed[: wanted - len(open_)], True)
    idle = [name for name in open_ if name not in busy]
    return dict.fromkeys(idle[: len(open_) - wanted], False)


async def act(client: KubeClient, label: str, request: Object) -> Object:
    """Carry out one request; the report."""
    found = await client.get("/api/v1/nodes", {"labelSelector": label})
    nodes = {
        str(node["metadata"]["name"]): not (node.get("spec") or {}).get("unschedulable")
        for node in found.get("items") or ()
    }
    if not nodes:
        return {"state": "failed", "nodes": 0, "message": f"no node has the label {label}"}
    if request["verb"] in ("scale", "delete"):
        wanted = int(request.get("nodes") or 0) if request["verb"] == "scale" else 0
        for name, is_open in changes(nodes, wanted, set(request.get("busy") or ())).items():
            await client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None if is_open else True}})
            nodes[name] = is_open
    return {"state": "ready", "nodes": sum(nodes.values()), "message": f"{len(nodes)} nodes have the label {label}"}


async def answer(kubeconfig: str, context: str, label: str, request: Object) -> Object:
    async with KubeClient(from_kubeconfig(kubeconfig, context)) as client:
        return await act(client, label, request)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kubeconfig", required=True, metavar="FILE", help="of the target")
    parser.add_argument("--context", default="", help="context of that kubeconfig")
    parser.add_argument("--label", required=True, metavar="KEY=VALUE", help="of the nodes to open and close")
    given = parser.parse_args(argv)
    return speak("cordon", lambda request: answer(given.kubeconfig, given.context, given.label, request))


if __name__ == "__main__":
    sys.exit(main())
