"""The aggregator: answers each node with the latest view at once; merging happens beside the calls (paper 000, 4.3).

Why bytes and no generated service: the view is the same for every node, so it is serialised once per merge and not
once per answer. Why our own HTTP/2: see http2.py.
"""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from carico_agent.federation import peers, state, wire
from carico_agent.federation.call import Method
from carico_agent.federation.contribution import MOST_NAME_CHARS, Rejected
from carico_agent.federation.frames import INVALID_ARGUMENT, PERMISSION_DENIED, CallError
from carico_agent.federation.ledger import Ledger
from carico_agent.federation.listener import Listener
from carico_agent.federation.moments import Moments
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.queue import Queue
from carico_agent.net.address import check
from carico_agent.net.tls import TlsFiles
from carico_agent.settings import AggregatorSettings
from carico_agent.supervise.tasks import Supervisor

log = logging.getLogger(__name__)

MERGE_SHARE = 0.05
PIECE = 100
"""Contributions taken in at a time: about 1 ms."""
SETTLE_S = 4.0
LOGGED_REJECTS = 100
STREAMS = 1000
"""Calls at a time on one connection; a node needs one."""


@dataclass(slots=True)
class Refusals:
    """How often, why, and who last."""

    by_reason: dict[str, pb.Reject] = field(default_factory=dict)
    _logged: set[tuple[str, str]] = field(default_factory=set)

    def note(self, node: str, error: Rejected) -> None:
        count = self.by_reason.setdefault(error.reason, pb.Reject(reason=error.reason))
        count.count += 1
        count.last_node, count.last_detail = node[:MOST_NAME_CHARS], error.detail[:200]
        if (node, error.reason) not in self._logged and len(self._logged) < LOGGED_REJECTS:
            self._logged.add((node, error.reason))
            log.warning("rejected %.80r: %s", node, error)


