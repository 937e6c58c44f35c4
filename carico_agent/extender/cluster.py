"""What the extender knows: every node's published number, and who holds a place where.

The watches (`watches.py`) call it with what nodes publish (`published.py`) and with the Pods that are bound. A number
is as young as the younger of its Node object and its placement Lease: an agent without a Lease writes its Node object
again instead.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Protocol

from carico_agent.extender.node_record import NEVER, Dated, NodeRecord, NodeRecords
from carico_agent.extender.nodes import NodeState, NodeTable, PendingPod
from carico_agent.extender.placement.ledger import Ledger
from carico_agent.extender.placement.lifecycle import SHOWN, PodEvent, PodState
from carico_agent.extender.placement.place import Place
from carico_agent.extender.published import PublishedNode, SeenLease
from carico_agent.extender.train_jobs import TrainWork
from carico_agent.extender.watches import ClusterWatches
from carico_agent.extender.workload_costs import ClusterCosts, WorkloadTally, less
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.placement_lease import EXTENDERS_LEASES, LeaseRecord
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import UNKNOWN, Amounts
from carico_agent.lib.net.times import boottime_s

NODES_PER_ROUND = 100
"""Nodes with unprofiled or starting Pods that are refreshed in one go, at most."""
MIN_PER_ROUND = 10
"""As many are, if there are so many."""


class ClusterListener(Protocol):
    """Is told what the watches show, after the cluster has taken note of it, in the API server's order."""

    def lease_seen(self, gone: bool, lease: SeenLease) -> None: ...

    def pod_bound(self, uid: str, node: str, name: str) -> None:
        """A Pod that waited is on a node."""


