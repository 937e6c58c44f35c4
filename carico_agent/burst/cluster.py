"""What is free in one cluster and which Pods wait there, kept by two watches. Used for home and for every target."""

import json
import time
from collections import deque
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from carico_agent.burst.overflow import Asked, NodeRoom, fitting
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.filters.neighbours import resident_of
from carico_agent.lib.kube.filters.pod_rules import PLAIN, NodeTraits, rules_of, taints_of
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.names import POD_CAPACITY, STATUS
from carico_agent.lib.kube.placement_lease import MALFORMED, MAX_TTL_S
from carico_agent.lib.kube.pod_requests import asked, resource_names
from carico_agent.lib.kube.pods import UNFINISHED
from carico_agent.lib.kube.watch import ResourceWatch
from carico_agent.lib.net.times import parse_rfc3339
from carico_agent.plugin_api.formats import parse_quantity


@dataclass(frozen=True)
class NodeSeen:
    """One Node object. `until_s`: the agent's number is void after this (wall clock)."""

    name: str
    cpu: float
    memory: float
    pods: int
    open: bool
    pod_capacity: float | None = None
    fits: dict[str, float] = field(default_factory=dict)
    until_s: float = -inf
    others: dict[str, float] = field(default_factory=dict)
    """Allocatable of every other resource, by name."""
    traits: NodeTraits = PLAIN
    ready: bool = True


@dataclass(frozen=True)
class PodSeen:
    """One unfinished Pod. `job`: UID of the Job that controls it. Times are wall clock [s]."""

    uid: str
    job: str
    node: str
    asked: Asked
    running: bool
    started_s: float
    unschedulable_since_s: float | None
    deleting: bool


def quantity(text: object, otherwise: float = 0.0) -> float:
    try:
        return float(parse_quantity(str(text)))
    except ValueError:
        return otherwise


def read_node(node: Object) -> NodeSeen:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    have = status.get("allocatable") or status.get("capacity") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    seen = NodeSeen(
        meta["name"],
        quantity(have.get("cpu", 0)),
        quantity(have.get("memory", 0)),
        int(quantity(have.get("pods", 110))),
        ready and not spec.get("unschedulable"),
        others={name: quantity(amount) for name, amount in have.items() if name not in ("cpu", "memory", "pods")},
        traits=NodeTraits(dict(meta.get("labels") or {}), taints_of(spec)),
        ready=ready,
    )
    annotations = meta.get("annotations") or {}
    if POD_CAPACITY not in annotations:
        return seen
    try:
        annotation = json.loads(annotations.get(STATUS) or "{}")
        capacity = float(annotations[POD_CAPACITY])
        until_s = parse_rfc3339(annotation["time"]) + min(float(annotation["ttl_s"]), MAX_TTL_S)
        fits = {str(workload): float(room) for workload, room in (annotation.get("fits") or {}).items()}
    except MALFORMED:  # another client wrote it
        return seen
    believable = all(map(isfinite, (capacity, until_s, *fits.values())))
    return replace(seen, pod_capacity=capacity, fits=fits, until_s=until_s) if believable else seen


def read_pod(pod: Object) -> PodSeen:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owner: Object = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    waits = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable"
    ]
    return PodSeen(
        str(meta["uid"]),
        str(owner.get("uid", "")) if owner.get("kind") == "Job" else "",
        str(spec.get("nodeName") or ""),
        asked_by(pod),
        status.get("phase") == "Running",
        _time(status.get("startTime")),
        _time(waits[0].get("lastTransitionTime")) if waits else None,
        bool(meta.get("deletionTimestamp")),
    )


def asked_by(pod: Object, namespace: str = "") -> Asked:
    """What a Pod, or a template, asks for, as kube-scheduler counts it. `namespace`: of a template's Pods."""
    amounts = {name: asked(pod, name) for name in resource_names(pod)}
    rules, me = rules_of(pod, namespace), resident_of(pod, namespace)
    return Asked(amounts.pop("cpu", 0.0), amounts.pop("memory", 0.0), amounts, rules, me)


