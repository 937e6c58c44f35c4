"""What kube-scheduler asks an extender: filter, prioritize, bind. No HTTP in here.

Filter and prioritize look at memory only, so they answer in time whatever the API server does. They can be wrong by the
Pods that are on their way: kube-scheduler asks for the next Pod before the last one is bound. Bind is where it is
decided: the extender binds itself, counts first, and refuses when the place is gone; the Pod is then scheduled again.

What remains: the API server knows no "bind if the node still says 8". A lower number that is written while a binding
is on its way to the server comes too late for it. So the last look is after the claim, right before the binding is
sent; looking only before it, bindings came up to 240 ms after the number they exceeded (200 Pods, 10 nodes, all busy).
"""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from carico_agent.kube.client import Client, Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.kube.pods import kind_of
from carico_agent.schedule.claims import Claims
from carico_agent.schedule.cluster import Cluster, Published
from carico_agent.schedule.policy import Nodes, NodeView, PodView, Policy
from carico_agent.schedule.wire import filter_result, host_priorities, names_of

MOST_KINDS = 10_000
CLAIM_TRIES = 5
NO_SUCH_NODE = "unknown: no such node"
BIND_KEYS = ("PodNamespace", "PodName", "PodUID", "Node")


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """How it answers. Times in seconds."""

    open_when_unknown: bool = False
    """Let nodes pass that have never published."""
    claim_namespace: str = "carico"
    """Where replicas agree; empty: there is only one."""
    claim_s: float = 15.0
    """A place that was taken but never seen bound is free after this."""
    bind_s: float = 4.0
    """Bind answers within this; kube-scheduler gives up after 5 s by default."""


