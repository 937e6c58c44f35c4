"""Pods that wait for a node, with what a policy may know of them.

Bind and the admission webhook are given a Pod's name and UID only. Filter was shown all of it before; if that was
another replica's, the watch has shown it, or else the API server is asked.
"""

from collections import OrderedDict

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.shortlist import prefers_spread
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.pod_requests import holds_of, says_cpu, scored_of
from carico_agent.lib.kube.pods import workload_of
from carico_agent.lib.kube.workloads import Amounts
from carico_agent.lib.net.times import boottime_s

MAX_PODS = 10_000


class AlreadyBound(KubeError):
    """A Pod that runs somewhere needs no place anywhere."""

    def __init__(self, node: str) -> None:
        super().__init__(f"the Pod is bound to {node} already")


class WaitingPods:
    """Remembers the last MAX_PODS that it was asked about."""

    def __init__(self, client: KubeClient, cluster: Cluster, resource: str) -> None:
        self._client, self._cluster, self._resource = client, cluster, resource
        self._pods: OrderedDict[str, PendingPod] = OrderedDict()

    def get(self, uid: str) -> PendingPod | None:
        """None: no client asked about it, or long ago."""
        return self._pods.get(uid)

    def remember(self, pod: Object) -> PendingPod:
        """Read a Pod object."""
        meta = pod.get("metadata") or {}
        holds = holds_of(pod, self._resource) if self._resource else 0
        workload, requested, (cpu, memory) = workload_of(meta), says_cpu(pod), scored_of(pod)
        name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        uid, known = str(meta.get("uid", "")), self._known(workload)
        spreads = prefers_spread(pod)
        return self._keep(PendingPod(uid, workload, holds, cpu, memory, requested, known[0], name, known[1], spreads))

    def _known(self, workload: str) -> tuple[Amounts | None, float]:
        """What one of this workload takes on nodes that know it, and how long ago that was a surprise [s]."""
        now_s, costs = boottime_s(), self._cluster.costs
        return costs.of(workload, now_s), costs.surprised_for_s(workload, now_s)

    async def find(self, namespace: str, name: str, uid: str) -> PendingPod:
        """A Pod that is about to be bound; raises AlreadyBound if it is."""
        pod = self._pods.get(uid) or self._seen(namespace, name, uid) or await self._fetch(namespace, name, uid)
        if where := self._cluster.bound_to(pod.uid):
            raise AlreadyBound(where)
        return pod

    def _seen(self, namespace: str, name: str, uid: str) -> PendingPod | None:
        """A Pod that the watch has shown; None: it is newer than that, or not of this name."""
        pod = self._cluster.waiting(uid)
        if pod is None or (pod.namespace, pod.name) != (namespace, name):
            return None
        (elsewhere, surprised_for_s), full_name = self._known(pod.workload), f"{namespace}/{name}"
        asked = pod.cpu, pod.memory, pod.requested
        return self._keep(PendingPod(uid, pod.workload, pod.holds, *asked, elsewhere, full_name, surprised_for_s))

    async def _fetch(self, namespace: str, name: str, uid: str) -> PendingPod:
        """A Pod that we were not asked about: another replica was, or we have just started. Why a list: the role has
        that right already."""
        named = {"fieldSelector": f"metadata.name={name}"}
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", named)
        pod: Object | None = next(iter(found.get("items") or ()), None)
        if pod is None or uid not in ("", pod["metadata"]["uid"]):
            raise KubeError(f"Pod {namespace}/{name} is gone")
        if where := (pod.get("spec") or {}).get("nodeName"):
            raise AlreadyBound(where)
        return self.remember(pod)

    def _keep(self, pending: PendingPod) -> PendingPod:
        if pending.uid:
            self._pods[pending.uid] = pending
        if len(self._pods) > MAX_PODS:
            self._pods.popitem(last=False)
        return pending
