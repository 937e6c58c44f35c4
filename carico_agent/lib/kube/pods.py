"""What carico needs to know of a Pod object, and no more."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from carico_agent.core import workload_names
from carico_agent.lib.kube.client import Object
from carico_agent.plugin_api.formats import parse_quantity

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static Pod's mirror: the UID that the kubelet and containerd know it by."""

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: a Pod that finishes leaves the selection, which a watch reports as a deletion."""


UNREQUESTED_CPU, UNREQUESTED_MEMORY = 0.1, 200.0 * 1024 * 1024
"""What scoring assumes of a container without requests (kube-scheduler's DefaultMilliCPURequest, DefaultMemoryRequest).
"""


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
    """Its requests [cores]."""
    memory: float = 0.0
    """The same [bytes]."""
    requested: bool = False
    """Every container requests CPU: then requests mean something about what the Pod takes."""
    per_node: bool = False
    """A DaemonSet's, or a static Pod."""

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
        holds_of(spec, resource) if resource else 0,
        str(annotations.get(MIRROR) or uid),
        *requests_of(spec),
        requested=has_requests(spec),
        per_node=per_node_of(meta, node),
    )


def workload_of(meta: Object, node_name: str = "") -> str:
    """The kind of this Pod, by the function that its node uses (core/kind_names.py). `node_name` where it is bound:
    names of static Pods end in it.

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


def holds_of(spec: Object, resource: str) -> int:
    """As the scheduler counts: the sum of the containers, or one init container if that asks for more."""
    running = sum(_asked(spec.get("containers") or (), resource))
    return max([running, *_asked(spec.get("initContainers") or (), resource)])


def requests_of(spec: Object) -> tuple[float, float]:
    """CPU [cores] and memory [bytes] that the containers request; one that requests nothing counts as kube-scheduler
    counts it when it scores nodes.

    >>> requests_of({"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Ki"}}}, {}]})
    (0.6, 209716224.0)
    """
    cpu = memory = 0.0
    for container in spec.get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        cpu += _quantity(requests.get("cpu"), UNREQUESTED_CPU)
        memory += _quantity(requests.get("memory"), UNREQUESTED_MEMORY)
    return cpu, memory


def asked_of(spec: Object, what: str = "requests") -> tuple[float, float]:
    """CPU [cores] and memory [bytes] as kube-scheduler's filter counts them, `what` "requests" or "limits": containers
    together, or one init container if that asks for more (those that restart always run beside the containers), and the
    Pod's overhead. What asks for nothing counts as nothing.

    >>> asked_of({"containers": [{"resources": {"requests": {"cpu": "500m"}}}, {}], "initContainers": [
    ...     {"resources": {"requests": {"cpu": "1", "memory": "1Ki"}}}]})
    (1.0, 1024.0)
    """
    amounts = tuple(_asked_of(spec, what, name) for name in ("cpu", "memory"))
    return amounts[0], amounts[1]


def _asked_of(spec: Object, what: str, name: str) -> float:
    first = spec.get("initContainers") or ()
    beside = [one for one in first if one.get("restartPolicy") == "Always"]
    running = sum(amount_of(one, what, name) for one in (*(spec.get("containers") or ()), *beside))
    most = max((amount_of(one, what, name) for one in first), default=0.0)
    return max(running, most) + _quantity((spec.get("overhead") or {}).get(name), 0.0)


def amount_of(container: Object, what: str, name: str) -> float:
    """Of one container: what it requests, or its limit, of one resource; 0 where it says nothing."""
    return _quantity(((container.get("resources") or {}).get(what) or {}).get(name), 0.0)


def has_requests(spec: Object) -> bool:
    """Whether every container says how much CPU it requests.

    >>> one = {"resources": {"requests": {"cpu": "1"}}}
    >>> has_requests({"containers": [one]}), has_requests({"containers": [one, {}]}), has_requests({})
    (True, False, False)
    """
    containers = spec.get("containers") or ()
    return bool(containers) and all(
        "cpu" in ((container.get("resources") or {}).get("requests") or {}) for container in containers
    )


def _quantity(text: Any, default: float) -> float:
    try:
        return default if text is None else float(parse_quantity(str(text)))
    except ValueError:
        return default


def _asked(containers: Iterable[Any], resource: str) -> list[int]:
    asked = [container.get("resources") or {} for container in containers]
    return [whole((one.get("requests") or one.get("limits") or {}).get(resource, 0)) for one in asked]


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