class AggregatorServer:
    """The calls, and what they share. Made by `serve`."""

    def __init__(self, settings: AggregatorSettings, name: str) -> None:
        self.settings = settings
        self.tls = TlsFiles.mutual(settings.tls_ca, settings.tls_cert, settings.tls_key)
        check(settings.listen, self.tls is not None, settings.allow_plaintext)
        self.ledger = Ledger(name, Queue() if settings.method == "queue" else Moments(), settings.max_nodes)
        self.refusals = Refusals()
        self.exchanges = 0
        self.merge_s = 0.0
        self.started_s = time.monotonic()
        self.listener: Listener | None = None
        self.links: list[peers.PeerLink] = []
        self._settled = False
        self._view = b""
        self.render()

    # Calls

    def answer(self, raw: bytes, identity: str | None) -> bytes:
        """Take one contribution and give the latest view; never waits, never raises."""
        self.exchanges += 1
        node = identity or "?"
        try:
            message, told = wire.read_contribution(raw)
            node = message.node
            if identity is not None and node != identity:
                raise Rejected("identity", f"the certificate of {identity} does not speak for {node}")
            skew_s = message.time_unix_nano / 1e9 - time.time()
            if abs(skew_s) > self.settings.max_skew_s:
                raise Rejected("time", f"{skew_s:+.0f} s from our clock")
            self.ledger.hear(message, told, raw, time.monotonic())
        except Rejected as error:
            self.refusals.note(node, error)
            # Two messages one after the other are one merged message: protobuf's own rule.
            return self._view + pb.View(rejected=str(error)[:300]).SerializeToString()
        return self._view

    def share(self, raw: bytes, identity: str | None) -> bytes:
        """Hear another aggregator's sums and give ours."""
        if identity is not None and identity not in self.settings.tls_peer_names:
            self.refusals.note(identity, Rejected("peer", "its certificate is not one of tls_peer_names"))
            raise CallError(PERMISSION_DENIED, "not one of tls_peer_names")
        try:
            message, sums = wire.read_partial(raw)
            self.ledger.take(message, sums, time.monotonic())
        except Rejected as error:
            self.refusals.note(identity or "a peer", error)
            raise CallError(INVALID_ARGUMENT, str(error)) from error
        return self.ledger.partial(message.aggregator).SerializeToString()

    def status(self, raw: bytes, identity: str | None) -> bytes:
        return self.report(most_nodes=1000).SerializeToString()

    def report(self, most_nodes: int) -> pb.StatusReply:
        now_s, ledger = time.monotonic(), self.ledger
        reply = pb.StatusReply(
            aggregator=ledger.name,
            up_s=now_s - self.started_s,
            method=self.settings.method,
            view=pb.View.FromString(self._view),
            local_nodes=len(ledger.nodes),
            streams=self.listener.calls if self.listener else 0,
            exchanges=self.exchanges,
            rejects=self.refusals.by_reason.values(),
            peers=peers.report(self.links, ledger, now_s),
        )
        for node, heard in list(ledger.nodes.items())[:most_nodes]:
            reply.nodes.add(
                node=node,
                age_s=now_s - heard.heard_s,
                magnitude=heard.magnitude,
                pods=heard.pods,
                version=heard.version,
            )
        return reply

    # Beside the calls

    def render(self) -> None:
        """Serialise the view everybody gets until the next merge."""
        about = pb.View(
            sequence=self.ledger.sequence,
            incarnation=self.ledger.incarnation,
            aggregator=self.ledger.name,
            settling=not self._settled,
            silence_s=self.settings.silence_s,
        )
        self._view = wire.write_view(self.ledger.sums, self.settings.rank or None, about)

    async def merge_for_ever(self) -> None:
        expire_at_s = 0.0
        while True:
            started_s = time.monotonic()
            if started_s >= expire_at_s:
                self._expire(started_s)
                expire_at_s = started_s + min(1.0, self.settings.silence_s / 4)
            while self.ledger.absorb(PIECE):
                await asyncio.sleep(0)
            started_s = time.monotonic()
            if self.ledger.merge():
                self.render()
            self.merge_s = time.monotonic() - started_s
            await asyncio.sleep(max(self.settings.merge_period_s, self.merge_s / MERGE_SHARE))

    def _expire(self, now_s: float) -> None:
        gone = self.ledger.expire(now_s, self.settings.silence_s, self.settings.peer_silence_s)
        if gone:
            log.info("silent, taken out: %s%s", ", ".join(gone[:5]), " …" if len(gone) > 5 else "")
        if not self._settled and now_s - self.started_s > min(SETTLE_S, self.settings.silence_s / 2):
            self.settle()
        if self.listener is not None:
            self.listener.drop_idle(max(2 * self.settings.silence_s, 30.0))

    def settle(self) -> None:
        """The nodes had time to speak (or were known from before): the view means what it says."""
        self._settled = True
        self.render()

    def listen(self) -> Listener:
        """Raises OSError if it cannot."""
        path = f"/{wire.SERVICE}/".encode()
        methods = {
            path + b"Exchange": Method(self.answer),
            path + b"Stream": Method(self.answer, stream=True),
            path + b"Share": Method(self.share),
            path + b"Status": Method(self.status),
        }
        s = self.settings
        self.listener = Listener(
            s.listen,
            self.tls,
            methods,
            s.max_message_bytes,
            s.max_connections,
            STREAMS,
            lambda reason, text: self.refusals.note("a connection", Rejected(reason, text)),
        )
        return self.listener


async def serve(settings: AggregatorSettings, ready: Callable[[str], None] | None = None) -> None:
    """Run an aggregator until SIGTERM, SIGINT or cancellation. `ready` gets the address it listens on.

    Raises BadAddress (a ValueError) or OSError if it cannot listen.
    """
    name = settings.name or f"{socket.gethostname()}/{settings.listen}"
    aggregator = AggregatorServer(settings, name)
    listener = aggregator.listen()
    if settings.state and state.load(settings.state, aggregator.ledger, settings.silence_s):
        aggregator.ledger.merge()
        aggregator.settle()
    supervisor = Supervisor()
    supervisor.start("accept", listener.accept_for_ever)
    supervisor.start("merge", aggregator.merge_for_ever)
    for link in (peers.PeerLink(peer, aggregator.ledger, settings) for peer in settings.peers):
        aggregator.links.append(link)
        supervisor.start(f"peer {link.address}", link.run)
    if settings.state:
        supervisor.start("state", lambda: state.save_for_ever(settings.state, aggregator.ledger))
    if settings.http:
        from carico_agent.federation.metrics import serve_http  # aiohttp only if somebody asked for it

        supervisor.start("http", lambda: serve_http(settings.http, aggregator))
    log.info("aggregator %s listens on %s%s", name, listener.address, "" if aggregator.tls else ", plaintext")
    stop = _stop_on_signals()
    try:
        if ready is not None:
            ready(listener.address)
        await stop.wait()
    finally:
        await supervisor.stop()
        listener.close()
        if settings.state:
            state.save(settings.state, aggregator.ledger)
        await asyncio.sleep(0)  # the goodbyes go out


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
