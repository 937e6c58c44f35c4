"""What an aggregator answers: each node gets the latest view at once; merging happens beside the calls (*CARICO*, 4.3).

No socket and no gRPC here: messages come in and go out as bytes. Why bytes: the view is the same for every node, so it
is serialised once per merge and not once per answer.
"""

import logging
import time
from dataclasses import dataclass, field

from carico_agent.federation import peers, wire, wire_workloads
from carico_agent.federation.contribution import MAX_NAME_CHARS, Rejected
from carico_agent.federation.contributions import ContributionTable
from carico_agent.federation.exchange import view_moved
from carico_agent.federation.fits import answer_fit
from carico_agent.federation.moments import Moments
from carico_agent.federation.pairwise_merge import PairwiseMerge
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.settings import AggregatorSettings

log = logging.getLogger(__name__)

COMPLETE_AFTER_S = 4.0
"""After a start the nodes get this long to come back before a smaller view replaces the one they hold."""
MAX_LOGGED = 100
STATUS_S = 1.0
"""A status or fit reply is made at most once in this time: 1,000 nodes in it take 5 ms."""
MAX_CACHED_FITS = 64
MAX_VIEW_WORKLOADS = 256
VIEW_WORKLOAD_BYTES = 65_536
PUSHED = pb.View(pushed=True).SerializeToString()


class NotAllowed(Exception):
    """The caller's certificate is not one that may do this."""


@dataclass(slots=True)
class Rejections:
    """How often, why, and who last."""

    by_reason: dict[str, pb.Reject] = field(default_factory=dict)
    _logged: set[tuple[str, str]] = field(default_factory=set)

    def count(self, node: str, error: Rejected) -> None:
        entry = self.by_reason.setdefault(error.reason, pb.Reject(reason=error.reason))
        entry.count += 1
        entry.last_node, entry.last_detail = node[:MAX_NAME_CHARS], error.detail[:200]
        if (node, error.reason) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add((node, error.reason))
            log.warning("rejected %.80r: %s", node, error)


