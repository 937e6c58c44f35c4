"""What kube-scheduler asks an extender: filter, prioritize, bind. No HTTP in here.

Filter and prioritize look at memory only, so they answer in time whatever the API server does. They can be wrong by the
Pods that are on their way: kube-scheduler asks for the next Pod before the last one is bound. Bind is where it is
decided: the extender binds itself, counts first, and refuses when the place is gone; the Pod is then scheduled again.

Where several may bind, and numbers fall meanwhile, the node's book decides (kube/book.py): a claim is written into it
before the binding is sent, and only if nobody else wrote since. Bindings by others, kube-scheduler itself among them,
come through the same door when the API server asks `admit` about them.
"""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from carico_agent.kube.book import Books, Claim, Offer, Page
from carico_agent.kube.client import Client, Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.kube.pods import kind_of, places_of
from carico_agent.schedule.cluster import Cluster
from carico_agent.schedule.policy import Nodes, NodeView, PodView, Policy
from carico_agent.schedule.wire import filter_result, host_priorities, names_of

MOST_PODS = 10_000
CLAIM_TRIES = 5
NO_SUCH_NODE = "unknown: no such node"
BIND_KEYS = ("PodNamespace", "PodName", "PodUID", "Node")
ANY = Offer()

Refuse = Callable[[str, PodView, Offer], str | None]
"""Why a node, given what its book offers, cannot take a Pod."""


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """How it answers. Times in seconds."""

    open_when_unknown: bool = False
    """Let nodes pass that have never published."""
    book_namespace: str = "carico"
    """Where the nodes' books are; empty: there are none, and nobody else binds."""
    resource: str = ""
    """The extended resource that Pods ask for, if any."""
    claim_s: float = 15.0
    """A place that was taken but never seen bound is free after this."""
    bind_s: float = 4.0
    """Bind answers within this; kube-scheduler gives up after 5 s by default."""


