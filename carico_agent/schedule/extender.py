"""What kube-scheduler asks an extender: filter, prioritize, bind. No HTTP in here.

Filter and prioritize look at memory only, so they answer in time whatever the API server does. They can be wrong by the
Pods that are on their way: kube-scheduler asks for the next Pod before the last one is bound. Bind is where it is
decided: the extender binds itself, counts first, and refuses when the place is gone; the Pod is then scheduled again.

Where several may bind, and numbers fall meanwhile, the node's book decides (kube/placement_lease.py): a claim is written into it
before the binding is sent, and only if nobody else wrote since. Bindings by others, kube-scheduler itself among them,
come through the same door when the API server asks `admit` about them.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import KubeError, Refused, Unreachable
from carico_agent.kube.placement_lease import Claim, ClaimExpiry, LeaseRecord, PlacementLeases
from carico_agent.kube.pods import holds_of, is_name, kind_of
from carico_agent.schedule.cluster import Cluster
from carico_agent.schedule.policy import Nodes, NodeState, PendingPod, Policy
from carico_agent.schedule.wire import filter_result, host_priorities, names_of

MOST_PODS = 10_000
CLAIM_TRIES = 5
NO_SUCH_NODE = "unknown: no such node"
BIND_KEYS = ("PodNamespace", "PodName", "PodUID", "Node")
HOUSE_S = 0.1

Refuse = Callable[[NodeState, PendingPod], str | None]
"""Why a node cannot take a Pod."""


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """How it answers. Times in seconds."""

    open_when_unknown: bool = False
    """Let nodes pass that have never published."""
    lease_namespace: str = "carico"
    """Where the nodes' books are; empty: there are none, and nobody else binds."""
    resource: str = ""
    """The extended resource that Pods ask for, if any."""
    claim_s: float = 15.0
    """A place that was taken but never seen bound is free after this."""
    bind_s: float = 4.0
    """Bind answers within this; kube-scheduler gives up after 5 s by default."""


class CachedLease:
    """Where a node's book lies: as last read or written, which a claim needs, and one Pod at a time writes into it."""

    def __init__(self, valid_s: float) -> None:
        self.record: LeaseRecord | None = None
        self.expiry = ClaimExpiry(valid_s)
        self.lock = asyncio.Lock()


