"""Who spoke last, where, and what that adds up to. No clock, no socket: times are arguments.

Contributions wait in `_pending` (the newest of each node) until `merge` takes them all in at once; that keeps the
answer to a node free of arithmetic.

Several aggregators: each sends the others its own sums, and *claims*: "node x spoke here at its own time t". The node's
own clock decides, so the aggregators' clocks need not agree. Who heard x earlier gives it up; who heard it later
answers with a claim of its own. Claims are numbered, each peer says up to which number it has seen them, so a claim
travels once, a lost message costs nothing, and a new peer begins with all of them.
"""

import time
from dataclasses import dataclass
from itertools import islice

from carico_agent.federation import wire
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.moments import Moments, Sums, add
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.queue import Queue

CLAIM_BYTES = 32_768


@dataclass(slots=True)
class Heard:
    """The last word of one node."""

    time_ns: int
    heard_s: float
    raw: bytes
    magnitude: float
    pods: int
    version: str


@dataclass(slots=True)
class Peer:
    """The last word of another aggregator."""

    incarnation: int
    sequence: int
    sums: Sums
    heard_s: float
    seen_claim: int = 0  # of its claims, we have seen those up to here
    confirmed: int = 0  # of our claims, it has seen those up to here


class Ledger:
    def __init__(
        self, name: str, store: Moments | Queue, max_nodes: int = 20_000, incarnation: int | None = None
    ) -> None:
        self.name = name
        self.incarnation = incarnation if incarnation is not None else time.time_ns()
        self.nodes: dict[str, Heard] = {}
        self.peers: dict[str, Peer] = {}
        self.sums = add([])
        self.own_sums = self.sums
        self.sequence = 0  # of the view
        self._own_sequence = 0  # of what was told here; the others' news must not count as ours, it would echo for ever
        self._store = store
        self._max_nodes = max_nodes
        self._pending: dict[str, Contribution] = {}
        self._claims: dict[str, tuple[int, int]] = {}  # node: (number, time), in the order of numbers
        self._claim_number = 0
        self._own_changed = self._peers_changed = False

    def hear(self, message: pb.Contribution, told: Contribution, raw: bytes, now_s: float) -> None:
        """A node spoke; raises Rejected if it may not."""
        node, time_ns = message.node, message.time_unix_nano
        last = self.nodes.get(node)
        if last is not None and time_ns <= last.time_ns:
            raise Rejected("stale", f"{(last.time_ns - time_ns) / 1e9:.3f} s older than what {node} said last")
        if message.leaving:
            self.drop(node)
            return
        if last is None:
            if len(self.nodes) >= self._max_nodes:
                raise Rejected("full", f"{self._max_nodes} nodes are known already")
            self._claim(node, time_ns)
        self.nodes[node] = Heard(time_ns, now_s, raw, told.subspace.magnitude, told.pods, message.version)
        self._pending[node] = told

    def drop(self, node: str) -> None:
        """`node` left, fell silent or speaks elsewhere."""
        self.nodes.pop(node, None)
        self._pending.pop(node, None)
        self._claims.pop(node, None)
        if node in self._store:
            self._store.drop(node)
            self._own_changed = True

    def expire(self, now_s: float, silence_s: float, peer_silence_s: float) -> list[str]:
        """Take out who was silent for too long; their names."""
        silent = [node for node, heard in self.nodes.items() if now_s - heard.heard_s > silence_s]
        for node in silent:
            self.drop(node)
        gone = [name for name, peer in self.peers.items() if now_s - peer.heard_s > peer_silence_s]
        for name in gone:
            del self.peers[name]
            self._peers_changed = True
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

    # Between aggregators

    def partial(self, to: str = "") -> pb.Partial:
        """What to tell aggregator `to`; an empty name is one not met yet."""
        peer = self.peers.get(to)
        message = pb.Partial(aggregator=self.name, incarnation=self.incarnation, sequence=self._own_sequence)
        wire.write_sums(message, self.own_sums)
        if peer is not None:
            message.seen_incarnation, message.seen_claim = peer.incarnation, peer.seen_claim
            message.claims_to = peer.confirmed
            message.more_claims = False
            room = CLAIM_BYTES
            for node, number, time_ns in self._claims_after(peer.confirmed):
                room -= len(node) + 24
                if room < 0:
                    message.more_claims = True
                    break
                message.claims.add(node=node, time_unix_nano=time_ns)
                message.claims_to = number
        return message

    def take(self, message: pb.Partial, sums: Sums, now_s: float) -> None:
        """Another aggregator spoke; raises Rejected if it is ourselves."""
        if message.aggregator == self.name:
            raise Rejected("self", f"another aggregator is called {self.name} too, or it is this one")
        peer = self.peers.get(message.aggregator)
        if peer is None or peer.incarnation != message.incarnation:
            peer = self.peers[message.aggregator] = Peer(message.incarnation, -1, sums, now_s)
        if message.sequence >= peer.sequence:
            self._peers_changed |= message.sequence != peer.sequence
            peer.sums, peer.sequence, peer.heard_s = sums, message.sequence, now_s
        if message.seen_incarnation == self.incarnation:
            peer.confirmed = max(peer.confirmed, message.seen_claim)
        for claim in message.claims:
            self._hear_claim(message.aggregator, claim.node, claim.time_unix_nano)
        peer.seen_claim = max(peer.seen_claim, message.claims_to)

    def _hear_claim(self, aggregator: str, node: str, time_ns: int) -> None:
        mine = self.nodes.get(node)
        if mine is None:
            return
        if (time_ns, aggregator) > (mine.time_ns, self.name):
            self.drop(node)
        elif self._claims[node][1] <= time_ns:  # they may not know that it spoke here since
            self._claim(node, mine.time_ns)

    def _claim(self, node: str, time_ns: int) -> None:
        self._claim_number += 1
        self._claims.pop(node, None)
        self._claims[node] = (self._claim_number, time_ns)

    def _claims_after(self, number: int) -> list[tuple[str, int, int]]:
        newest: list[tuple[str, int, int]] = []
        for node, (mine, time_ns) in reversed(self._claims.items()):
            if mine <= number:
                break
            newest.append((node, mine, time_ns))
        newest.reverse()
        return newest
