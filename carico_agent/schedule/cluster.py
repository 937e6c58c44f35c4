"""What the extender knows: every node's published number, and who holds a place where. Watches keep it true.

A node's number stands on its Node object, and that its agent is alive in its placement Lease: it is as young as the
younger of both. An agent without a Lease writes its Node object again instead.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, isfinite, nan

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.health import Health
from carico_agent.kube.kinds import UNKNOWN, Amounts, NodeKinds, decode
from carico_agent.kube.names import KINDS, SLOTS, STATUS
from carico_agent.kube.placement_lease import MALFORMED, LeaseRecord, lease_record
from carico_agent.kube.pods import UNFINISHED, PodFacts, facts, whole
from carico_agent.kube.watch import ResourceWatch
from carico_agent.net.times import parse_rfc3339
from carico_agent.plugin_api.formats import parse_quantity
from carico_agent.schedule.kind_costs import ClusterCosts, KindTally, less
from carico_agent.schedule.nodes import NodeState, NodeTable, PendingPod
from carico_agent.schedule.placement.ledger import Ledger
from carico_agent.schedule.placement.lifecycle import SHOWN, PodEvent, PodState
from carico_agent.schedule.placement.place import Place
from carico_agent.schedule.train_jobs import TrainWork

NODES_PER_ROUND = 100
"""Nodes with unprofiled or starting Pods that are refreshed in one go, at most."""
LEAST_PER_ROUND = 10
"""As many are, if there are so many."""


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What one node publishes of itself; slots NaN when it publishes nothing."""

    name: str
    slots: float = nan
    age_s: float = inf
    ttl_s: float = 0.0
    cores: float = inf
    resource: int | None = None
    cpu: float = nan
    """Allocatable [cores]."""
    memory: float = nan
    """The same [bytes]."""
    work_jobs: int = 0
    """Pods whose work left is known."""
    work_s: float = 0.0
    """What they still need [CPU seconds]."""
    kinds: NodeKinds | None = None
    """Its room and what kinds take of it."""


def read_node(node: Object, wall_s: float | None = None, resource: str = "") -> PublishedNode:
    """A Node object's annotations. The age is by this machine's clock; a node whose clock is ahead is of age 0.

    >>> notes = {"carico.dev/slots": "8", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150,"places":7}'}
    >>> node = {"metadata": {"name": "a", "annotations": notes}, "status": {"capacity": {"cpu": "4"}}}
    >>> read = read_node(node, 1704067210.0)
    >>> read.slots, read.age_s, read.ttl_s, read.cores, read.resource
    (7.0, 10.0, 150.0, 4.0, None)
    """
    meta, have = node["metadata"], node.get("status") or {}
    annotations = meta.get("annotations") or {}
    allocatable = have.get("allocatable") or {}
    amount = allocatable.get(resource)
    unpublished = PublishedNode(
        meta["name"],
        cores=_amount(have.get("capacity") or {}, "cpu", inf),
        resource=None if amount is None else whole(amount),
        cpu=_amount(allocatable, "cpu"),
        memory=_amount(allocatable, "memory"),
    )
    if SLOTS not in annotations:
        return unpublished
    try:
        status = json.loads(annotations.get(STATUS) or "{}")
        published_s = parse_rfc3339(status["time"])
        places = status.get("places")
        slots = float(annotations[SLOTS] if places is None else places)
        ttl_s = float(status["ttl_s"])
        if not isfinite(slots) or not isfinite(ttl_s):
            raise ValueError
    except MALFORMED:  # somebody else wrote it
        return unpublished
    age_s = max(0.0, (time.time() if wall_s is None else wall_s) - published_s)
    jobs, work_s = _work(status)
    return replace(
        unpublished,
        slots=slots,
        age_s=age_s,
        ttl_s=ttl_s,
        work_jobs=jobs,
        work_s=work_s,
        kinds=decode(annotations.get(KINDS) or ""),
    )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a placement Lease says of its node's agent."""

    node: str
    age_s: float = inf
    ttl_s: float = 0.0
    record: LeaseRecord = field(default_factory=LeaseRecord)
    """All of it."""


