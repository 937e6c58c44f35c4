"""What carico reads of Kueue's objects (kueue.x-k8s.io/v1beta2): Workloads, their PodSets, and admission checks. Pure.

A PodSet has a template and no Pods yet. Its carico workload is found from the name that its Pods will have, by the same
function as for Pods (core/workload_names.py), so that it is known what Pods of an earlier Job of this template took.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pods import workload_of
from carico_agent.lib.net.times import parse_rfc3339

CONTROLLER = "carico.dev/room"
"""`spec.controllerName` of the admission checks that the extender answers."""

PENDING, READY = "Pending", "Ready"
_SUFFIX = "bcdfg"
"""As of a generated name."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template."""

    name: str
    count: int
    template: Object
    """A Pod object without a name."""
    workload: str
    """carico's name for what these Pods are."""
    flavors: tuple[str, ...] = ()
    """The ResourceFlavors that Kueue has assigned: their node labels select the nodes."""


@dataclass(frozen=True, slots=True)
class QueuedWorkload:
    """One Workload of Kueue that may need an answer."""

    namespace: str
    name: str
    uid: str
    version: str
    checks: tuple[Object, ...]
    """`status.admissionChecks` as it is."""
    reserved_s: float | None
    """When its quota was reserved [s since 1970]; None: it has none, and no check is due."""
    admitted: bool
    over: bool
    """Finished, evicted or deactivated."""
    pod_sets: tuple[PodSet, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def pods(self) -> int:
        return sum(one.count for one in self.pod_sets)


def read_workload(workload: Object) -> QueuedWorkload:
    meta, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or () if one.get("status") == "True"}
    reserved = conditions.get("QuotaReserved")
    over = "Finished" in conditions or "Evicted" in conditions or spec.get("active") is False
    return QueuedWorkload(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        meta["resourceVersion"],
        tuple(status.get("admissionChecks") or ()),
        None if reserved is None else _time_s(reserved.get("lastTransitionTime")),
        "Admitted" in conditions,
        over,
        tuple(_pod_sets(meta, spec, status)),
    )


def _pod_sets(meta: Object, spec: Object, status: Object) -> Iterator[PodSet]:
    assignments = {one.get("name"): one for one in (status.get("admission") or {}).get("podSetAssignments") or ()}
    owner: Object = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    for one in spec.get("podSets") or ():
        assigned = assignments.get(one.get("name")) or {}
        count = assigned.get("count") or one.get("count") or 0
        template, flavors = one.get("template") or {}, tuple(sorted(set((assigned.get("flavors") or {}).values())))
        workload = _workload(str(meta["namespace"]), owner, str(one.get("name") or ""), template)
        yield PodSet(str(one.get("name") or ""), int(count), template, workload, flavors)


def _workload(namespace: str, owner: Mapping[str, Any], pod_set: str, template: Object) -> str:
    """The name of the Pods that the owner will make decides, as it will on the node.

    >>> _workload("d", {"kind": "Job", "name": "report-28391040"}, "main", {})
    'd/report'
    >>> _workload("d", {"kind": "PyTorchJob", "name": "train"}, "worker", {})
    'd/train-worker'
    """
    kind, name = owner.get("kind"), str(owner.get("name") or pod_set)
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    if kind == "Job":
        labels["batch.kubernetes.io/job-name"], name = name, f"{name}-{_SUFFIX}"
    elif kind == "JobSet":
        job = f"{name}-{pod_set}-0"
        labels["batch.kubernetes.io/job-name"], name = job, f"{job}-0-{_SUFFIX}"
    elif kind != "Pod":
        name = f"{name}-{pod_set}-0"
    return workload_of({"namespace": namespace, "name": name, "labels": labels})


def state_of(workload: QueuedWorkload, check: str) -> tuple[str, float]:
    """What its check of this name says, and since when [s since 1970]; empty: it has no such check."""
    found = next((one for one in workload.checks if one.get("name") == check), None)
    return ("", 0.0) if found is None else (str(found.get("state")), _time_s(found.get("lastTransitionTime")))


def _time_s(text: object) -> float:
    """0 for what is no time: it is long ago then."""
    try:
        return parse_rfc3339(str(text))
    except ValueError:
        return 0.0
