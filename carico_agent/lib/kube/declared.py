"""What a Pod object declares: its containers' requests and limits, its QoS class, the object that holds its template.

The owner of a Deployment's Pod is a ReplicaSet, a CronJob's is a Job. Both names show which object stands above: the
ReplicaSet's ends in the Pod's template hash, the Job's in the minutes since 1970. So no further object is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pod_requests import quantity

_CRON_TIME = re.compile(r"-(?:\d{8}|\d{10})$")


@dataclass(frozen=True, slots=True)
class DeclaredContainer:
    """None: not set."""

    request_cores: float | None = None
    request_bytes: float | None = None
    limit_cores: float | None = None
    limit_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class DeclaredPod:
    kind: str
    """Of the object that holds the template: Deployment, StatefulSet, …; Pod where no controller made it."""
    name: str
    qos: str
    """Guaranteed, Burstable or BestEffort; empty before the API server has said."""
    containers: Mapping[str, DeclaredContainer]
    """Those that run as long as the Pod, by name."""

    def memory_bytes(self, what: Literal["request", "limit"]) -> int | None:
        """Of all containers together; None where one of them says nothing.

        >>> two = {"a": DeclaredContainer(None, 1.0), "b": DeclaredContainer(None, 2.0, limit_bytes=4.0)}
        >>> pod = DeclaredPod("Pod", "p", "Burstable", two)
        >>> pod.memory_bytes("request"), pod.memory_bytes("limit")
        (3, None)
        """
        amounts = [one.request_bytes if what == "request" else one.limit_bytes for one in self.containers.values()]
        known = [amount for amount in amounts if amount is not None]
        return int(sum(known)) if known and len(known) == len(amounts) else None


def declared(pod: Object) -> DeclaredPod:
    """Read one Pod object.

    >>> owner = {"kind": "ReplicaSet", "name": "web-6c5d9b7f8d", "controller": True}
    >>> meta = {"name": "web-6c5d9b7f8d-x7k2p", "labels": {"pod-template-hash": "6c5d9b7f8d"}}
    >>> app = {"name": "app", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}}
    >>> found = declared({"metadata": {**meta, "ownerReferences": [owner]}, "spec": {"containers": [app]}})
    >>> found.kind, found.name, found.containers["app"].request_cores, found.containers["app"].limit_bytes
    ('Deployment', 'web', 0.25, 1073741824.0)
    """
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    containers = {str(one.get("name")): _container(one) for one in (*(spec.get("containers") or ()), *sidecars)}
    qos = str((pod.get("status") or {}).get("qosClass") or "")
    return DeclaredPod(*owner_of(meta), qos, containers)


def owner_of(meta: Object) -> tuple[str, str]:
    """Kind and name of the object that holds the template.

    >>> job = {"kind": "Job", "name": "report-28391040", "controller": True}
    >>> owner_of({"name": "a", "ownerReferences": [job]}), owner_of({"name": "alone"})
    (('CronJob', 'report'), ('Pod', 'alone'))
    """
    owner = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), None)
    if owner is None:
        return "Pod", str(meta.get("name", ""))
    kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
    template_hash = (meta.get("labels") or {}).get("pod-template-hash")
    if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
        return "Deployment", name.removesuffix(f"-{template_hash}")
    if kind == "Job" and _CRON_TIME.search(name):
        return "CronJob", _CRON_TIME.sub("", name)
    return kind, name


def _container(container: Object) -> DeclaredContainer:
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    asked = [quantity(amounts.get(name)) for amounts in (requests, limits) for name in ("cpu", "memory")]
    return DeclaredContainer(*asked)