class Cluster:
    """Nodes and places: one `NodeRecord` for each node, and its indexes. Times are monotonic seconds."""

    def __init__(
        self,
        client: KubeClient,
        resource: str = "",
        lease_namespace: str = "",
        listener: ClusterListener | None = None,
    ) -> None:
        """`lease_namespace`: of the placement Leases; empty: there are none."""
        self._listener = listener
        self._records = NodeRecords()
        self.nodes: dict[str, NodeState] = {}  # index: of the records with a Node object
        self.table = NodeTable()  # index: their numbers as columns, see _refresh
        self.ledger = Ledger(nodes=self._records)  # index: Pods by UID
        self.costs = ClusterCosts()  # index: nodes by workload
        self._to_refresh: dict[str, None] = {}  # index: with unprofiled or starting Pods, refreshed longest ago first
        self._extenders_leases: set[str] = set()  # Leases in the same namespace that are of no node
        self._waiting: dict[str, PodFacts] = {}  # Pods without a node, by UID
        self._news, self._changes = asyncio.Event(), 0
        self.watches = ClusterWatches(client, self, resource, lease_namespace)

    async def run(self) -> None:
        """All watches, until it is cancelled."""
        await self.watches.run()

    @property
    def health(self) -> Health:
        return self.watches.health

    @property
    def synced(self) -> bool:
        """Whether every watch has listed its objects once."""
        return self.watches.synced

    def blind_s(self) -> float:
        """For how long bindings have not been seen [s]: the watch of Pods is closed, or it is open and does not show
        what the API server has accepted."""
        return max(self.watches.pods.closed_s(), self.ledger.longest_s(PodState.ACCEPTED, boottime_s()))

    async def news(self, within_s: float) -> bool:
        """Wait until something changes that a policy may look at; False: nothing did within that time."""
        before = self._changes
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()
        return self._changes != before  # counted: others wait, too, and clear the event; and it may come at the end

    # ---- what the watches see

    def nodes_listed(self, nodes: list[PublishedNode]) -> None:
        names = {node.name for node in nodes}
        for name in [name for name in self.nodes if name not in names]:
            self.node_changed(True, PublishedNode(name))
        for node in nodes:
            self.node_changed(False, node)

    def node_changed(self, gone: bool, node: PublishedNode) -> None:
        if gone:
            self._node_gone(node.name)
            return
        now_s, record = boottime_s(), self._records.of(node.name)
        self.nodes[node.name] = state = record.state
        record.exists, record.published = True, Dated(now_s - node.age_s, node.ttl_s)
        record.date()
        state.places, state.pod_capacity = node.places, node.pod_capacity
        state.prior_places, state.resource, state.rise = 2 * node.cores, node.resource, node.rise
        state.cpu, state.memory, state.workloads = node.cpu, node.memory, node.workloads
        self.costs.put(node.name, node.workloads, boottime_s())
        state.work_jobs, state.work_s, state.run_s = node.work.jobs, node.work.left_s, node.work.run_s
        state.lefts_s, state.at_limit = node.work.lefts_s, node.work.at_limit
        state.contention_s, state.expected_contention_s = node.work.contention_s, node.work.expected_contention_s
        self._refresh(node.name, now_s)

    def _node_gone(self, name: str) -> None:
        if self.nodes.pop(name, None) is None:
            return
        self.table.drop(name)
        self.costs.put(name, None)
        record = self._records.of(name)
        record.exists, record.published, record.state = False, NEVER, NodeState(name)
        self.ledger.drop(name)

    def take_train_work(self, found: Mapping[str, TrainWork]) -> None:
        """The work left of Kubeflow TrainJobs, on all nodes that have any."""
        now_s = boottime_s()
        for name, state in self.nodes.items():
            work = found.get(name, TrainWork())
            if (state.train_pods, state.train_s) != (work.pods, work.work_s):
                state.train_pods, state.train_s = work.pods, work.work_s
                self._refresh(name, now_s)

    def leases_listed(self, leases: list[SeenLease]) -> None:
        names = {one.name for one in leases}
        for name in [*self._records.with_lease(), *self._extenders_leases]:
            if name not in names:
                self.lease_changed(True, SeenLease(name))
        # The leader's own Lease last: what it shows has then been seen of all others.
        for one in sorted(leases, key=lambda one: one.of_extenders is not None):
            self.lease_changed(False, one)

    def lease_changed(self, gone: bool, lease: SeenLease) -> None:
        name = lease.name
        if name in EXTENDERS_LEASES:
            (self._extenders_leases.discard if gone else self._extenders_leases.add)(name)
        elif gone:
            self._lease_gone(name)
        else:
            record = self._records.of(name)
            record.lease, record.renewed = lease.record, Dated(boottime_s() - lease.age_s, lease.ttl_s)
            self._show_date(record)
        if self._listener is not None:
            self._listener.lease_seen(gone, lease)

    def _lease_gone(self, name: str) -> None:
        if (record := self._records.find(name)) is not None:
            record.lease, record.renewed = None, NEVER
            self._show_date(record)
            self._records.drop_unused(name)

    def _show_date(self, record: NodeRecord) -> None:
        record.date()
        if record.exists:
            self.table.put(record.state)

    def lease(self, node: str) -> LeaseRecord:
        """The node's placement Lease as the watch shows it; an empty record if there is none, or none is watched."""
        record = self._records.find(node)
        return LeaseRecord() if record is None or record.lease is None else record.lease

    def pods_listed(self, pods: list[PodFacts]) -> None:
        now_s = boottime_s()
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
        if self._waiting.pop(pod.uid, None) is not None and self._listener is not None:
            self._listener.pod_bound(pod.uid, pod.node, f"{pod.namespace}/{pod.name}")
        seen = PodEvent.SEEN_RUNNING if pod.running else PodEvent.SEEN_BOUND
        self._apply(PodEvent.GONE if gone or pod.finished else seen, pod.uid, _place(pod))

    def waiting(self, uid: str) -> PodFacts | None:
        """A Pod that waits for a node, as the watch shows it; None: it does not, or is too new."""
        return self._waiting.get(uid)

    # ---- places taken before a watch shows them

    def assume(self, pod: PendingPod, node: str, until_s: float) -> None:
        """`pod` is about to be bound to `node`, and nowhere else; released at `until_s` unless that is confirmed."""
        place = Place(node, pod.workload, pod.holds, until_s, cpu=pod.cpu, memory=pod.memory, requested=pod.requested)
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
            unprofiled=max(0, state.unprofiled - (place.workload not in state.known)),
        )

    def _left_without(self, place: Place, state: NodeState) -> Amounts:
        if state.workloads is None:
            return state.left
        one = WorkloadTally(1, int(not place.requested), place.cpu, place.memory)
        return less(state.left, -1.0, self.costs.one_of(state.workloads, place.workload, one, boottime_s()))

    def bound_to(self, uid: str) -> str:
        """The node that the watch has shown this Pod on; empty: none."""
        place = self.ledger.place(uid)
        return place.node if place is not None and self.ledger.state(uid) in SHOWN else ""

    def knows(self, uid: str, node: str) -> bool:
        """Whether a placement of this Pod on `node` adds nothing to what is counted there: a watch has shown where it
        is, or it is assumed there."""
        place = self.ledger.place(uid)
        return self.ledger.state(uid) in SHOWN or (place is not None and place.node == node)

    def expire(self, now_s: float) -> None:
        """Ten times a second, and a little each time: release unconfirmed places, see which workloads are
        profiled now. A tenth of the nodes where that may be is looked at, so each once a second.

        Why not all nodes at once: with 27,000 Pods that takes 11 ms, and no request is answered meanwhile.
        """
        self.ledger.expire(now_s)
        self._refresh_changed(now_s)
        self._refresh_due(min(NODES_PER_ROUND, max(MIN_PER_ROUND, len(self._to_refresh) // 10)), now_s)

    def refresh_all(self, now_s: float) -> None:
        """See which workloads are profiled by then, on all nodes at once."""
        self._refresh_due(len(self._to_refresh), now_s)

    def _refresh_due(self, count: int, now_s: float) -> None:
        for name in list(islice(self._to_refresh, count)):
            del self._to_refresh[name]
            self._refresh(name, now_s)

    def _apply(self, event: PodEvent, uid: str, place: Place | None = None) -> None:
        now_s = boottime_s()
        self.ledger.apply(event, uid, now_s, place)
        self._refresh_changed(now_s)

    def _refresh_changed(self, now_s: float) -> None:
        for name in self.ledger.take_changed():
            self._refresh(name, now_s)

    def _refresh(self, name: str, now_s: float) -> None:
        if (state := self.nodes.get(name)) is not None:
            self.ledger.show(state, now_s)
            workloads = state.workloads
            state.left = (
                UNKNOWN if workloads is None else self.costs.left(workloads, self.ledger.workloads(name), now_s)
            )
            self.table.put(state)
            self._changes += 1
            self._news.set()
            if state.unprofiled or state.starting:
                self._to_refresh[name] = None


def _place(pod: PodFacts) -> Place:
    return Place(pod.node, pod.workload, pod.holds, cpu=pod.cpu, memory=pod.memory, requested=pod.requested)
