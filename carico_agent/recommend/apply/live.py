"""Pods and nodes as they are now, from their objects: what can be resized, and what is free. Parsing is pure."""

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.declared import owner_of
from carico_agent.lib.kube.names import WORKLOADS
from carico_agent.lib.kube.pod_requests import asked_of, quantity
from carico_agent.lib.kube.pods import UNFINISHED
from carico_agent.lib.kube.workloads import RESOURCES, decode
from carico_agent.recommend.apply.decide import Amounts, LiveContainer, LivePod, ResizeRoom
from carico_agent.recommend.workload import OwnerObject

PAGE = 500


def live_pod(pod: Object) -> LivePod:
    """
    >>> app = {"name": "app", "resources": {"requests": {"cpu": "500m"}}}
    >>> found = live_pod({"metadata": {"name": "a", "namespace": "n"}, "spec": {"containers": [app]}})
    >>> found.owner.kind, found.containers["app"].requests
    ('Pod', {'cpu': 0.5})
    """
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    statuses = {one.get("name"): one for one in status.get("containerStatuses") or ()}
    namespace = str(meta.get("namespace", ""))
    pending = [one for one in status.get("conditions") or () if one.get("type") == "PodResizePending"]
    return LivePod(
        namespace,
        str(meta["name"]),
        str(meta.get("uid", "")),
        str(spec.get("nodeName") or ""),
        OwnerObject(namespace, *owner_of(meta)),
        str(status.get("qosClass") or ""),
        {one["name"]: _container(one, statuses.get(one["name"], {})) for one in spec.get("containers") or ()},
        str(pending[0].get("reason") or "Deferred") if pending else "",
    )


def _container(container: Object, status: Object) -> LiveContainer:
    resources = container.get("resources") or {}
    policies = container.get("resizePolicy") or ()
    ends = [((status.get(when) or {}).get("terminated") or {}).get("reason") for when in ("lastState", "state")]
    return LiveContainer(
        str(container["name"]),
        _amounts(resources.get("requests")),
        _amounts(resources.get("limits")),
        frozenset(one["resourceName"] for one in policies if one.get("restartPolicy") == "RestartContainer"),
        int(status.get("restartCount") or 0),
        "OOMKilled" in ends,
    )


def _amounts(table: Mapping[str, Any] | None) -> Amounts:
    found = {name: quantity((table or {}).get(name)) for name in ("cpu", "memory")}
    return {name: amount for name, amount in found.items() if amount is not None}


async def read_live(client: KubeClient) -> tuple[list[LivePod], dict[str, ResizeRoom]]:
    """All unfinished Pods that have a node, and their nodes; raises KubeError."""
    pods: list[LivePod] = []
    requested: dict[str, Amounts] = {}

    def take(pod: Object) -> None:
        live = live_pod(pod)
        if not live.node or (pod["metadata"].get("deletionTimestamp")):
            return
        cpu, memory = asked_of(pod)
        held = requested.setdefault(live.node, {"cpu": 0.0, "memory": 0.0})
        held["cpu"] += cpu
        held["memory"] += memory
        pods.append(live)

    nodes: list[Object] = []
    await _each(client, "/api/v1/pods", take, {"fieldSelector": UNFINISHED})
    await _each(client, "/api/v1/nodes", nodes.append, {})
    none = {"cpu": 0.0, "memory": 0.0}
    return pods, {n["metadata"]["name"]: node_room(n, requested.get(n["metadata"]["name"], none)) for n in nodes}


def node_room(node: Object, requested: Amounts) -> ResizeRoom:
    allocatable = _amounts((node.get("status") or {}).get("allocatable"))
    said = decode((node["metadata"].get("annotations") or {}).get(WORKLOADS) or "")
    room = {name: nan if said is None else said.room[RESOURCES.index(name)] for name in ("cpu", "memory")}
    return ResizeRoom(allocatable, requested, room)


async def _each(client: KubeClient, path: str, take: Callable[[Object], None], params: dict[str, str]) -> None:
    token = ""
    while True:
        more = {"continue": token} if token else {}
        page = await client.get(path, {"limit": str(PAGE), **params, **more})
        for item in page.get("items") or ():
            take(item)
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return
