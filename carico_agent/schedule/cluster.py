"""What the extender knows: every node's published number, and who holds a place where. Two watches keep it true."""

import asyncio
import json
import time
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, isfinite, nan

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.health import Health
from carico_agent.kube.names import SLOTS, STATUS
from carico_agent.kube.pods import UNFINISHED, PodFacts, facts, whole
from carico_agent.kube.watch import ResourceWatch
from carico_agent.net.times import parse_rfc3339
from carico_agent.plugin_api.formats import parse_quantity
from carico_agent.schedule.policy import Ledger, NodeState, PendingPod, Place
from carico_agent.schedule.table import Table

HOUSE_NODES = 100
"""Nodes with unprofiled or starting Pods that are looked at in one go (0.1 s apart)."""

REMEMBER_S = 300.0
"""How long an ended Pod is remembered [s], so that an old claim does not bring it back."""


@dataclass(frozen=True, slots=True)
class Published:
    """What one node says of itself; slots NaN when it says nothing."""

    name: str
    slots: float = nan
    age_s: float = inf
    ttl_s: float = 0.0
    cores: float = inf
    resource: int | None = None


def read_node(node: Object, wall_s: float | None = None, resource: str = "") -> Published:
    """A Node object's annotations. The age is by this machine's clock; a node whose clock is ahead is of age 0.

    >>> said = {"carico.dev/slots": "8", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150,"places":7}'}
    >>> read_node({"metadata": {"name": "a", "annotations": said}, "status": {"capacity": {"cpu": "4"}}}, 1704067210.0)
    Published(name='a', slots=7.0, age_s=10.0, ttl_s=150.0, cores=4.0, resource=None)
    """
    meta, have = node["metadata"], node.get("status") or {}
    annotations = meta.get("annotations") or {}
    amount = (have.get("allocatable") or {}).get(resource)
    silent = Published(
        meta["name"], cores=_cores(have.get("capacity") or {}), resource=None if amount is None else whole(amount)
    )
    if SLOTS not in annotations:
        return silent
    try:
        status = json.loads(annotations.get(STATUS) or "{}")
        published_s = parse_rfc3339(status["time"])
        places = status.get("places")
        slots = float(annotations[SLOTS] if places is None else places)
        ttl_s = float(status["ttl_s"])
        if not isfinite(slots):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):  # somebody else wrote it: as good as nothing
        return silent
    age_s = max(0.0, (time.time() if wall_s is None else wall_s) - published_s)
    return replace(silent, slots=slots, age_s=age_s, ttl_s=ttl_s)


def _cores(capacity: Object) -> float:
    """CPUs; inf when nobody says.

    >>> _cores({"cpu": "3500m"}), _cores({"cpu": "4"}), _cores({"cpu": "0"})
    (3.5, 4.0, inf)
    """
    try:
        cores = parse_quantity(str(capacity.get("cpu", "")))
    except ValueError:
        return inf
    return cores if cores > 0 else inf


