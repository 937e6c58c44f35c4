"""Nodes and Pods as the planner needs them, read from their objects. Pure.

CPU counts in whole milli-cores, rounded up, and everything else in whole units, as kube-scheduler counts them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.filters.neighbours import (
    PREFERRED,
    AffinityTerm,
    Resident,
    Spread,
    affinity_term,
    resident_of,
    spread_objects,
    spread_of,
)
from carico_agent.lib.kube.filters.pod_rules import CORDONED, PodRules, Taint, rules_of, taints_of
from carico_agent.lib.kube.pod_requests import asked, quantity, resource_names, scored_of
from carico_agent.lib.kube.pods import MIRROR, per_node_of, workload_of

SPREAD_OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Controllers whose Pods kube-scheduler spreads by default."""

_CONSTRAINTS = ("nodeSelector", "tolerations", "affinity")


@dataclass(frozen=True, slots=True)
class PlannedNode:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    """Without that of a cordoned node."""
    cordoned: bool
    allocatable: Mapping[str, int]
    """Milli-cores, bytes, and counts; `pods` among them."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What decides between nodes that fit."""

    nodes: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    """Weight and term of a preferred node affinity."""
    pods: tuple[tuple[int, AffinityTerm], ...] = ()
    """Weight and term of a preferred affinity; below 0: of an anti-affinity."""
    spreads: tuple[Spread, ...] = ()
    default_spread: bool = True
    """It has no topology spread constraint of its own."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """One Pod, bound or waiting."""

    uid: str
    name: str
    node: str
    me: Resident
    workload: str
    rules: PodRules
    prefers: Preferences
    requests: Mapping[str, int]
    scored: tuple[int, int]
    """CPU and memory as scores count them: a container without requests counts for something."""
    owner: tuple[str, str] = ("", "")
    """Kind and UID of the controller that would make it anew; empty: a bare Pod."""
    priority: int = 0
    per_node: bool = False
    static: bool = False
    ready: bool = True
    local_data: bool = False
    """An emptyDir: its content is lost."""
    claims: tuple[str, ...] = ()
    signature: str = ""
    """The same for Pods that the same nodes' labels and taints suit."""

    @property
    def namespace(self) -> str:
        return self.me.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        return self.me.labels

    @property
    def leaving(self) -> bool:
        return self.me.deleting

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def affinity(self) -> tuple[AffinityTerm, ...]:
        """Its required affinity."""
        return self.rules.neighbours.affinity if self.rules.neighbours else ()

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """All terms about other Pods."""
        return (*self.affinity, *self.me.anti, *(term for _, term in self.prefers.pods))


def node_facts(node: Object) -> PlannedNode:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    have = {name: units(name, text) for name, text in (status.get("allocatable") or {}).items()}
    return PlannedNode(
        meta["name"],
        meta.get("labels") or {},
        tuple(taint for taint in taints_of(spec) if taint.key != CORDONED),
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
    volumes = spec.get("volumes") or ()
    cpu, memory = scored_of(pod)
    return PlannedPod(
        str(meta.get("uid", "")),
        str(meta.get("name", "")),
        node,
        resident_of(pod),
        workload_of(meta, node),
        rules_of(pod),
        _preferences(pod),
        _requests(pod),
        (ceil(cpu * 1000 - 1e-6), ceil(memory - 1e-6)),
        (str(owner.get("kind", "")), str(owner.get("uid", ""))),
        int(spec.get("priority") or 0),
        per_node_of(meta, node),
        MIRROR in (meta.get("annotations") or {}),
        any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()),
        any("emptyDir" in volume for volume in volumes),
        tuple(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")),
        json.dumps([spec.get(name) for name in _CONSTRAINTS], sort_keys=True),
    )


def _requests(pod: Object) -> dict[str, int]:
    found = {}
    for name in sorted(resource_names(pod)):
        amount = asked(pod, name)
        if amount:
            found[name] = ceil(amount * 1000 - 1e-6) if name == "cpu" else ceil(amount - 1e-6)
    return found


def _preferences(pod: Object) -> Preferences:
    meta, spec = pod["metadata"], pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    labels = meta.get("labels") or {}
    nodes = (affinity.get("nodeAffinity") or {}).get(PREFERRED) or ()
    return Preferences(
        tuple((int(one["weight"]), one["preference"]) for one in nodes),
        tuple(
            (sign * int(one["weight"]), affinity_term(one["podAffinityTerm"], str(meta.get("namespace", ""))))
            for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
            for one in (affinity.get(side) or {}).get(PREFERRED) or ()
        ),
        tuple(spread_of(one, labels) for one in spread_objects(spec, "ScheduleAnyway")),
        not spec.get("topologySpreadConstraints"),
    )