class Aggregator:
    """The calls, and what they share. `identity` is the name in the caller's certificate; None without TLS."""

    def __init__(self, settings: AggregatorSettings, name: str) -> None:
        self.settings = settings
        store = PairwiseMerge() if settings.method == "pairwise" else Moments()
        self.table = ContributionTable(name, store, settings.max_nodes)
        self.peers = [peers.PeerConnection(address, self.table, settings) for address in settings.peers]
        self.rejections = Rejections()
        self.exchanges = self.streams = self.pushes = self.refused_connections = 0
        self.merge_s = 0.0
        self.started_s = time.monotonic()
        self._complete = False
        self._pushed = self.table.sums
        self._pushed_complete = False
        self._view = self._unchanged = self._workloads = b""
        self._status: tuple[float, bytes] = (float("-inf"), b"")
        self._fits: dict[tuple[str, int], tuple[float, bytes]] = {}
        self.render()

    # Calls

    def exchange(self, raw: bytes, identity: str | None) -> bytes:
        """Take one contribution and give the latest view; never waits, never raises."""
        self.exchanges += 1
        node = identity or "?"
        try:
            message, given, workloads = wire.read_contribution(raw, self.table.last_workloads)
            node = message.node
            if identity is not None and node != identity:
                raise Rejected("identity", f"the certificate of {identity} does not speak for {node}")
            skew_s = message.time_unix_nano / 1e9 - time.time()
            if abs(skew_s) > self.settings.max_skew_s:
                raise Rejected("time", f"{skew_s:+.0f} s from our clock")
            kept = raw if self.settings.state else b""
            self.table.apply(message, given, workloads, kept, time.monotonic())
        except Rejected as error:
            self.rejections.count(node, error)
            # Two messages one after the other are one merged message: protobuf's own rule.
            return self._view + pb.View(rejected=str(error)[:300]).SerializeToString()
        if message.seen_incarnation != self.table.incarnation:
            return self._view + self._workloads
        view = self._unchanged if message.seen_sequence == self.table.sequence else self._view
        return view if message.seen_workloads == self.table.workloads_sequence else view + self._workloads

    def share(self, raw: bytes, identity: str | None) -> bytes:
        """Take another aggregator's sums and give ours; raises NotAllowed or Rejected."""
        if identity is not None and identity not in self.settings.tls_peer_names:
            self.rejections.count(identity, Rejected("peer", "its certificate is not one of tls_peer_names"))
            raise NotAllowed("not one of tls_peer_names")
        try:
            message, sums, workloads = wire.read_partial(raw)
            self.table.apply_partial(message, sums, workloads, time.monotonic())
        except Rejected as error:
            self.rejections.count(identity or "a peer", error)
            raise
        return self.table.partial(message.aggregator).SerializeToString()

    def status(self) -> bytes:
        """The status, at most STATUS_S old: a client that asks often costs nothing."""
        made_s, raw = self._status
        if time.monotonic() - made_s > STATUS_S:
            raw = self.report(max_nodes=1000).SerializeToString()
            self._status = time.monotonic(), raw
        return raw

    def fit(self, raw: bytes) -> bytes:
        """How many more Pods of a workload fit on the nodes here, at most STATUS_S old; raises Rejected."""
        try:
            request = pb.FitRequest.FromString(raw)
        except ValueError as error:  # DecodeError is one
            raise Rejected("decode", str(error)) from error
        key, now_s = (request.workload[:MAX_NAME_CHARS], request.max_nodes), time.monotonic()
        if key not in self._fits or now_s - self._fits[key][0] > STATUS_S:
            if len(self._fits) >= MAX_CACHED_FITS:
                self._fits.clear()
            nodes = ((name, record.workloads) for name, record in self.table.nodes.items())
            reply = answer_fit(key[0], nodes, self.table.workloads, request.max_nodes)
            reply.nodes_elsewhere = self.table.sums.nodes - self.table.own_sums.nodes
            self._fits[key] = now_s, reply.SerializeToString()
        return self._fits[key][1]

    def report(self, max_nodes: int) -> pb.StatusReply:
        now_s, table = time.monotonic(), self.table
        reply = pb.StatusReply(
            aggregator=table.name,
            up_s=now_s - self.started_s,
            method=self.settings.method,
            view=pb.View.FromString(self._view),
            local_nodes=len(table.nodes),
            streams=self.streams,
            exchanges=self.exchanges,
            rejects=self.rejections.by_reason.values(),
            peers=peers.report(self.peers, table, now_s),
        )
        for node, record in list(table.nodes.items())[:max_nodes]:
            reply.nodes.add(
                node=node,
                age_s=now_s - record.received_s,
                magnitude=record.magnitude,
                pods=record.pods,
                version=record.version,
            )
        return reply

    # Beside the calls

    def render(self) -> None:
        """Serialise the view everybody gets until the next merge."""
        about = pb.View(
            sequence=self.table.sequence,
            incarnation=self.table.incarnation,
            aggregator=self.table.name,
            incomplete=not self._complete,
            silence_s=self.settings.silence_s,
        )
        unchanged = pb.View(unchanged=True)
        unchanged.MergeFrom(about)
        self._unchanged = unchanged.SerializeToString()
        self._view = wire.write_view(self.table.sums, self.settings.rank or None, about)

    def render_workloads(self) -> None:
        """Serialise the workloads that are sent to nodes with older ones."""
        table = wire_workloads.write_table(
            self.table.workloads, self.table.workloads_sequence, MAX_VIEW_WORKLOADS, VIEW_WORKLOAD_BYTES
        )
        self._workloads = pb.View(workloads=table).SerializeToString()

    def merge(self) -> None:
        """Compute the view anew if anything was received."""
        started_s = time.monotonic()
        if self.table.merge():
            self.render()
        self.merge_s = time.monotonic() - started_s

    def take_push(self) -> bool:
        """Whether the view has changed noticeably since this was last true."""
        if self._pushed_complete == self._complete and not view_moved(self._pushed, self.table.sums):
            return False
        self._pushed, self._pushed_complete = self.table.sums, self._complete
        return True

    def pushed_view(self) -> bytes:
        return self._view + PUSHED

    def expire(self, now_s: float) -> None:
        """Take out nodes and peers that were silent for too long."""
        gone = self.table.expire(now_s, self.settings.silence_s, self.settings.peer_silence_s)
        if gone:
            log.info("silent, taken out: %s%s", ", ".join(gone[:5]), " …" if len(gone) > 5 else "")
        if not self._complete and now_s - self.started_s > min(COMPLETE_AFTER_S, self.settings.silence_s / 2):
            self.complete()

    def complete(self) -> None:
        """The nodes had time to contribute, or were known from before: the view is that of the whole cluster."""
        self._complete = True
        self.render()