class Cluster:
    """Nodes and places. Times are monotonic seconds."""

    def __init__(self, client: KubeClient, resource: str = "") -> None:
        self.health = Health("Kubernetes", "in step with the API server")
        self.nodes: dict[str, NodeState] = {}
        self.table = Table()  # the same nodes, see _show
        self.ledger = Ledger()
        self._bound: dict[str, str] = {}
        self._ended: dict[str, float] = {}
        self._assumed: dict[str, float] = {}
        self._unseen: dict[str, float] = {}  # bound, says the API server; since when we wait for the watch to say so
        self._unsettled: dict[str, None] = {}  # nodes with unprofiled or starting Pods, looked at longest ago first
        self._nodes_watch = ResourceWatch(
            client,
            "/api/v1/nodes",
            lambda node: read_node(node, resource=resource),
            self._nodes_are,
            self._node_changed,
            self.health,
        )
        self._pods_watch = ResourceWatch(
            client,
            "/api/v1/pods",
            lambda pod: facts(pod, resource),
            self._pods_are,
            self._pod_changed,
            self.health,
            f"spec.nodeName!=,{UNFINISHED}",
        )

    async def run(self) -> None:
        """Both watches, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes_watch.run())
            group.create_task(self._pods_watch.run())

    @property
    def synced(self) -> bool:
        return self._nodes_watch.synced.is_set() and self._pods_watch.synced.is_set()

    def blind_s(self) -> float:
        """For how long bindings have not been heard of [s]: the watch of Pods is closed, or open and silent about what
        was bound for sure."""
        waited_s = time.monotonic() - next(iter(self._unseen.values())) if self._unseen else 0.0
        return max(self._pods_watch.closed_s(), waited_s)

    def knows(self, uid: str, node: str) -> bool:
        """Whether a claim of this Pod on `node` says nothing new: it is bound somewhere, assumed there, or ended."""
        return uid in self._bound or uid in self._ended or self.ledger.node_of(uid) == node

    # ---- nodes

    def _nodes_are(self, nodes: list[Published]) -> None:
        names = {node.name for node in nodes}
        for name in [name for name in self.nodes if name not in names]:
            self._node_changed(True, Published(name))
        for node in nodes:
            self._node_changed(False, node)

    def _node_changed(self, gone: bool, node: Published) -> None:
        if gone:
            self.nodes.pop(node.name, None)
            self.table.drop(node.name)
            self.ledger.drop(node.name)
            return
        now_s = time.monotonic()
        view = self.nodes.setdefault(node.name, NodeState(node.name))
        view.slots, view.ttl_s, view.published_s = node.slots, node.ttl_s, now_s - node.age_s
        view.prior_slots, view.resource = 2 * node.cores, node.resource
        self._show(node.name, now_s)

    # ---- Pods

    def _pods_are(self, pods: list[PodFacts]) -> None:
        now_s = time.monotonic()
        snapshot = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in self._bound if uid not in snapshot]:
            self._forget(uid, now_s)
        self.ledger.replace([(uid, _place(pod)) for uid, pod in snapshot.items()], now_s)
        self._bound = {uid: pod.node for uid, pod in snapshot.items()}
        for uid in [uid for uid in self._assumed if uid in snapshot]:
            del self._assumed[uid]
        self._unseen.clear()
        for name in self.nodes:
            self._show(name, now_s)

    def _pod_changed(self, gone: bool, pod: PodFacts) -> None:
        now_s = time.monotonic()
        if gone or pod.finished:
            self._forget(pod.uid, now_s)
            self.ledger.release(pod.uid, now_s)
            self._show(pod.node, now_s)
            return
        assumed = self.ledger.release(pod.uid) if pod.uid not in self._bound else None  # perhaps on another node
        self._bound[pod.uid] = pod.node
        self._assumed.pop(pod.uid, None)
        self._unseen.pop(pod.uid, None)
        self.ledger.put(pod.uid, _place(pod), now_s)
        self._show(pod.node, now_s)
        if assumed is not None and assumed != pod.node:
            self._show(assumed, now_s)

    def _forget(self, uid: str, now_s: float) -> None:
        self._bound.pop(uid, None)
        self._assumed.pop(uid, None)
        self._unseen.pop(uid, None)
        self._ended[uid] = now_s
        while self._ended and next(iter(self._ended.values())) < now_s - REMEMBER_S:
            del self._ended[next(iter(self._ended))]

    # ---- places taken, before they are seen bound

    def assume(self, pod: PendingPod, node: str, until_s: float) -> None:
        """`pod` is about to be bound to `node`, and nowhere else; forgotten at `until_s` unless a watch confirms it."""
        if pod.uid in self._bound or pod.uid in self._ended:
            return
        now_s = time.monotonic()
        self.unassume(pod.uid)
        self.ledger.put(pod.uid, Place(node, pod.kind, until_s=until_s, holds=pod.holds), now_s)
        self._assumed[pod.uid] = until_s
        self._show(node, now_s)

    def unassume(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        if uid not in self._bound and (node := self.ledger.release(uid)) is not None:
            self._show(node, time.monotonic())

    def bound(self, uid: str) -> None:
        """The API server has bound it; the watch will say so."""
        if uid in self._assumed:
            self._unseen[uid] = time.monotonic()

    def expire_loop(self, now_s: float) -> None:
        """Often, and a little each time: drop assumptions never confirmed, see who is an unprofiled Pod no more.

        Why not all at once: Ledger.expire looks at every place, 11 ms with 27,000; nobody gets an answer meanwhile.
        """
        for uid in [uid for uid, until_s in self._assumed.items() if until_s < now_s]:
            self.unassume(uid)
        for name in list(islice(self._unsettled, HOUSE_NODES)):
            del self._unsettled[name]
            self._show(name, now_s)

    def _show(self, name: str, now_s: float) -> None:
        if (view := self.nodes.get(name)) is not None:
            self.ledger.show(view, now_s)
            self.table.put(view)
            if view.unprofiled or view.starting:
                self._unsettled[name] = None


def _place(pod: PodFacts) -> Place:
    return Place(pod.node, pod.kind, pod.running, holds=pod.holds)
