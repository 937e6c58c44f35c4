"""What carico needs to know of a Pod object, and no more."""

import re
from dataclasses import dataclass
from typing import Any

from carico_agent.core import workload_names
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.kube.pod_requests import holds_of, says_cpu, scored_of
from carico_agent.plugin_api.formats import parse_quantity

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static Pod's mirror: the UID that the kubelet and containerd know it by."""

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: a Pod that finishes leaves the selection, which a watch reports as a deletion."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One Pod. `local_uid` is the one its node knows it by; `holds` what it asks of the extended resource."""

    uid: str
    name: str
    namespace: str
    node: str
    phase: str
    workload: str
    holds: int = 0
    local_uid: str = ""
    cpu: float = 0.0
    """Its requests, as kube-scheduler counts them when it scores nodes [cores]."""
    memory: float = 0.0
    """The same [bytes]."""
    requested: bool = False
    """It says how much CPU it requests: then requests mean something about what the Pod takes."""
    per_node: bool = False
    """A DaemonSet's, or a static Pod."""
    declared: DeclaredPod | None = None
    """What its object says about each container; read where it is wanted, on the Pod's own node."""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        return self.phase == "Running"


def facts(pod: Object, resource: str = "") -> PodFacts:
    """Read one Pod object.

    >>> facts({"metadata": {"uid": "u", "name": "n", "namespace": "d"}, "spec": {"nodeName": "a", "containers": [
    ...     {"resources": {"requests": {"carico.dev/pods": "1"}}}, {}]}, "status": {"phase": "Pending"}},
    ...     "carico.dev/pods").holds
    1
    """
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    uid, node = str(meta.get("uid", "")), str(spec.get("nodeName") or "")
    annotations = meta.get("annotations") or {}
    return PodFacts(
        uid,
        str(meta.get("name", "")),
        str(meta.get("namespace", "")),
        node,
        str((pod.get("status") or {}).get("phase") or ""),
        workload_of(meta, node),
        holds_of(pod, resource) if resource else 0,
        str(annotations.get(MIRROR) or uid),
        *scored_of(pod),
        requested=says_cpu(pod),
        per_node=per_node_of(meta, node),
    )


def workload_of(meta: Object, node_name: str = "") -> str:
    """The workload of this Pod, by the function that its node uses (core/workload_names.py). `node_name` where it is
    bound: names of static Pods end in it.

    >>> labels = {"pod-template-hash": "6c5d9b7f8d"}
    >>> workload_of({"namespace": "shop", "name": "web-6c5d9b7f8d-x7k2p", "labels": labels})
    'shop/web'
    """
    labels = meta.get("labels") or {}
    return workload_names.workload_of(
        str(meta.get("namespace", "")), str(meta.get("name", "")), labels, node_name=node_name
    )


def per_node_of(meta: Object, node_name: str = "") -> bool:
    """Whether a DaemonSet or the kubelet made it: the owner decides where one is named."""
    owners = (str(owner.get("kind")) for owner in meta.get("ownerReferences") or () if owner.get("controller"))
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    return workload_names.is_per_node(str(meta.get("name", "")), labels, next(owners, ""), annotations, node_name)


_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def is_name(text: Any) -> bool:
    """Whether this may be the name of an object: names become parts of addresses.

    >>> is_name("a.b-1"), is_name("../x"), is_name(""), is_name(None)
    (True, False, False, False)
    """
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def whole(quantity: Any) -> int:
    """An extended resource's quantity, which is always whole.

    >>> whole("12"), whole("2k"), whole(3), whole("")
    (12, 2000, 3, 0)
    """
    try:
        return int(parse_quantity(str(quantity)))
    except ValueError:
        return 0