class Extender:
    """Answers from what the watches know."""

    def __init__(self, client: Client, cluster: Cluster, policy: Policy, config: ExtenderConfig) -> None:
        self._client, self._cluster, self._policy, self._config = client, cluster, policy, config
        self._books = Books(client, config.book_namespace) if config.book_namespace else None
        self._pages: dict[str, Page] = {}  # as last read or written; a claim fails if that is not the newest
        self.conflicts = 0
        self.refused_binds = 0
        self.refused_admissions = 0
        self._pods: OrderedDict[str, PodView] = OrderedDict()  # that were asked about: bind is told the UID only
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

    def _refusal(self, name: str, pod: PodView, now_s: float, offer: Offer = ANY) -> str | None:
        view = self._cluster.nodes.get(name)
        if view is None:
            return NO_SUCH_NODE
        if view.book and offer.places is not None and offer.places < view.slots:
            view = replace(view, slots=offer.places)
        if view.slots != view.slots and self._config.open_when_unknown:
            return None
        return self._policy.refusal(view, pod, now_s)

    def _pod(self, arguments: Object) -> PodView:
        return self._remember(arguments.get("Pod") or {})

    def _remember(self, pod: Object) -> PodView:
        meta = pod.get("metadata") or {}
        seen = PodView(str(meta.get("uid", "")), kind_of(meta), places_of(pod.get("spec") or {}, self._config.resource))
        if seen.uid:
            self._pods[seen.uid] = seen
        if len(self._pods) > MOST_PODS:
            self._pods.popitem(last=False)
        return seen

    # ---- bind

    async def bind(self, arguments: Object) -> Object:
        """ExtenderBindingArgs → ExtenderBindingResult."""
        namespace, name, uid, node = (str(arguments.get(key, "")) for key in BIND_KEYS)
        why = await self._in_time(self._bind(namespace, name, uid, node))
        self.refused_binds += bool(why)
        return {"Error": f"carico extender: {node}: {why}" if why else ""}

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why not; None when it is done. Counting and taking are one step here, before anything is waited for: the next
        filter sees the place taken. The claim then makes it one step for all who bind, and for the node."""
        if why := self._blind():
            return why
        pod = self._pods.get(uid) or await self._ask(namespace, name, uid)
        if why := self._take(pod, node, self._refuse_binding):
            return why
        try:
            if why := await self._claim(pod, node, self._refuse_binding):
                return why
            await self._client.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                "metadata": {"name": name, "namespace": namespace, "uid": uid}})  # fmt: skip
        except Refused:
            self._let_go(pod, node)
            raise
        return None

    def _refuse_binding(self, node: str, pod: PodView, offer: Offer) -> str | None:
        return self._refusal(node, pod, time.monotonic(), offer) or self._refuse_holding(node, pod, offer)

    # ---- bindings by others

    async def admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why this binding, which somebody else makes, must not be; None if it may. Asked while the API server waits
        with it. Only Pods that ask for the extended resource are counted: the others' places nobody asked us for."""
        why = await self._in_time(self._admit(namespace, name, uid, node))
        self.refused_admissions += bool(why)
        return why

    async def _admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        pod = self._pods.get(uid) or await self._ask(namespace, name, uid)
        if not pod.holds:
            return None
        return self._blind() or await self._claim(pod, node, self._refuse_holding)

    def _refuse_holding(self, node: str, pod: PodView, offer: Offer) -> str | None:
        view = self._cluster.nodes.get(node)
        if view is None:
            return NO_SUCH_NODE
        most = offer.resource if view.book and offer.resource is not None else view.resource
        if not pod.holds or most is None or view.held + pod.holds <= most:
            return None
        return f"no room: {most} {self._config.resource}, {view.held} held"

    # ---- taking a place

    async def _in_time(self, work: Awaitable[str | None]) -> str | None:
        try:
            async with asyncio.timeout(self._config.bind_s):
                return await work
        except KubeError as error:
            return str(error)
        except TimeoutError:  # it may be bound all the same: the place stays taken until a watch or time tells
            return f"the API server did not answer within {self._config.bind_s:g} s"

    def _blind(self) -> str | None:
        if not self._cluster.synced:
            return "nodes and Pods are not known yet"
        if self._cluster.blind_s() > self._config.claim_s / 2:
            return "the watch of Pods is interrupted, so nobody knows what others bound"
        return None

    async def _ask(self, namespace: str, name: str, uid: str) -> PodView:
        """A Pod that we were not asked about: another replica was, or we have just started. Why a list: the role has
        that right already."""
        named = {"fieldSelector": f"metadata.name={name}"}
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", named)
        pod: Object | None = next(iter(found.get("items") or ()), None)
        if pod is None or uid not in ("", pod["metadata"]["uid"]):
            raise KubeError(f"Pod {namespace}/{name} is gone")
        return self._remember(pod)

    def _take(self, pod: PodView, node: str, refuse: Refuse, offer: Offer = ANY) -> str | None:
        """Take a place in memory. What the Pod itself took in an earlier try does not stand in its way."""
        self._cluster.unassume(pod.uid)
        why = refuse(node, pod, offer)
        if why is None:
            self._cluster.assume(pod, node, time.monotonic() + self._config.claim_s)
        return why

    def _let_go(self, pod: PodView, node: str) -> None:
        """It will not be bound here after all: the next claim that is written leaves it out."""
        self._cluster.unassume(pod.uid)
        if (page := self._pages.get(node)) is not None:
            page.claims.pop(pod.uid, None)

    async def _claim(self, pod: PodView, node: str, refuse: Refuse) -> str | None:
        """Write into the book that `pod` comes. Somebody was faster: learn what they took or what is offered now, and
        look again whether there is room.

        Look each time, not only after a conflict: the Pod before us in this queue may have learned of places taken.
        """
        if self._books is None:
            return self._take(pod, node, refuse)
        async with self._locks[node]:
            for _ in range(CLAIM_TRIES):
                page = self._pages.get(node) or self._learn(node, await self._books.read(node), pod.uid)
                if why := self._take(pod, node, refuse, page.offer):
                    return why
                claim = Claim(round(time.time() + self._config.claim_s, 3), pod.holds)
                if (written := await self._books.claim(node, page, pod.uid, claim)) is not None:
                    self._pages[node] = written
                    return None
                del self._pages[node]
                self.conflicts += 1
        self._cluster.unassume(pod.uid)
        return "others keep taking places here"

    def _learn(self, node: str, page: Page, own: str) -> Page:
        """Others' claims are places taken. A Pod does not stand in its own way."""
        ahead_s = time.monotonic() - time.time()
        for uid, (until_s, holds) in page.claims.items():
            if uid != own and until_s > time.time():
                self._cluster.assume(PodView(uid, "", holds), node, until_s + ahead_s)
        self._pages[node] = page
        return page

    async def keep_house(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self._cluster.keep_house(time.monotonic())
