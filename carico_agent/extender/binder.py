"""Bind: takes a place for the Pod, and makes the Binding. It is decided here: the place is taken first, the binding is
refused when there is none, and kube-scheduler then schedules the Pod again.
"""

import asyncio

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.placement.leader_questions import Question
from carico_agent.extender.placement.placer import Placer
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.pods import is_name

BIND_KEYS = ("PodNamespace", "PodName", "PodUID", "Node")
REFUSED_FOR_SURE = (400, 403, 404, 422)
"""The API server's answers to a binding that was not made, and was not made before either."""


class Binder:
    """Answers within `bind_s` [s]."""

    def __init__(self, client: KubeClient, cluster: Cluster, pods: WaitingPods, placer: Placer, bind_s: float) -> None:
        self._client, self._cluster, self._pods, self._placer = client, cluster, pods, placer
        self._bind_s = bind_s
        self.refused = 0

    async def bind(self, arguments: Object) -> Object:
        """ExtenderBindingArgs → ExtenderBindingResult."""
        namespace, name, uid, node = (str(arguments.get(key, "")) for key in BIND_KEYS)
        why: str | None
        if not all(map(is_name, (namespace, name, node))):
            why = f"{namespace!r}, {name!r} and {node!r} are not all names"
        else:
            try:
                async with asyncio.timeout(self._bind_s):
                    why = await self._bind(namespace, name, uid, node)
            except KubeError as error:
                why = str(error)
            except TimeoutError:  # it may be bound all the same: the place is held until a watch shows it, or expires
                why = f"the API server did not answer within {self._bind_s:g} s"
        self.refused += bool(why)
        return {"Error": f"carico extender: {node}: {why}" if why else ""}

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why not; None when it is done."""
        self._placer.must_see()
        pod = await self._pods.find(namespace, name, uid)
        if why := await self._placer.take(Question("bind", namespace, name, uid, node), pod):
            return why
        try:
            await self._client.post(
                f"/api/v1/namespaces/{namespace}/pods/{name}/binding",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                    "metadata": {"name": name, "namespace": namespace, "uid": uid},
                },
            )
        except Refused as refused:
            # Any other answer may come after an earlier try that was made: the place is held until a watch shows it, or
            # expires.
            if refused.status in REFUSED_FOR_SURE:
                self._placer.give_back(uid, node)
            raise
        self._cluster.accepted(uid)
        return None
