"""The last contribution of each node, which aggregator holds it, and the sums over all. Times are arguments.

Contributions wait in `_pending` (the newest of each node) until `merge` takes them all in at once; that keeps the
answer to a node free of arithmetic.

Several aggregators: each sends the others its own sums and the nodes it *owns*: "node x contributed here at its own
time t". The node's own clock decides, so the aggregators' clocks need not agree. The aggregator that received x earlier
gives it up; the one that received it later answers with an entry of its own. Entries are numbered, and each peer
acknowledges the highest number it has seen, so an entry travels once, a lost message costs nothing, and a new peer
begins with all.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from carico_agent.federation import wire, wire_workloads
from carico_agent.federation.cluster_workloads import MAX_WORKLOADS, ClusterWorkloads, combine, differ, merge_nodes
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.moments import Moments, Sums, add
from carico_agent.federation.owned import OwnedNodes
from carico_agent.federation.pairwise_merge import PairwiseMerge
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.workloads import ReportedWorkloads

OWNED_BYTES = WORKLOAD_BYTES = 24_576
"""Of owned nodes and of workloads in one message between aggregators, which may have 64 kB."""


@dataclass(slots=True)
class NodeContribution:
    """The last contribution of one node."""

    time_ns: int
    """By the node's own clock."""
    received_s: float
    raw: bytes
    """As it was received, for the state file; empty where there is none."""
    magnitude: float
    pods: int
    version: str
    workloads: ReportedWorkloads | None


@dataclass(slots=True)
class PeerRecord:
    """The last partial sums of another aggregator."""

    incarnation: int
    sequence: int
    sums: Sums
    received_s: float
    workloads: ClusterWorkloads = field(default_factory=ClusterWorkloads)
    seen_owned: int = 0  # of the nodes it owns, we have seen the entries up to here
    confirmed: int = 0  # of the nodes we own, it has seen the entries up to here


