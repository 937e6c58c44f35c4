"""What kube-scheduler asks an extender: filter, prioritize, bind. No HTTP in here.

Filter and prioritize look at memory only, so they answer in time whatever the API server does. They can be wrong by the
Pods that are being bound: kube-scheduler asks for the next Pod before the last one is bound. Bind is where it is
decided: the extender binds itself, takes the place first, and refuses when there is none; the Pod is then scheduled
again.

Where several may bind, and numbers fall meanwhile, one extender leads and places all Pods from its memory
(kube/placement_lease.py); the others ask it. Pods that others bind, kube-scheduler itself among them, are placed in
the same way when the API server asks `admit` about them.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from socket import gethostname
from typing import Any

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import KubeError, Refused, Unreachable
from carico_agent.kube.leader import LeaderLease, LeaderRecord, leader_record
from carico_agent.kube.placement_lease import ASKS_LEASE, LEADER_LEASE, Offer, PlacementLeases
from carico_agent.kube.pods import has_requests, holds_of, is_name, kind_of, requests_of
from carico_agent.net.limits import Limits, Peer, RateLimiter
from carico_agent.schedule.cluster import Cluster
from carico_agent.schedule.kind_costs import less
from carico_agent.schedule.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.schedule.placement.asks import Asks, Question
from carico_agent.schedule.placement.placed_pods import PlacedPods
from carico_agent.schedule.policy import Policy
from carico_agent.schedule.published import SeenLease
from carico_agent.schedule.shortlist import best, has_preferences
from carico_agent.schedule.wire import filter_result, host_priorities, names_of

MOST_PODS = 10_000
NO_SUCH_NODE = "unknown: no such node"
BIND_KEYS = ("PodNamespace", "PodName", "PodUID", "Node")
EXPIRE_EVERY_S = 0.1
REFUSED_FOR_SURE = (400, 403, 404, 422)
"""The API server's answers to a binding that was not made, and was not made before either."""
MOST_HOST = 40
"""Letters of the host's name in our identity, which is part of an annotation's name: 63 at most."""
LEADER_S = 8.0
"""A leader that does not renew its Lease for this long is replaced [s]."""


class AlreadyBound(KubeError):
    """A Pod that runs somewhere needs no place anywhere."""

    def __init__(self, node: str) -> None:
        super().__init__(f"the Pod is bound to {node} already")


Rule = Callable[[NodeState, PendingPod], str | None]
"""Why a node cannot take a Pod."""


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """How it answers. Times in seconds."""

    lease_namespace: str = "carico"
    """Where the placement Leases are; empty: there are none, and nobody else binds."""
    resource: str = ""
    """The extended resource that Pods ask for, if any."""
    bound_within_s: float = 15.0
    """A Pod that was placed is seen bound within this, or its place is free again."""
    bind_s: float = 4.0
    """Bind answers within this; kube-scheduler gives up after 5 s by default."""
    most_nodes: int = 100
    """Nodes that filter hands back at most, 0: all."""
    admissions_per_s: float = 100.0
    """Bindings by others to one node that are let in per second. kube-scheduler binds some 300 in the whole cluster."""