class Extender:
    """Answers from what the watches know."""

    def __init__(self, client: Client, cluster: Cluster, policy: Policy, config: ExtenderConfig) -> None:
        self._client, self._cluster, self._policy, self._config = client, cluster, policy, config
        self.claims = Claims(client, config.claim_namespace, config.claim_s) if config.claim_namespace else None
        self.refused_binds = 0
        self._kinds: OrderedDict[str, str] = OrderedDict()  # of Pods asked about: bind is told the UID only
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # ---- filter and prioritize

    def filter(self, arguments: Object) -> Object | bytes:
        """ExtenderArgs → ExtenderFilterResult, as JSON where only names travel."""
        if not self._cluster.synced:
            return {"Error": "carico extender: nodes and Pods are not known yet"}
        names, whole, pod, now_s = names_of(arguments), arguments.get("Nodes"), self._pod(arguments), time.monotonic()
        nodes = self._known(names)
        verdicts = self._refusals(nodes, pod, now_s) if nodes else [self._refusal(name, pod, now_s) for name in names]
        if whole and arguments.get("NodeNames") is None:  # not nodeCacheCapable: objects came, objects must go
            failed = {name: why for name, why in zip(names, verdicts, strict=True) if why is not None}
            items = [node for node in whole.get("items") or () if node["metadata"]["name"] not in failed]
            return {"Nodes": {**whole, "items": items}, "FailedNodes": failed, "Error": ""}
        return filter_result(names, verdicts, plain=bool(nodes))

    def prioritize(self, arguments: Object) -> bytes:
        """ExtenderArgs → HostPriorityList, as JSON."""
        names, pod, views, nobody = names_of(arguments), self._pod(arguments), self._cluster.nodes, NodeView("")
        nodes = self._known(names)
        scores = self._policy.scores(nodes or [views.get(name, nobody) for name in names], pod, time.monotonic())
        return host_priorities(names, scores, plain=bool(nodes))

    def _known(self, names: Sequence[str]) -> Nodes | None:
        """None if one of them does not exist (deleted, or new): rare, so that may take longer."""
        try:
            return self._cluster.table.of(names)
        except KeyError:
            return None

    def _refusals(self, nodes: Nodes, pod: PodView, now_s: float) -> list[str | None]:
        found = self._policy.refusals(nodes, pod, now_s)
        if self._config.open_when_unknown:
            return [why if slots == slots else None for why, slots in zip(found, nodes.slots.tolist(), strict=True)]
        return found

    def _refusal(self, name: str, pod: PodView, now_s: float, newest: Published | None = None) -> str | None:
        view = self._cluster.nodes.get(name)
        if view is None:
            return NO_SUCH_NODE
        if newest is not None:
            view = replace(view, slots=newest.slots, said_s=now_s - newest.age_s, ttl_s=newest.ttl_s)
        if view.slots != view.slots and self._config.open_when_unknown:
            return None
        return self._policy.refusal(view, pod, now_s)

    def _pod(self, arguments: Object) -> PodView:
        meta = (arguments.get("Pod") or {}).get("metadata") or {}
        uid, kind = str(meta.get("uid", "")), kind_of(meta)
        self._kinds[uid] = kind
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        return PodView(uid, kind)

    # ---- bind

    async def bind(self, arguments: Object) -> Object:
        """ExtenderBindingArgs → ExtenderBindingResult."""
        namespace, name, uid, node = (str(arguments.get(key, "")) for key in BIND_KEYS)
        try:
            async with asyncio.timeout(self._config.bind_s):
                why = await self._bind(namespace, name, PodView(uid, self._kinds.get(uid, "")), node)
        except KubeError as error:
            why = str(error)
        except TimeoutError:  # it may be bound all the same: the place stays taken until a watch or time tells
            why = f"the API server did not answer within {self._config.bind_s:g} s"
        self.refused_binds += bool(why)
        return {"Error": f"carico extender: {node}: {why}" if why else ""}

    async def _bind(self, namespace: str, name: str, pod: PodView, node: str) -> str:
        """Why not, or nothing. Counting and taking are one step here, before anything is waited for: the next filter
        sees the place taken. The claim then makes it one step for all replicas. Then a last look: numbers change."""
        if self._cluster.blind_s() > self._config.claim_s / 2:
            return "the watch of Pods is interrupted, so nobody knows what other extenders bound"
        if why := self._take(pod, node):
            return why
        try:
            if why := await self._claim(pod, node):
                return why
            if why := self._take(pod, node, await self._cluster.newest(node)):
                self._let_go(pod, node)
                return why
            await self._client.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                "metadata": {"name": name, "namespace": namespace, "uid": pod.uid}})  # fmt: skip
        except Refused:
            self._let_go(pod, node)
            raise
        return ""

    def _take(self, pod: PodView, node: str, newest: Published | None = None) -> str | None:
        """Take a place in memory. What the Pod itself took in an earlier try does not stand in its way."""
        now_s = time.monotonic()
        self._cluster.unassume(pod.uid)
        why = self._refusal(node, pod, now_s, newest)
        if why is None:
            self._cluster.assume(pod.uid, node, pod.kind, now_s + self._config.claim_s)
        return why

    def _let_go(self, pod: PodView, node: str) -> None:
        self._cluster.unassume(pod.uid)
        if self.claims is not None:
            self.claims.drop(node, pod.uid)

    async def _claim(self, pod: PodView, node: str) -> str | None:
        """Let all replicas know. Somebody was faster: learn what they took, and look again whether there is room.

        Look each time, not only after a conflict: the Pod before us in this queue may have learned of places taken.
        """
        if self.claims is None:
            return None
        async with self._locks[node]:
            for _ in range(CLAIM_TRIES):
                if not self.claims.knows(node):
                    self._learn(node, await self.claims.read(node), pod.uid)
                if why := self._take(pod, node):
                    return why
                if await self.claims.add(node, pod.uid):
                    return None
        self._cluster.unassume(pod.uid)
        return "other extenders keep taking places here"

    def _learn(self, node: str, claims: dict[str, float], own: str) -> None:
        """Other replicas' claims are places taken. A Pod does not stand in its own way."""
        ahead_s = time.monotonic() - time.time()
        for uid, until_s in claims.items():
            if uid != own and until_s > time.time():
                self._cluster.assume(uid, node, "", until_s + ahead_s)

    async def keep_house(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self._cluster.keep_house(time.monotonic())