class ContributionTable:
    def __init__(
        self, name: str, store: Moments | PairwiseMerge, max_nodes: int = 20_000, incarnation: int | None = None
    ) -> None:
        self.name = name
        self.incarnation = incarnation if incarnation is not None else time.time_ns()
        self.nodes: dict[str, NodeContribution] = {}
        self.peers: dict[str, PeerRecord] = {}
        self.sums = add([])
        self.own_sums = self.sums
        self.sequence = 0  # of the view
        self.workloads = ClusterWorkloads()
        self.own_workloads = ClusterWorkloads()
        self.workloads_sequence = 0
        self._workloads_changed = self._peer_workloads_changed = False
        # Of the nodes here; the peers' changes must not count as ours, they would echo without end
        self._own_sequence = 0
        self._store = store
        self._max_nodes = max_nodes
        self._pending: dict[str, Contribution] = {}
        self._owned = OwnedNodes()
        self._own_changed = self._peers_changed = False

    def apply(
        self,
        message: pb.Contribution,
        given: Contribution,
        workloads: ReportedWorkloads | None,
        raw: bytes,
        now_s: float,
    ) -> None:
        """A node's contribution replaces its last one; raises Rejected if it may not. `raw`: for the state file."""
        node, time_ns = message.node, message.time_unix_nano
        last = self.nodes.get(node)
        if last is not None and time_ns <= last.time_ns:
            raise Rejected("stale", f"{(last.time_ns - time_ns) / 1e9:.3f} s older than the last one of {node}")
        if message.leaving:
            self.drop(node)
            return
        if last is None:
            if len(self.nodes) >= self._max_nodes:
                raise Rejected("full", f"{self._max_nodes} nodes are known already")
            self._owned.put(node, time_ns)
        before = last.workloads.digest if last is not None and last.workloads is not None else b""
        self._workloads_changed |= before != (workloads.digest if workloads is not None else b"")
        magnitude = given.subspace.magnitude
        self.nodes[node] = NodeContribution(
            time_ns, now_s, raw, magnitude, given.pods, sys.intern(message.version), workloads
        )
        self._pending[node] = given

    def last_workloads(self, node: str) -> ReportedWorkloads | None:
        record = self.nodes.get(node)
        return record.workloads if record is not None else None

    def drop(self, node: str) -> None:
        """`node` left, fell silent or contributes elsewhere."""
        record = self.nodes.pop(node, None)
        self._workloads_changed |= record is not None and record.workloads is not None
        self._pending.pop(node, None)
        self._owned.drop(node)
        if node in self._store:
            self._store.drop(node)
            self._own_changed = True

    def expire(self, now_s: float, silence_s: float, peer_silence_s: float) -> list[str]:
        """Take out who was silent for too long; their names."""
        silent = [node for node, record in self.nodes.items() if now_s - record.received_s > silence_s]
        for node in silent:
            self.drop(node)
        gone = [name for name, peer in self.peers.items() if now_s - peer.received_s > peer_silence_s]
        for name in gone:
            del self.peers[name]
            self._peers_changed = self._peer_workloads_changed = True
        return silent + gone

    def absorb(self, most: int) -> bool:
        """Take in at most so many of those that wait; whether more do. In pieces, so that no answer waits for long."""
        for node in list(islice(self._pending, most)):
            self._store.put(node, self._pending.pop(node))
            self._own_changed = True
        return bool(self._pending)

    def merge(self) -> bool:
        """Take in what waits and compute the sums anew; False if nothing changed."""
        self.absorb(len(self._pending))
        if self._own_changed:
            self.own_sums = self._store.sums()
            self._own_sequence += 1
        elif not self._peers_changed:
            return False
        self._own_changed = self._peers_changed = False
        self.sums = add([self.own_sums, *(peer.sums for peer in self.peers.values())])
        self.sequence += 1
        return True

    def merge_workloads(self) -> Iterator[bool]:
        """Merge the workloads anew if a node's or a peer's changed: False between pieces of work, True if they are
        new."""
        if self._workloads_changed:
            self._workloads_changed, self._peer_workloads_changed = False, True
            for step in merge_nodes(
                [record.workloads for record in self.nodes.values() if record.workloads is not None]
            ):
                self.own_workloads = step or self.own_workloads
                yield False
        if self._peer_workloads_changed:
            self._peer_workloads_changed = False
            merged = combine([self.own_workloads, *(peer.workloads for peer in self.peers.values())])
            if differ(self.workloads, merged):
                self.workloads = merged
                self.workloads_sequence += 1
                yield True

    # Between aggregators

    def partial(self, to: str = "") -> pb.Partial:
        """What to send to aggregator `to`; an empty name is one not met yet."""
        peer = self.peers.get(to)
        message = pb.Partial(aggregator=self.name, incarnation=self.incarnation, sequence=self._own_sequence)
        wire.write_sums(message, self.own_sums)
        message.workloads.CopyFrom(
            wire_workloads.write_table(self.own_workloads, self.workloads_sequence, MAX_WORKLOADS, WORKLOAD_BYTES)
        )
        if peer is not None:
            message.seen_incarnation, message.seen_owned = peer.incarnation, peer.seen_owned
            message.owned_to = peer.confirmed
            message.more_owned = False
            room = OWNED_BYTES
            for node, number, time_ns in self._owned.after(peer.confirmed):
                room -= len(node) + 24
                if room < 0:
                    message.more_owned = True
                    break
                message.owned.add(node=node, time_unix_nano=time_ns)
                message.owned_to = number
        return message

    def apply_partial(self, message: pb.Partial, sums: Sums, workloads: ClusterWorkloads, now_s: float) -> None:
        """Another aggregator's sums replace its last ones; raises Rejected if it is ourselves."""
        if message.aggregator == self.name:
            raise Rejected("self", f"another aggregator is called {self.name} too, or it is this one")
        peer = self.peers.get(message.aggregator)
        if peer is None or peer.incarnation != message.incarnation:
            peer = self.peers[message.aggregator] = PeerRecord(message.incarnation, -1, sums, now_s)
        if message.sequence >= peer.sequence:
            self._peers_changed |= message.sequence != peer.sequence
            peer.sums, peer.sequence, peer.received_s = sums, message.sequence, now_s
            self._peer_workloads_changed |= differ(peer.workloads, workloads)
            peer.workloads = workloads
        if message.seen_incarnation == self.incarnation:
            peer.confirmed = max(peer.confirmed, message.seen_owned)
        for entry in message.owned:
            self._apply_owned(message.aggregator, entry.node, entry.time_unix_nano)
        peer.seen_owned = max(peer.seen_owned, message.owned_to)

    def _apply_owned(self, aggregator: str, node: str, time_ns: int) -> None:
        mine = self.nodes.get(node)
        if mine is None:
            return
        if (time_ns, aggregator) > (mine.time_ns, self.name):
            self.drop(node)
        elif self._owned.time_ns(node) <= time_ns:  # they may not know that it contributed here since
            self._owned.put(node, mine.time_ns)
