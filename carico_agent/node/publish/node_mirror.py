"""Our Node and its Pods as the API server has them. Only watches and keeps; decides nothing."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.declared import DeclaredPod, declared
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.names import STATUS
from carico_agent.lib.kube.pods import UNFINISHED, PodFacts, facts
from carico_agent.lib.kube.watch import ResourceWatch


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Our node as the API server has it."""

    name: str
    capacity: str | None = None
    """Of the extended resource, as a quantity; None: it is not there."""
    allocatable: str | None = None
    status: str | None = None
    """The annotation carico.dev/status."""
    uid: str = ""

    def owner_references(self) -> list[Object]:
        """For objects that are to be deleted with the node."""
        return [{"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.uid}] if self.uid else []


def node_facts(node: Object, resource: str) -> NodeFacts:
    """Read one Node object."""
    meta, status = node["metadata"], node.get("status") or {}
    return NodeFacts(
        meta["name"],
        (status.get("capacity") or {}).get(resource),
        (status.get("allocatable") or {}).get(resource),
        (meta.get("annotations") or {}).get(STATUS),
        meta.get("uid", ""),
    )


def bound_pod(pod: Object, resource: str) -> PodFacts:
    """Read one Pod of this node, with what its object declares."""
    return replace(facts(pod, resource), declared=declared(pod))


class NodeMirror:
    """Keeps itself up to date while `run` runs. `on_bound` is called with the UIDs of Pods seen on this node."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        resource: str,
        health: Health,
        on_bound: Callable[[Iterable[str]], None] = lambda uids: None,
    ) -> None:
        self.node: NodeFacts | None = None
        self.pods: dict[str, PodFacts] = {}
        """Bound to this node and unfinished, by UID."""
        self.ended: dict[str, PodFacts] = {}
        """Gone from the API server, perhaps still counted here."""
        self.incarnation = 0
        """Grows when the node is deleted and when it comes (back)."""
        self.wakeup = asyncio.Event()
        """Set when something has changed; the task that waits for it clears it."""
        self._name, self._health, self._on_bound = name, health, on_bound
        self._watch_node = ResourceWatch(
            client,
            "/api/v1/nodes",
            partial(node_facts, resource=resource),
            self.list_nodes,
            self.change_node,
            health,
            f"metadata.name={name}",
        )
        self._watch_pods = ResourceWatch(
            client,
            "/api/v1/pods",
            partial(bound_pod, resource=resource),
            self.list_pods,
            self.change_pod,
            health,
            f"spec.nodeName={name},{UNFINISHED}",
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_node.run())
            group.create_task(self._watch_pods.run())

    @property
    def node_synced(self) -> asyncio.Event:
        return self._watch_node.synced

    @property
    def pods_synced(self) -> asyncio.Event:
        return self._watch_pods.synced

    def held(self) -> int:
        """What all bound, unfinished Pods here ask for of the extended resource."""
        return sum(pod.holds for pod in self.pods.values())

    def declared(self, uid: str) -> DeclaredPod | None:
        """What the object of a Pod here says; None: not known (yet). May be asked from any thread."""
        pod = self.pods.get(uid)
        return None if pod is None else pod.declared

    def drop_ended(self, counted: Mapping[str, bool]) -> None:
        """Forget ended Pods that are not counted here (any more)."""
        self.ended = {uid: pod for uid, pod in self.ended.items() if counted.get(pod.local_uid)}

    # ---- what the watches report

    def list_nodes(self, nodes: list[NodeFacts]) -> None:
        self.change_node(not nodes, nodes[0] if nodes else NodeFacts(self._name))

    def change_node(self, gone: bool, node: NodeFacts) -> None:
        if gone:
            self._health.bad("node", NodeNotFound(node.name))
        elif self.node is None:
            self._health.good("node")
        if gone or self.node is None:
            self.incarnation += 1
        self.node = None if gone else node
        self.wakeup.set()

    def list_pods(self, pods: list[PodFacts]) -> None:
        before, self.pods = self.pods, {pod.uid: pod for pod in pods}
        self.ended |= {uid: pod for uid, pod in before.items() if uid not in self.pods}
        self._on_bound(self.pods)
        self.wakeup.set()

    def change_pod(self, gone: bool, pod: PodFacts) -> None:
        if gone or pod.finished:
            if (last := self.pods.pop(pod.uid, None)) is not None:
                self.ended[pod.uid] = last
        else:
            self.pods[pod.uid] = pod
        self._on_bound([pod.uid])
        self.wakeup.set()


class NodeNotFound(KubeError):
    """There is no node of our name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'nodes "{name}" not found on the API server; give the right name with --node or NODE_NAME')
