"""What the cluster itself says about containers, with the user's kubeconfig: it completes every other source.

Pods give the owner, requests, limits and QoS class, and which Pods have certain labels. HorizontalPodAutoscalers say
which workloads are scaled by a share of their requests: another request then means another number of replicas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.declared import DeclaredPod, declared
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.pods import UNFINISHED
from carico_agent.recommend.sources.histories import Found, NoHistory
from carico_agent.recommend.workload import ContainerKey, OwnerObject, Resources

PAGE = 500


@dataclass
class KnownPods:
    """Pods by namespace and name, as far as they match the selector."""

    pods: dict[tuple[str, str], DeclaredPod] = field(default_factory=dict)
    resources: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    """By namespace, Pod and container: the list it stands in, its index there and its resources."""
    hpas: dict[OwnerObject, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


async def read_pods(client: KubeClient, selector: str = "") -> KnownPods:
    """Raises KubeError when Pods cannot be listed."""
    known = KnownPods()

    def take(pod: Object) -> None:
        meta = pod["metadata"]
        place = str(meta.get("namespace", "")), str(meta["name"])
        known.pods[place] = declared(pod)
        for listed in ("containers", "initContainers"):
            for index, one in enumerate((pod.get("spec") or {}).get(listed) or ()):
                said = {"list": listed, "index": index, "resources": one.get("resources") or {}}
                known.resources[*place, str(one["name"])] = said

    await _each(client, "/api/v1/pods", take, fieldSelector=UNFINISHED, labelSelector=selector)
    try:
        await _each(client, "/apis/autoscaling/v2/horizontalpodautoscalers", lambda hpa: _take_hpa(known, hpa))
    except Refused as refused:
        if refused.status not in (403, 404):
            raise
        known.notes.append(f"HorizontalPodAutoscalers are not considered: {refused}")
    return known


async def _each(client: KubeClient, path: str, take: Any, **selectors: str) -> None:
    wanted, token = {"limit": str(PAGE), **{name: text for name, text in selectors.items() if text}}, ""
    while True:
        page = await client.get(path, {**wanted, **({"continue": token} if token else {})})
        for item in page.get("items") or ():
            take(item)
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return


def _take_hpa(known: KnownPods, hpa: Object) -> None:
    spec = hpa.get("spec") or {}
    target = spec.get("scaleTargetRef") or {}
    by = [text for metric in spec.get("metrics") or () if (text := by_requests(metric))]
    if by:
        owner = OwnerObject(hpa["metadata"].get("namespace", ""), str(target.get("kind")), str(target.get("name")))
        known.hpas[owner] = f"HorizontalPodAutoscaler {hpa['metadata']['name']} scales by {' and '.join(by)}"


def by_requests(metric: Mapping[str, Any]) -> str:
    """What share of which request it holds; empty: it does not look at requests.

    >>> target = {"type": "Utilization", "averageUtilization": 80}
    >>> by_requests({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    '80 % of the requested cpu'
    """
    one = metric.get("resource") or metric.get("containerResource") or {}
    target = one.get("target") or {}
    if target.get("type") != "Utilization":
        return ""
    return f"{target.get('averageUtilization')} % of the requested {one.get('name')}"


def complete(found: Found, known: KnownPods, only_known: bool) -> Found:
    """Owners and resources as the API server has them. `only_known`: other Pods are left out (a label selector)."""
    made = Found(largest=found.largest, hpas=known.hpas)
    for key, history in found.histories.items():
        place = key.workload.namespace, key.pod
        pod = known.pods.get(place) or (None if only_known else _sibling(key, known))
        if (pod is None and only_known) or (pod is not None and key.container not in pod.containers):
            continue  # without these labels, or a container that its workload does not have any more
        workload = key.workload if pod is None else OwnerObject(place[0], pod.kind, pod.name)
        renamed = ContainerKey(workload, key.pod, key.container)
        made.histories[renamed] = history
        made.current[renamed] = _current(pod, key.container) or found.current.get(key, Resources())
        if (said := known.resources.get((*place, key.container))) is not None:
            made.declared[workload, key.container] = said
    if not made.histories:
        if only_known:
            raise NoHistory("no container that was observed belongs to a Pod with these labels")
        raise NoHistory("the cluster has the observed workloads, but none of the observed containers is in them now")
    for (namespace, _), pod in known.pods.items():
        owner = OwnerObject(namespace, pod.kind, pod.name)
        made.replicas[owner] = made.replicas.get(owner, 0) + 1
    return made


def _sibling(key: ContainerKey, known: KnownPods) -> DeclaredPod | None:
    """For a Pod that is gone, or a source without Pods: another one of its workload."""
    here = (pod for (namespace, _), pod in known.pods.items() if namespace == key.workload.namespace)
    return next((pod for pod in here if pod.name == key.workload.name), None)


def _current(pod: DeclaredPod | None, container: str) -> Resources | None:
    if pod is None or (one := pod.containers.get(container)) is None:
        return None
    return Resources(one.request_cores, one.request_bytes, one.limit_cores, one.limit_bytes, pod.qos)