def _time(text: object) -> float:
    try:
        return parse_rfc3339(str(text))
    except ValueError:
        return time.time()


class ClusterView:
    """Nodes and unfinished Pods of one cluster."""

    def __init__(self, client: KubeClient, health: Health) -> None:
        self.nodes: dict[str, NodeSeen] = {}
        self.pods: dict[str, PodSeen] = {}
        self.ended: deque[tuple[str, float]] = deque(maxlen=1000)
        """UID of the Job and time it ran [s], of Pods that have ended since the planner last read this."""
        self._node_watch = ResourceWatch(
            client, "/api/v1/nodes", read_node, self._nodes_are, self._node_changed, health
        )
        self._pod_watch = ResourceWatch(
            client, "/api/v1/pods", read_pod, self._pods_are, self._pod_changed, health, UNFINISHED
        )

    @property
    def watches(self) -> tuple[ResourceWatch[NodeSeen], ResourceWatch[PodSeen]]:
        return self._node_watch, self._pod_watch

    @property
    def synced(self) -> bool:
        return all(watch.synced.is_set() for watch in self.watches)

    def forget(self) -> None:
        """The cluster is gone, and all that was seen there."""
        self.nodes, self.pods = {}, {}

    def empty(self) -> list[NodeRoom]:
        """Every node as if no Pod were on it, by requests."""
        return [
            NodeRoom(node.name, node.cpu, node.memory, node.pods, others=node.others, traits=node.traits)
            for node in self.nodes.values()
        ]

    def _nodes_are(self, nodes: list[NodeSeen]) -> None:
        self.nodes = {node.name: node for node in nodes}

    def _node_changed(self, gone: bool, node: NodeSeen) -> None:
        self.nodes.pop(node.name, None)
        if not gone:
            self.nodes[node.name] = node

    def _pods_are(self, pods: list[PodSeen]) -> None:
        self.pods = {pod.uid: pod for pod in pods}

    def _pod_changed(self, gone: bool, pod: PodSeen) -> None:
        known = self.pods.pop(pod.uid, None)
        if gone and known is not None and known.running and known.job and not pod.deleting:
            self.ended.append((known.job, max(0.0, time.time() - known.started_s)))
        if not gone:
            self.pods[pod.uid] = pod

    def of_jobs(self) -> dict[str, list[PodSeen]]:
        """Pods by the UID of their Job."""
        found: dict[str, list[PodSeen]] = {}
        for pod in self.pods.values():
            if pod.job:
                found.setdefault(pod.job, []).append(pod)
        return found

    def busy(self) -> set[str]:
        """Nodes on which Pods of Jobs are."""
        return {pod.node for pod in self.pods.values() if pod.node and pod.job}

    def room(self, wall_s: float) -> list[NodeRoom]:
        """What is free on every node, by requests, and by the agent's number where that is fresh."""
        used: dict[str, list[PodSeen]] = {}
        for pod in self.pods.values():
            used.setdefault(pod.node, []).append(pod)
        rooms = []
        for node in self.nodes.values():
            pods = used.get(node.name, ())
            fresh = node.pod_capacity is not None and wall_s < node.until_s
            rooms.append(
                NodeRoom(
                    node.name,
                    node.cpu - sum(pod.asked.cpu for pod in pods),
                    node.memory - sum(pod.asked.memory for pod in pods),
                    node.pods - len(pods),
                    node.pod_capacity if fresh else None,
                    node.fits if fresh else {},
                    node.ready,
                    {
                        name: have - sum(pod.asked.others.get(name, 0.0) for pod in pods)
                        for name, have in node.others.items()
                    },
                    node.traits,
                    tuple(pod.asked.me for pod in pods),
                    frozenset(port for pod in pods for port in pod.asked.rules.ports),
                )
            )
        return rooms


def take(rooms: list[NodeRoom], workload: str, asked: Asked) -> bool:
    """Take the place of one Pod in the first node that has one; False when none has."""
    index = next(fitting(rooms, workload, asked), None)
    if index is None:
        return False
    rooms[index] = rooms[index].with_one(asked)
    return True
