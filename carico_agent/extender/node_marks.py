"""Labels and taints of nodes, by a watch of their own: the table of nodes (nodes.py) has only what policies compare.

It runs where a feature that is off by default needs it: Kueue's admission check, and the taint of full nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.filters.pod_rules import Taint, taints_of
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.watch import ResourceWatch


@dataclass(frozen=True, slots=True)
class MarkedNode:
    """What decides on a node beside its room."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


def read_marks(node: Object) -> MarkedNode:
    meta = node["metadata"]
    return MarkedNode(meta["name"], meta.get("labels") or {}, taints_of(node.get("spec") or {}))


class NodeMarks:
    """`nodes` by name, while `watch` runs."""

    def __init__(self, client: KubeClient, health: Health) -> None:
        self.nodes: dict[str, MarkedNode] = {}
        self.watch = ResourceWatch(client, "/api/v1/nodes", read_marks, self.listed, self.changed, health)

    def listed(self, nodes: Iterable[MarkedNode]) -> None:
        self.nodes = {node.name: node for node in nodes}

    def changed(self, gone: bool, node: MarkedNode) -> None:
        if gone:
            self.nodes.pop(node.name, None)
        else:
            self.nodes[node.name] = node
