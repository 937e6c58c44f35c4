"""Does it fit, how many more, what limits: a Pod (or a workload) against a node's room. Pure.

Beside what is measured stands what requests alone would allow, as a scheduler without measurements counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor, inf
from typing import Any

from carico_agent.core.workload_names import workload_of
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pod_requests import asked_of
from carico_agent.plugin_api.formats import parse_quantity

TEMPLATES = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where each kind of object keeps the template of its Pods."""


class BadManifest(ValueError):
    """What was given is no Pod and makes none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One Pod of a workload, with what it requests: CPU [cores] and memory [bytes], None where it requests nothing, or
    only the workload is known."""

    workload: str
    cpu: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How many more fit, and what limits."""

    fits: float
    limiting: str | None
    basis: str
    """measured: from what Pods of this workload use; requests: the workload is unknown, so by what it asks for; prior:
    nothing is known, one Pod is taken to keep one core busy."""
    horizon_s: float = 0.0
    """For how long they fit [s]; 0: now, because nothing is known about the coming hours."""


def wanted_of(document: Any, namespace: str = "default") -> Wanted:
    """The Pod a manifest describes; raises BadManifest.

    >>> pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}}
    >>> wanted_of({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": pod}})
    Wanted(workload='shop/web', cpu=0.5, memory=1073741824.0)
    """
    try:
        what, meta = str(document["kind"]), document.get("metadata") or {}
        pod: Any = document
        for step in TEMPLATES.get(what, ()):
            pod = pod[step]
        if what != "Pod" and what not in TEMPLATES:
            raise BadManifest(f"a {what} makes no Pods; known are Pod, {', '.join(TEMPLATES)}")
        space = str(meta.get("namespace") or namespace)
        labels = {str(key): str(value) for key, value in ((pod.get("metadata") or {}).get("labels") or {}).items()}
        name = str(meta.get("name") or meta.get("generateName") or "")
        if not name or not pod["spec"].get("containers"):
            raise BadManifest(f"a {what} needs a name and containers")
        cpu, memory = asked_of(pod)
        return Wanted(workload_of(space, name, labels), cpu or None, memory or None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, BadManifest):
            raise
        raise BadManifest(
            "this describes no Pod: an object with kind, metadata.name and a Pod's spec.containers is expected"
        ) from error


def fit_on_node(wanted: Wanted, answer: Mapping[str, Any]) -> Fit:
    """By a node's answer to GET /v1/workloads/WORKLOAD: `fits`, `mode`, `limiting`, `room` and `sizes`.

    >>> node = {"fits": 1.5, "mode": "learning", "limiting": "cpu", "room": {"cpu": 0.5}, "sizes": {"cpu": 8.0}}
    >>> fit_on_node(Wanted("shop/new", cpu=0.5), node)
    Fit(fits=8.0, limiting='cpu', basis='requests', horizon_s=0.0)
    """
    if answer["mode"] != "learning" and answer.get("outlook") == "known" and answer["fits_held"] is not None:
        return Fit(float(answer["fits_held"]), answer["limiting_held"], "measured", float(answer["horizon_s"]))
    if answer["mode"] != "learning":
        return Fit(float(answer["fits"] or 0.0), answer["limiting"], "measured")
    asked = {"cpu": wanted.cpu, "memory": wanted.memory}
    rooms = {
        name: max(0.0, share) * (answer["sizes"].get(name) or 0.0) / asked[name]
        for name, share in answer["room"].items()
        if share is not None and asked.get(name)
    }
    if not rooms:
        return Fit(float(answer["fits"] or 0.0), answer["limiting"], "prior")
    limiting = min(rooms, key=lambda name: rooms[name])
    return Fit(rooms[limiting], limiting, "requests")


def fit_by_requests(wanted: Wanted, node: Object, pods: Iterable[Object]) -> Fit | None:
    """What requests alone would allow on a Node object with these Pods, as kube-scheduler's filter counts; None where
    the Pod requests nothing known."""
    if wanted.cpu is None and wanted.memory is None:
        return None
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    used_cpu = used_memory = 0.0
    count = 0
    for pod in pods:
        cpu, memory = asked_of(pod)
        used_cpu, used_memory, count = used_cpu + cpu, used_memory + memory, count + 1
    free = {
        "cpu": (_amount(allocatable.get("cpu")) - used_cpu) / wanted.cpu if wanted.cpu else inf,
        "memory": (_amount(allocatable.get("memory")) - used_memory) / wanted.memory if wanted.memory else inf,
        "pods": _amount(allocatable.get("pods")) - count,
    }
    limiting = min(free, key=lambda name: free[name])
    return Fit(max(0.0, float(floor(free[limiting]))), limiting, "requests")


def _amount(text: Any) -> float:
    try:
        return parse_quantity(str(text))
    except ValueError:
        return 0.0