def read_heartbeat(lease: Object, wall_s: float | None = None) -> Heartbeat:
    """A Lease's renewTime. The age is by this machine's clock; an agent whose clock is ahead is of age 0."""
    record = lease_record(lease)
    age_s = max(0.0, (time.time() if wall_s is None else wall_s) - record.renewed_s)
    return Heartbeat(lease["metadata"]["name"], age_s, record.ttl_s, record)


def _work(status: Object) -> tuple[int, float]:
    """Jobs and their work left out of the status annotation; nothing where there is none, or no numbers.

    >>> _work({"work": {"jobs": 2, "sum_s": 90.5}}), _work({"work": {"jobs": -1}}), _work({})
    ((2, 90.5), (0, 0.0), (0, 0.0))
    """
    work = status.get("work")
    jobs, work_s = (work.get("jobs"), work.get("sum_s")) if isinstance(work, dict) else (0, 0.0)
    if not (isinstance(jobs, int) and isinstance(work_s, int | float)) or not (
        0 <= jobs <= 1e6 and 0 <= work_s <= 1e15
    ):
        return 0, 0.0
    return jobs, float(work_s)


def _amount(amounts: Object, name: str, unknown: float = nan) -> float:
    """A quantity out of a node's capacity or allocatable; `unknown` when there is none.

    >>> _amount({"cpu": "3500m"}, "cpu"), _amount({"memory": "4Ki"}, "memory"), _amount({"cpu": "0"}, "cpu", inf)
    (3.5, 4096.0, inf)
    """
    try:
        amount = float(parse_quantity(str(amounts.get(name, ""))))
    except ValueError:
        return unknown
    return amount if amount > 0 else unknown


