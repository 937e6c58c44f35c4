"""What a Pod asks for, as kube-scheduler counts it. Everything here that needs to know asks this module.

    the larger of   Σ containers + Σ sidecars   and   each init container + the sidecars that started before it,
    or what the Pod as a whole asks for, where it says so;  and the Pod's overhead.

A sidecar is an init container that restarts always. While a container is being resized it counts with the larger of
what it has and what it wants, unless its node cannot give that (PodResizePending, Infeasible).

The source is k8s.io/component-helpers/resource of 1.36 (PodRequests, PodLimits); tests/kube/test_pod_requests.py holds
random Pods against a real kube-scheduler. Amounts: cores, bytes, or a count.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.plugin_api.formats import parse_quantity

UNREQUESTED_CPU, UNREQUESTED_MEMORY = 0.1, 200.0 * 1024 * 1024
"""What scoring assumes of a container without requests (kube-scheduler's DefaultMilliCPURequest, DefaultMemoryRequest).
"""

HUGE_PAGES = "hugepages-"


def asked(pod: Object, name: str, what: str = "requests", missing: float | None = None) -> float:
    """How much of the resource `name` a Pod object, or a template, asks for; `what`: "requests" or "limits". `missing`:
    what a container counts for that does not say; None: nothing.

    >>> def one(cpu, **more): return {"resources": {"requests": {"cpu": cpu}}, **more}
    >>> sidecar = one("100m", name="proxy", restartPolicy="Always")
    >>> asked({"spec": {"containers": [one("500m"), {}], "initContainers": [one("1"), sidecar]}}, "cpu")
    1.0
    >>> asked({"spec": {"containers": [{}], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}}}, "cpu")
    3.0
    """
    spec = pod.get("spec") or {}
    together = _of_containers(pod, spec, name, what, missing)
    whole = _of_pod(pod, spec, name, what, together)
    amount = together if whole is None else whole
    extra = quantity((spec.get("overhead") or {}).get(name)) or 0.0
    if amount is None or (what == "limits" and not amount):
        return extra if what == "requests" else 0.0
    return amount + extra


def resource_names(pod: Object) -> set[str]:
    """Every resource of which the Pod asks for something.

    >>> one = {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}
    >>> sorted(resource_names({"spec": {"containers": [one]}}))
    ['cpu', 'nvidia.com/gpu']
    """
    spec = pod.get("spec") or {}
    said = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec]
    return {name for one in said for name in _amounts(one, "requests")}.union(spec.get("overhead") or ())


def asked_of(pod: Object, what: str = "requests") -> tuple[float, float]:
    """CPU [cores] and memory [bytes], as kube-scheduler's filter counts them."""
    return asked(pod, "cpu", what), asked(pod, "memory", what)


def scored_of(pod: Object) -> tuple[float, float]:
    """CPU [cores] and memory [bytes] as kube-scheduler counts them when it scores nodes: a container that asks for
    nothing counts for something.

    >>> scored_of({"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Ki"}}}, {}]}})
    (0.6, 209716224.0)
    """
    return asked(pod, "cpu", missing=UNREQUESTED_CPU), asked(pod, "memory", missing=UNREQUESTED_MEMORY)


def holds_of(pod: Object, resource: str) -> int:
    """How much it asks for of an extended resource, which is always whole."""
    return int(asked(pod, resource))


def says_cpu(pod: Object) -> bool:
    """Whether requests mean something about what the Pod takes: every container says how much CPU it requests, or the
    Pod does.

    >>> one = {"resources": {"requests": {"cpu": "1"}}}
    >>> [says_cpu({"spec": {"containers": some}}) for some in ([one], [one, {}], [])]
    [True, False, False]
    >>> says_cpu({"spec": {"containers": [{}], "resources": {"requests": {"cpu": "1"}}}})
    True
    """
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or ()
    if "cpu" in ((spec.get("resources") or {}).get("requests") or {}):
        return True
    return bool(containers) and all("cpu" in _amounts(container, "requests") for container in containers)


def of_container(container: Object, what: str, name: str) -> float:
    """What one container says by itself; 0 where it says nothing."""
    return quantity(_amounts(container, what).get(name)) or 0.0


def quantity(text: Any) -> float | None:
    """None where there is none, or it cannot be read."""
    try:
        return None if text is None else parse_quantity(str(text))
    except ValueError:
        return None


def _amounts(said: Mapping[str, Any] | None, what: str) -> Mapping[str, Any]:
    """A container's, or a Pod's, requests or limits. The API server fills in requests from limits; a manifest that it
    has not seen yet counts alike."""
    resources = (said or {}).get("resources") or {}
    amounts: Mapping[str, Any] = resources.get(what) or {}
    if what == "requests" and (limits := resources.get("limits")):
        return {**limits, **amounts}
    return amounts


def _of_pod(pod: Object, spec: Object, name: str, what: str, together: float | None) -> float | None:
    """What the Pod as a whole says; None: nothing, so its containers count. `together`: what those ask for."""
    if name not in ("cpu", "memory") and not name.startswith(HUGE_PAGES):
        return None
    resources = spec.get("resources") or {}
    said = quantity((resources.get(what) or {}).get(name))
    if said is None:
        limit = quantity((resources.get("limits") or {}).get(name))
        return limit if what == "requests" and together is None else None
    return _while_resized(pod, {name: said}, pod.get("status") or {}, name, what) or 0.0


def _of_containers(pod: Object, spec: Object, name: str, what: str, missing: float | None) -> float | None:
    """All containers together; None: none of them says."""
    statuses = _statuses(pod)
    running = _sum(_of_one(pod, one, statuses, name, what, missing) for one in spec.get("containers") or ())
    sidecars = most = None
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":
            amount = _of_one(pod, one, statuses, name, what, missing)
            running, sidecars = _sum((running, amount)), _sum((sidecars, amount))
            most = _max(most, sidecars)
        else:
            most = _max(most, _sum((_of_one(pod, one, {}, name, what, missing), sidecars)))
    return _max(running, most)


def _statuses(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    return {
        str(one.get("name")): one
        for workload in ("containerStatuses", "initContainerStatuses")
        for one in status.get(workload) or ()
        if one.get("resources") is not None
    }


def _of_one(
    pod: Object, container: Object, statuses: Mapping[str, Object], name: str, what: str, missing: float | None
) -> float | None:
    """One container; None: it does not say."""
    amounts = _amounts(container, what)
    status = statuses.get(str(container.get("name"))) if statuses else None
    amount = quantity(amounts.get(name)) if status is None else _while_resized(pod, amounts, status, name, what)
    return missing if amount is None else amount


def _while_resized(pod: Object, wanted: Mapping[str, Any], status: Object, name: str, what: str) -> float | None:
    """The largest of what is wanted, what is in force, and (of requests) what the kubelet has set aside for it."""
    in_force = status.get("resources")
    if in_force is None:
        return quantity(wanted.get(name))
    have = [(in_force.get(what) or {}).get(name)]
    if what == "requests":
        have.append((status.get("allocatedResources") or {}).get(name))
    if not _is_infeasible(pod):
        have.append(wanted.get(name))
    amounts = [amount for amount in map(quantity, have) if amount is not None]
    return max(amounts) if amounts else None


def _is_infeasible(pod: Object) -> bool:
    """Whether its node cannot give what a resize asks for."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    reasons = [one.get("reason") for one in conditions if one.get("type") == "PodResizePending"]
    return reasons[:1] == ["Infeasible"]


def _sum(amounts: Iterable[float | None]) -> float | None:
    said = [amount for amount in amounts if amount is not None]
    return sum(said) if said else None


def _max(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else max(one, other)
