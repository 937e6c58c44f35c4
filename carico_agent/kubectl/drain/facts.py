"""Nodes and Pods as the planner needs them, read from their objects. Pure.

CPU counts in whole milli-cores, rounded up, and everything else in whole units, as kube-scheduler counts them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pod_requests import asked, quantity, scored_of
from carico_agent.lib.kube.pods import MIRROR, per_node_of, workload_of

SPREAD_OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Controllers whose Pods kube-scheduler spreads by default."""

_CONSTRAINTS = ("nodeSelector", "tolerations", "affinity")
Term = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    cordoned: bool
    allocatable: Mapping[str, int]
    """Milli-cores, bytes, and counts; `pods` among them."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """One Pod, bound or waiting."""

    uid: str
    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    workload: str
    spec: Mapping[str, Any]
    """What of its spec decides where it may run."""
    requests: Mapping[str, int]
    scored: tuple[int, int]
    """CPU and memory as scores count them: a container without requests counts for something."""
    owner: tuple[str, str] = ("", "")
    """Kind and UID of the controller that would make it anew; empty: a bare Pod."""
    priority: int = 0
    per_node: bool = False
    static: bool = False
    ready: bool = True
    leaving: bool = False
    local_data: bool = False
    """An emptyDir: its content is lost."""
    claims: tuple[str, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    signature: str = ""
    """The same for Pods that the same nodes' labels and taints suit."""
    terms: Mapping[str, tuple[Term, ...]] = field(default_factory=dict)
    """affinity, anti (required), prefer_affinity, prefer_anti (with weight)."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def node_facts(node: Object) -> PlannedNode:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    have = {name: units(name, text) for name, text in (status.get("allocatable") or {}).items()}
    return PlannedNode(
        meta["name"],
        meta.get("labels") or {},
        tuple(spec.get("taints") or ()),
        bool(spec.get("unschedulable")),
        have,
    )


def units(name: str, text: Any) -> int:
    """What a node has, downwards.

    >>> units("cpu", "3920m"), units("memory", "1Ki"), units("pods", "x")
    (3920, 1024, 0)
    """
    amount = quantity(text) or 0.0
    return int(amount * 1000 + 1e-6) if name == "cpu" else int(amount)


def pod_facts(pod: Object) -> PlannedPod:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    node = str(spec.get("nodeName") or "")
    owner: Object = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    kept = {name: spec[name] for name in (*_CONSTRAINTS, "topologySpreadConstraints") if spec.get(name)}
    volumes = spec.get("volumes") or ()
    cpu, memory = scored_of(pod)
    return PlannedPod(
        str(meta.get("uid", "")),
        str(meta.get("namespace", "")),
        str(meta.get("name", "")),
        node,
        meta.get("labels") or {},
        workload_of(meta, node),
        kept,
        _requests(pod, spec),
        (ceil(cpu * 1000 - 1e-6), ceil(memory - 1e-6)),
        (str(owner.get("kind", "")), str(owner.get("uid", ""))),
        int(spec.get("priority") or 0),
        per_node_of(meta, node),
        MIRROR in (meta.get("annotations") or {}),
        any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()),
        bool(meta.get("deletionTimestamp")),
        any("emptyDir" in volume for volume in volumes),
        tuple(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")),
        _ports(spec),
        json.dumps([meta.get("namespace"), *(spec.get(name) for name in _CONSTRAINTS)], sort_keys=True),
        _terms(kept.get("affinity") or {}),
    )


def _requests(pod: Object, spec: Object) -> dict[str, int]:
    names = {"cpu", "memory"} | set(spec.get("overhead") or ())
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        names |= set(resources.get("requests") or ()) | set(resources.get("limits") or ())
    found = {}
    for name in names:
        amount = asked(pod, name)
        if amount:
            found[name] = ceil(amount * 1000 - 1e-6) if name == "cpu" else ceil(amount - 1e-6)
    return found


def _ports(spec: Object) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def ports_collide(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    """
    >>> [ports_collide(("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", port)) for port in (80, 81)]
    [True, False]
    """
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))


def _terms(affinity: Mapping[str, Any]) -> dict[str, tuple[Term, ...]]:
    found: dict[str, tuple[Term, ...]] = {}
    for kind, short in (("podAffinity", "affinity"), ("podAntiAffinity", "anti")):
        rules = affinity.get(kind) or {}
        required = rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        if required:
            found[short] = tuple(required)
        if preferred:
            found[f"prefer_{short}"] = tuple({**one["podAffinityTerm"], "weight": one["weight"]} for one in preferred)
    return found