class Extender:
    """Answers from what the watches know."""

    def __init__(self, client: KubeClient, cluster: Cluster, policy: Policy, config: ExtenderConfig) -> None:
        self._client, self._cluster, self._policy, self._config = client, cluster, policy, config
        self._store = PlacementLeases(client, config.lease_namespace) if config.lease_namespace else None
        self._leases: dict[str, CachedLease] = {}
        self.conflicts = 0
        self.refused_binds = 0
        self.refused_admissions = 0
        self._pods: OrderedDict[str, PendingPod] = OrderedDict()  # that were asked about: bind is told the UID only

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
        names, pod, views, nobody = names_of(arguments), self._pod(arguments), self._cluster.nodes, NodeState("")
        nodes = self._known(names)
        scores = self._policy.scores(nodes or [views.get(name, nobody) for name in names], pod, time.monotonic())
        return host_priorities(names, scores, plain=bool(nodes))

    def _known(self, names: Sequence[str]) -> Nodes | None:
        """None if one of them does not exist (deleted, or new): rare, so that may take longer."""
        try:
            return self._cluster.table.of(names)
        except KeyError:
            return None

    def _refusals(self, nodes: Nodes, pod: PendingPod, now_s: float) -> list[str | None]:
        found = self._policy.refusals(nodes, pod, now_s)
        if self._config.open_when_unknown:
            return [why if slots == slots else None for why, slots in zip(found, nodes.slots.tolist(), strict=True)]
        return found

    def _refusal(self, name: str, pod: PendingPod, now_s: float) -> str | None:
        view = self._cluster.nodes.get(name)
        return NO_SUCH_NODE if view is None else self._refuse_place(view, pod, now_s)

    def _refuse_place(self, view: NodeState, pod: PendingPod, now_s: float) -> str | None:
        if view.slots != view.slots and self._config.open_when_unknown:
            return None
        return self._policy.refusal(view, pod, now_s)

    def _pod(self, arguments: Object) -> PendingPod:
        return self._remember(arguments.get("Pod") or {})

    def _remember(self, pod: Object) -> PendingPod:
        meta = pod.get("metadata") or {}
        seen = PendingPod(
            str(meta.get("uid", "")), kind_of(meta), holds_of(pod.get("spec") or {}, self._config.resource)
        )
        if seen.uid:
            self._pods[seen.uid] = seen
        if len(self._pods) > MOST_PODS:
            self._pods.popitem(last=False)
        return seen

    # ---- bind

    async def bind(self, arguments: Object) -> Object:
        """ExtenderBindingArgs → ExtenderBindingResult."""
        namespace, name, uid, node = (str(arguments.get(key, "")) for key in BIND_KEYS)
        why: str | None
        if not all(map(is_name, (namespace, name, node))):
            why = f"{namespace!r}, {name!r} and {node!r} are not all names"
        else:
            try:
                async with asyncio.timeout(self._config.bind_s):
                    why = await self._bind(namespace, name, uid, node)
            except KubeError as error:
                why = str(error)
            except TimeoutError:  # it may be bound all the same: the place stays taken until a watch or time tells
                why = f"the API server did not answer within {self._config.bind_s:g} s"
        self.refused_binds += bool(why)
        return {"Error": f"carico extender: {node}: {why}" if why else ""}

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why not; None when it is done. Counting and taking are one step here, before anything is waited for: the next
        filter sees the place taken. The claim then makes it one step for all who bind, and for the node."""
        self._must_see()
        pod = self._pods.get(uid) or await self._ask(namespace, name, uid)
        if why := self._take(pod, node, self._refuse_binding):
            return why
        try:
            if why := await self._claim(pod, node, self._refuse_binding):
                return why
            await self._client.post(
                f"/api/v1/namespaces/{namespace}/pods/{name}/binding",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                    "metadata": {"name": name, "namespace": namespace, "uid": uid},
                },
            )
        except Refused:
            self._release(pod, node)
            raise
        self._cluster.bound(uid)
        return None

    def _refuse_binding(self, view: NodeState, pod: PendingPod) -> str | None:
        return self._refuse_place(view, pod, time.monotonic()) or self._refuse_holding(view, pod)

    # ---- bindings by others

    async def admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why this binding, which somebody else makes, must not be; None if it may. Asked while the API server waits
        with it. Only Pods that ask for the extended resource are counted: the others' places nobody asked us for.
        Raises KubeError when that cannot be known; whoever asks has a rule for that (failurePolicy)."""
        try:
            async with asyncio.timeout(self._config.bind_s):
                why = await self._admit(namespace, name, uid, node)
        except TimeoutError as error:
            raise Unreachable(f"the API server did not answer within {self._config.bind_s:g} s") from error
        self.refused_admissions += bool(why)
        return why

    async def _admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        pod = self._pods.get(uid) or await self._ask(namespace, name, uid)
        if not pod.holds:
            return None
        self._must_see()
        return await self._claim(pod, node, self._refuse_holding)

    def _refuse_holding(self, view: NodeState, pod: PendingPod) -> str | None:
        if not pod.holds or view.resource is None or view.held + pod.holds <= view.resource:
            return None
        return f"no room: {view.resource} {self._config.resource}, {view.held} held"

    # ---- taking a place

    def _must_see(self) -> None:
        """Raises KubeError while nobody can know what others bound."""
        if not self._cluster.synced:
            raise KubeError("nodes and Pods are not known yet")
        if self._cluster.blind_s() > self._config.claim_s / 2:
            raise KubeError("the watch of Pods is interrupted, so nobody knows what others bound")

    async def _ask(self, namespace: str, name: str, uid: str) -> PendingPod:
        """A Pod that we were not asked about: another replica was, or we have just started. Why a list: the role has
        that right already."""
        named = {"fieldSelector": f"metadata.name={name}"}
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", named)
        pod: Object | None = next(iter(found.get("items") or ()), None)
        if pod is None or uid not in ("", pod["metadata"]["uid"]):
            raise KubeError(f"Pod {namespace}/{name} is gone")
        return self._remember(pod)

    def _take(self, pod: PendingPod, node: str, refuse: Refuse, cached: CachedLease | None = None) -> str | None:
        """Take a place in memory. What the Pod itself took in an earlier try does not stand in its way."""
        self._cluster.unassume(pod.uid)
        view = self._cluster.nodes.get(node)
        if view is None:
            return NO_SUCH_NODE
        why = refuse(view if cached is None else self._with_lease(view, pod, cached), pod)
        if why is None:
            self._cluster.assume(pod, node, time.monotonic() + self._config.claim_s)
        return why

    def _with_lease(self, view: NodeState, pod: PendingPod, cached: CachedLease) -> NodeState:
        """The node with what its book offers, and with those who have claimed a place and are not known yet."""
        record = cached.record or LeaseRecord()
        offer = record.offer(time.time())
        claims = cached.expiry.valid(record.claims, time.monotonic())
        others = [claim for uid, claim in claims.items() if uid != pod.uid and not self._cluster.knows(uid, view.name)]
        return replace(
            view,
            assigned=view.assigned + len(others),
            held=view.held + sum(claim.holds for claim in others),
            slots=view.slots if offer.places is None else min(view.slots, offer.places),
            resource=view.resource if offer.resource is None else offer.resource,
        )

    def _release(self, pod: PendingPod, node: str) -> None:
        """It will not be bound here after all: the next claim that is written leaves it out."""
        self._cluster.unassume(pod.uid)
        if (cached := self._leases.get(node)) is not None and cached.record is not None:
            cached.record.claims.pop(pod.uid, None)

    async def _claim(self, pod: PendingPod, node: str, refuse: Refuse) -> str | None:
        """Write into the book that `pod` comes, if there is room by what it says. Nobody tells us when it changes: a
        claim that somebody else preceded fails, and what was read earlier does not refuse anybody."""
        if self._store is None or node not in self._cluster.nodes:
            return self._take(pod, node, refuse)
        cached = self._leases.setdefault(node, CachedLease(self._config.claim_s))
        async with cached.lock:
            for _ in range(CLAIM_TRIES):
                known = cached.record is not None
                if cached.record is None:
                    cached.record = await self._store.read(node)
                if why := self._take(pod, node, refuse, cached):
                    if not known:
                        return why
                    cached.record = None
                elif await self._write_claim(cached, pod, node):
                    return None
        self._cluster.unassume(pod.uid)
        return "others keep taking places here"

    async def _write_claim(self, cached: CachedLease, pod: PendingPod, node: str) -> bool:
        assert self._store is not None and cached.record is not None
        record, cached.record = cached.record, None  # if the answer is lost we do not know what the book says
        claims = cached.expiry.valid(record.claims, time.monotonic()) | {
            pod.uid: Claim(round(time.time(), 3), pod.holds)
        }
        cached.record = await self._store.claim(node, record, claims)
        self.conflicts += cached.record is None
        return cached.record is not None

    async def expire_loop(self) -> None:
        while True:
            await asyncio.sleep(HOUSE_S)
            self._cluster.expire_loop(time.monotonic())
            for node in [node for node in self._leases if node not in self._cluster.nodes]:
                del self._leases[node]