class Extender:
    """Answers from what the watches know."""

    def __init__(self, client: KubeClient, cluster: Cluster, policy: Policy[Any], config: ExtenderConfig) -> None:
        self._client, self._cluster, self._policy, self._config = client, cluster, policy, config
        self.refused_binds = 0
        self.refused_admissions = 0
        self.placed: PlacedPods | None = None
        self.asks: Asks | None = None
        if config.lease_namespace:
            self._join(config.lease_namespace)
        self._rate = RateLimiter(Limits(0, config.admissions_per_s))
        self._pods: OrderedDict[str, PendingPod] = OrderedDict()  # that were asked about: bind is given the UID only

    def _join(self, namespace: str) -> None:
        """Be one of the extenders of this cluster: perhaps the leader."""
        identity = f"{gethostname().lower()[:MOST_HOST].strip('-.')}-{token_hex(4)}"

        def annotations() -> Object:
            return {} if self.placed is None else self.placed.times()

        def fit() -> bool:
            return self.placed is None or self.placed.fit_to_lead()

        leader = LeaderLease(self._client, namespace, LEADER_LEASE, identity, LEADER_S, annotations, fit)
        self.placed = PlacedPods(PlacementLeases(self._client, namespace), leader, self._config.bound_within_s)
        self.asks = Asks(self._client, namespace, identity, lambda: leader.leads, self._decide)
        self._cluster.on_lease = self._lease_seen

    def _lease_seen(self, gone: bool, found: SeenLease) -> None:
        assert self.placed is not None and self.asks is not None
        own = found.of_extenders
        if found.name == LEADER_LEASE:
            self.placed.leader_seen(LeaderRecord() if gone or own is None else leader_record(own))
        elif found.name == ASKS_LEASE and own is not None:
            self.asks.seen(own)
        elif not gone:
            self.placed.lease_seen(found.name, found.record)

    # ---- filter and prioritize

    def filter(self, arguments: Object) -> Object | bytes:
        """ExtenderArgs → ExtenderFilterResult, as JSON where only names travel."""
        if not self._cluster.synced:
            return {"Error": "carico extender: nodes and Pods are not known yet"}
        names, whole, pod = names_of(arguments), arguments.get("Nodes"), self._pod(arguments)
        nodes = self._known(names)
        verdicts = self._policy.refusals(nodes or self._present(names), pod, time.monotonic())
        if nodes is None:
            verdicts = [
                why if name in self._cluster.nodes else NO_SUCH_NODE for name, why in zip(names, verdicts, strict=True)
            ]
        if whole and arguments.get("NodeNames") is None:  # not nodeCacheCapable: objects came, objects must go
            failed = {name: why for name, why in zip(names, verdicts, strict=True) if why is not None}
            items = [node for node in whole.get("items") or () if node["metadata"]["name"] not in failed]
            return {"Nodes": {**whole, "items": items}, "FailedNodes": failed, "Error": ""}
        if nodes is not None and not has_preferences(arguments.get("Pod") or {}):
            names, verdicts = self._shortlist(names, verdicts, pod)
        return filter_result(names, verdicts, plain=nodes is not None)

    def _shortlist(
        self, names: list[str], verdicts: list[str | None], pod: PendingPod
    ) -> tuple[list[str], list[str | None]]:
        """Without the nodes that have room, but less than `most_nodes` others."""
        most = self._config.most_nodes
        if not most or verdicts.count(None) <= most:
            return names, verdicts
        passed = [name for name, why in zip(names, verdicts, strict=True) if why is None]
        scores = self._policy.scores(self._cluster.table.of(passed), pod, time.monotonic())
        kept = best(passed, scores, most)
        both = [(name, why) for name, why in zip(names, verdicts, strict=True) if why is not None or name in kept]
        return [name for name, _ in both], [why for _, why in both]

    def prioritize(self, arguments: Object) -> bytes:
        """ExtenderArgs → HostPriorityList, as JSON."""
        names, pod = names_of(arguments), self._pod(arguments)
        nodes = self._known(names)
        scores = self._policy.scores(nodes or self._present(names), pod, time.monotonic())
        return host_priorities(names, scores, plain=nodes is not None)

    def why(self, uid: str) -> dict[str, str | None] | None:
        """Why each node would refuse this Pod now; None: we were not asked about it, or long ago."""
        pod = self._pods.get(uid)
        return None if pod is None else self._verdicts(pod)

    def why_pod(self, pod: Object) -> dict[str, str | None]:
        """The same for a Pod object."""
        return self._verdicts(self._remember(pod))

    def _verdicts(self, pod: PendingPod) -> dict[str, str | None]:
        nodes = self._cluster.table.all()
        names = nodes.names()
        found = zip(names, self._policy.refusals(nodes, pod, time.monotonic()), strict=True)
        return {name: why or self._refuse_holding(self._cluster.nodes[name], pod) for name, why in found}

    def _known(self, names: Sequence[str]) -> NodeColumns | None:
        """None if one of them does not exist (deleted, or new): rare, so that may take longer."""
        try:
            return self._cluster.table.of(names)
        except KeyError:
            return None

    def _present(self, names: Sequence[str]) -> NodeColumns:
        """These nodes; one that does not exist is one that has published nothing."""
        return NodeColumns.of([self._cluster.nodes.get(name) or NodeState(name) for name in names])

    def _pod(self, arguments: Object) -> PendingPod:
        return self._remember(arguments.get("Pod") or {})

    def _remember(self, pod: Object) -> PendingPod:
        meta = pod.get("metadata") or {}
        spec = pod.get("spec") or {}
        holds, (cpu, memory) = holds_of(spec, self._config.resource), requests_of(spec)
        kind, requested = kind_of(meta), has_requests(spec)
        elsewhere = self._cluster.costs.of(kind, time.monotonic())
        pending = PendingPod(str(meta.get("uid", "")), kind, holds, cpu, memory, requested, elsewhere, _full_name(meta))
        return self._keep(pending)

    def _keep(self, pending: PendingPod) -> PendingPod:
        if pending.uid:
            self._pods[pending.uid] = pending
        if len(self._pods) > MOST_PODS:
            self._pods.popitem(last=False)
        return pending

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
            except TimeoutError:  # it may be bound all the same: the place is held until a watch shows it, or expires
                why = f"the API server did not answer within {self._config.bind_s:g} s"
        self.refused_binds += bool(why)
        return {"Error": f"carico extender: {node}: {why}" if why else ""}

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why not; None when it is done. Checking and taking the place are one step: the next filter sees it taken."""
        self._must_see()
        pod = await self._waiting(namespace, name, uid)
        if why := await self._take(Question("bind", namespace, name, uid, node), pod):
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
                self._cluster.release(uid)
                if self.placed is not None:
                    self.placed.remove(node, uid)
            raise
        self._cluster.accepted(uid)
        return None

    def _refuse_binding(self, state: NodeState, pod: PendingPod) -> str | None:
        return self._policy.refusal(state, pod, time.monotonic()) or self._refuse_holding(state, pod)

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
        try:
            pod = await self._waiting(namespace, name, uid)
        except AlreadyBound as bound:
            return str(bound)
        if not pod.holds:
            return None
        self._must_see()
        return await self._take(Question("admit", namespace, name, uid, node), pod)

    def _refuse_holding(self, state: NodeState, pod: PendingPod) -> str | None:
        if not pod.holds or state.resource is None or state.held + pod.holds <= state.resource:
            return None
        return f"no room: {state.resource} {self._config.resource}, {state.held} held"

    # ---- taking a place

    async def _take(self, asked: Question, pod: PendingPod) -> str | None:
        """Take a place for `pod`; returns why there is none. Raises KubeError while nobody may give one."""
        if self.placed is None or self.asks is None:
            return self._take_here(asked, pod)
        if self.placed.another_leads:
            why = await self.asks.ask(asked)
            if why is None:
                self._hold(pod, asked.node)
            return why
        if why := self.placed.why_not():
            raise KubeError(why)
        return self._take_here(asked, pod)

    def _take_here(self, asked: Question, pod: PendingPod) -> str | None:
        """Checking and taking are one step, with nothing waited for in between. An admission keeps the node's number
        up for a while, and anybody may ask the webhook for one: so not too many at once."""
        node, binds = asked.node, asked.verb == "bind"
        if not binds and (wait_s := self._rate.request(Peer(node), time.monotonic())):
            return f"too many Pods at once; try again in {wait_s:.1f} s"
        why = self._check(pod, node, self._refuse_binding if binds else self._refuse_holding)
        if why is None and self.placed is not None:
            why = self.placed.add(node, pod)
        if why is None:
            self._hold(pod, node)
        return why

    async def _decide(self, asked: Question) -> str | None:
        """As the leader, for another extender."""
        assert self.placed is not None
        self._must_see()
        pod = await self._waiting(asked.namespace, asked.name, asked.uid)
        if why := self.placed.why_not():
            raise KubeError(why)
        return self._take_here(asked, pod)

    def _must_see(self) -> None:
        """Raises KubeError while nobody can know what others bound."""
        if not self._cluster.synced:
            raise KubeError("nodes and Pods are not known yet")
        if self._cluster.blind_s() > self._config.bound_within_s / 2:
            raise KubeError("the watch of Pods is interrupted, so nobody knows what others bound")

    async def _waiting(self, namespace: str, name: str, uid: str) -> PendingPod:
        """A Pod that is about to be bound; raises AlreadyBound if it is."""
        pod = (
            self._pods.get(uid)
            or self._seen_waiting(namespace, name, uid)
            or await self._fetch_pod(namespace, name, uid)
        )
        if where := self._cluster.bound_to(pod.uid):
            raise AlreadyBound(where)
        return pod

    def _seen_waiting(self, namespace: str, name: str, uid: str) -> PendingPod | None:
        """A Pod that the watch has shown; None: it is newer than that, or not of this name."""
        pod = self._cluster.waiting(uid)
        if pod is None or (pod.namespace, pod.name) != (namespace, name):
            return None
        elsewhere, full_name = self._cluster.costs.of(pod.kind, time.monotonic()), f"{namespace}/{name}"
        return self._keep(
            PendingPod(uid, pod.kind, pod.holds, pod.cpu, pod.memory, pod.requested, elsewhere, full_name)
        )

    async def _fetch_pod(self, namespace: str, name: str, uid: str) -> PendingPod:
        """A Pod that we were not asked about: another replica was, or we have just started. Why a list: the role has
        that right already."""
        named = {"fieldSelector": f"metadata.name={name}"}
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", named)
        pod: Object | None = next(iter(found.get("items") or ()), None)
        if pod is None or uid not in ("", pod["metadata"]["uid"]):
            raise KubeError(f"Pod {namespace}/{name} is gone")
        if where := (pod.get("spec") or {}).get("nodeName"):
            raise AlreadyBound(where)
        return self._remember(pod)

    def _check(self, pod: PendingPod, node: str, rule: Rule) -> str | None:
        """Why `node`, as the watches and its Lease show it, cannot take the Pod. A place that the Pod itself holds
        there, from this or an earlier try, does not count."""
        state = self._cluster.nodes.get(node)
        if state is None:
            return NO_SUCH_NODE
        return rule(self._as_offered(self._cluster.without(pod.uid, state), pod.uid), pod)

    def _as_offered(self, state: NodeState, uid: str) -> NodeState:
        """The node with the lower of what its Lease and its Node object say: the Lease falls first. A Pod counts on
        every node that it was placed on lately, this one aside: nobody knows which of its bindings is made."""
        name = state.name
        offer = self._cluster.lease(name).offer(time.time())
        lately = {} if self.placed is None else self.placed.on_the_way(name)
        new = [one for other, one in lately.items() if other != uid and not self._cluster.knows(other, name)]
        resource = offer.least(Offer(None, state.resource)).resource
        if not new and (offer.places is None or offer.places >= state.places):
            return state if resource == state.resource else replace(state, resource=resource)
        behind = 0.0 if offer.places is None else max(0.0, state.places - offer.places)
        return replace(
            _without_next(state, len(new) + behind),
            assigned=state.assigned + len(new),
            held=state.held + sum(one.holds for one in new),
            places=state.places if offer.places is None else min(state.places, offer.places),
            resource=resource,
        )

    def _hold(self, pod: PendingPod, node: str) -> None:
        self._cluster.assume(pod, node, time.monotonic() + self._config.bound_within_s)

    async def expire_loop(self) -> None:
        """For ever: what ends by time."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self._cluster.expire(time.monotonic())
            if self.placed is not None:
                self.placed.expire()


def _full_name(meta: Object) -> str:
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}"


def _without_next(state: NodeState, pods: float) -> NodeState:
    """The node with that many Pods less room. A Lease counts Pods, not kinds: they are taken for the next to arrive."""
    if state.kinds is None or not pods > 0:
        return state
    lower = replace(state)
    lower.left = less(state.left, pods, state.kinds.next)
    return lower