class Cluster:
    """Nodes and places. Times are monotonic seconds."""

    def __init__(self, client: KubeClient, resource: str = "", lease_namespace: str = "") -> None:
        """`lease_namespace`: of the placement Leases; empty: there are none."""
        self.health = Health("Kubernetes", "in step with the API server")
        self.nodes: dict[str, NodeState] = {}
        self.table = NodeTable()  # the same nodes, see _refresh
        self.ledger = Ledger()
        self.costs = ClusterCosts()
        self._unsettled: dict[str, None] = {}  # nodes with unprofiled or starting Pods, refreshed longest ago first
        self._published: dict[str, tuple[float, float]] = {}  # by the Node object: when [s], valid for [s]
        self._heartbeats: dict[str, tuple[float, float]] = {}  # the same by the Lease
        self._leases: dict[str, LeaseRecord] = {}
        self._waiting: dict[str, PodFacts] = {}  # Pods without a node, by UID
        self._leases_watch = (
            ResourceWatch(
                client,
                f"/apis/coordination.k8s.io/v1/namespaces/{lease_namespace}/leases",
                read_heartbeat,
                self.heartbeats_listed,
                self.heartbeat_changed,
                self.health,
            )
            if lease_namespace
            else None
        )
        self._nodes_watch = ResourceWatch(
            client,
            "/api/v1/nodes",
            lambda node: read_node(node, resource=resource),
            self.nodes_listed,
            self.node_changed,
            self.health,
        )
        self._pods_watch = ResourceWatch(
            client,
            "/api/v1/pods",
            lambda pod: facts(pod, resource),
            self.pods_listed,
            self.pod_changed,
            self.health,
            UNFINISHED,
        )

    async def run(self) -> None:
        """All watches, for ever."""
        async with asyncio.TaskGroup() as group:
            if self._leases_watch is not None:
                group.create_task(self._leases_watch.run())
            group.create_task(self._nodes_watch.run())
            group.create_task(self._pods_watch.run())

    @property
    def synced(self) -> bool:
        leases = self._leases_watch is None or self._leases_watch.synced.is_set()
        return leases and self._nodes_watch.synced.is_set() and self._pods_watch.synced.is_set()

    def sees(self) -> bool:
        """Whether all watches are open, or have just been opened again."""
        watches = (self._nodes_watch, self._pods_watch, self._leases_watch)
        return self.synced and all(watch is None or watch.closed_s() < 5.0 for watch in watches)

    def blind_s(self) -> float:
        """For how long bindings have not been seen [s]: the watch of Pods is closed, or it is open and does not show
        what the API server has accepted."""
        return max(self._pods_watch.closed_s(), self.ledger.longest_s(PodState.ACCEPTED, time.monotonic()))

    # ---- what the watches see

    def nodes_listed(self, nodes: list[PublishedNode]) -> None:
        names = {node.name for node in nodes}
        for name in [name for name in self.nodes if name not in names]:
            self.node_changed(True, PublishedNode(name))
        for node in nodes:
            self.node_changed(False, node)

    def node_changed(self, gone: bool, node: PublishedNode) -> None:
        if gone:
            self.nodes.pop(node.name, None)
            self.table.drop(node.name)
            self.ledger.drop(node.name)
            self.costs.put(node.name, None)
            self._published.pop(node.name, None)
            return
        now_s = time.monotonic()
        state = self.nodes.setdefault(node.name, NodeState(node.name))
        state.slots, self._published[node.name] = node.slots, (now_s - node.age_s, node.ttl_s)
        self._date(state)
        state.prior_slots, state.resource = 2 * node.cores, node.resource
        state.cpu, state.memory, state.kinds = node.cpu, node.memory, node.kinds
        self.costs.put(node.name, node.kinds)
        state.work_jobs, state.work_s = node.work_jobs, node.work_s
        self._refresh(node.name, now_s)

    def take_train_work(self, found: Mapping[str, TrainWork]) -> None:
        """The work left of Kubeflow TrainJobs, on all nodes that have any."""
        now_s = time.monotonic()
        for name, state in self.nodes.items():
            work = found.get(name, TrainWork())
            if (state.train_pods, state.train_s) != (work.pods, work.work_s):
                state.train_pods, state.train_s = work.pods, work.work_s
                self._refresh(name, now_s)

    def heartbeats_listed(self, heartbeats: list["Heartbeat"]) -> None:
        names = {one.node for one in heartbeats}
        for name in [name for name in self._heartbeats if name not in names]:
            self.heartbeat_changed(True, Heartbeat(name))
        for one in heartbeats:
            self.heartbeat_changed(False, one)

    def heartbeat_changed(self, gone: bool, heartbeat: "Heartbeat") -> None:
        name, now_s = heartbeat.node, time.monotonic()
        if gone:
            self._heartbeats.pop(name, None)
            self._leases.pop(name, None)
        else:
            self._heartbeats[name] = (now_s - heartbeat.age_s, heartbeat.ttl_s)
            self._leases[name] = heartbeat.record
        if (state := self.nodes.get(name)) is not None:
            self._date(state)
            self.table.put(state)

    def lease(self, node: str) -> LeaseRecord | None:
        """The node's placement Lease as the watch shows it, an empty record if there is none; None: nobody watches."""
        if self._leases_watch is None or not self._leases_watch.synced.is_set():
            return None
        return self._leases.get(node) or LeaseRecord()

    def _date(self, state: NodeState) -> None:
        """The younger of both says how old the number is."""
        unknown = (-inf, 0.0)
        dates = self._published.get(state.name, unknown), self._heartbeats.get(state.name, unknown)
        state.published_s, state.ttl_s = max(dates, key=sum)

    def pods_listed(self, pods: list[PodFacts]) -> None:
        now_s = time.monotonic()
        self._waiting = {pod.uid: pod for pod in pods if not pod.node}
        self.ledger.listed(((pod.uid, _place(pod), pod.running) for pod in pods if pod.node), now_s)
        self._refresh_changed(now_s)

    def pod_changed(self, gone: bool, pod: PodFacts) -> None:
        if not pod.node:
            if gone or pod.finished:
                self._waiting.pop(pod.uid, None)
            else:
                self._waiting[pod.uid] = pod
            return
        self._waiting.pop(pod.uid, None)
        seen = PodEvent.SEEN_RUNNING if pod.running else PodEvent.SEEN_BOUND
        self._apply(PodEvent.GONE if gone or pod.finished else seen, pod.uid, _place(pod))

    def waiting(self, uid: str) -> PodFacts | None:
        """A Pod that waits for a node, as the watch shows it; None: it does not, or is too new."""
        return self._waiting.get(uid)

    # ---- places taken before a watch shows them

    def assume(self, pod: PendingPod, node: str, until_s: float) -> None:
        """`pod` is about to be bound to `node`, and nowhere else; released at `until_s` unless that is confirmed."""
        place = Place(node, pod.kind, pod.holds, until_s, cpu=pod.cpu, memory=pod.memory, requested=pod.requested)
        self._apply(PodEvent.ASSUME, pod.uid, place)

    def release(self, uid: str) -> None:
        """The Pod will not be bound where we assumed it."""
        self._apply(PodEvent.RELEASE, uid)

    def accepted(self, uid: str) -> None:
        """The API server has accepted our binding; the watch will show it."""
        self._apply(PodEvent.ACCEPT, uid)

    def without(self, uid: str, state: NodeState) -> NodeState:
        """The node as if this Pod held no place there."""
        place = self.ledger.place(uid)
        if place is None or place.node != state.name:
            return state
        left_cpu, left_memory, left_io, left_network = self._left_without(place, state)
        return replace(
            state,
            left_cpu=left_cpu,
            left_memory=left_memory,
            left_io=left_io,
            left_network=left_network,
            assigned=state.assigned - 1,
            held=state.held - place.holds,
            starting=max(0, state.starting - (place.state is not PodState.RUNNING)),
            cpu_requested=state.cpu_requested - place.cpu,
            memory_requested=state.memory_requested - place.memory,
            unprofiled=max(0, state.unprofiled - (place.kind not in state.known)),
        )

    def _left_without(self, place: Place, state: NodeState) -> Amounts:
        if state.kinds is None:
            return state.left
        one = KindTally(1, int(not place.requested), place.cpu, place.memory)
        return less(state.left, -1.0, self.costs.one_of(state.kinds, place.kind, one, time.monotonic()))

    def bound_to(self, uid: str) -> str:
        """The node that the watch has shown this Pod on; empty: none."""
        place = self.ledger.place(uid)
        return place.node if place is not None and self.ledger.state(uid) in SHOWN else ""

    def knows(self, uid: str, node: str) -> bool:
        """Whether a claim of this Pod on `node` adds nothing: a watch has shown where it is, or it is assumed there."""
        place = self.ledger.place(uid)
        return self.ledger.state(uid) in SHOWN or (place is not None and place.node == node)

    def expire(self, now_s: float) -> None:
        """Ten times a second, and a little each time: release places that nobody confirmed, see which kinds are
        profiled now. A tenth of the nodes where that may be is looked at, so each once a second.

        Why not all nodes at once: with 27,000 Pods that takes 11 ms, and nobody gets an answer meanwhile.
        """
        self.ledger.expire(now_s)
        self._refresh_changed(now_s)
        self._look_again(min(NODES_PER_ROUND, max(LEAST_PER_ROUND, len(self._unsettled) // 10)), now_s)

    def settle(self, now_s: float) -> None:
        """See which kinds are profiled by then, on all nodes at once."""
        self._look_again(len(self._unsettled), now_s)

    def _look_again(self, count: int, now_s: float) -> None:
        for name in list(islice(self._unsettled, count)):
            del self._unsettled[name]
            self._refresh(name, now_s)

    def _apply(self, event: PodEvent, uid: str, place: Place | None = None) -> None:
        now_s = time.monotonic()
        self.ledger.apply(event, uid, now_s, place)
        self._refresh_changed(now_s)

    def _refresh_changed(self, now_s: float) -> None:
        for name in self.ledger.take_changed():
            self._refresh(name, now_s)

    def _refresh(self, name: str, now_s: float) -> None:
        if (state := self.nodes.get(name)) is not None:
            self.ledger.show(state, now_s)
            kinds = state.kinds
            state.left = UNKNOWN if kinds is None else self.costs.left(kinds, self.ledger.kinds(name), now_s)
            self.table.put(state)
            if state.unprofiled or state.starting:
                self._unsettled[name] = None


def _place(pod: PodFacts) -> Place:
    return Place(pod.node, pod.kind, pod.holds, cpu=pod.cpu, memory=pod.memory, requested=pod.requested)
