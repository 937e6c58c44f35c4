"""gRPC in front of an Aggregator: who calls, how much they may ask for, and which streams get pushed views.

What gRPC's C core enforces (OPTIONS): sizes of messages and headers, calls per connection, number of connections,
handshakes that never end, idle connections, pings. What is enforced here: calls and messages per peer, streams that
fall silent, and connections of one address that never get to a call (net/accepted.py). A peer is the name in its
certificate; without TLS no client has a name, and each connection counts alone.
A stream that sends too fast is read more slowly, so that HTTP/2's flow control holds it back and nothing piles up here.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from carico_agent.federation.aggregator import Aggregator, NotAllowed
from carico_agent.federation.channel import same
from carico_agent.federation.contribution import Rejected
from carico_agent.federation.credentials import server_credentials
from carico_agent.federation.wire import SERVICE
from carico_agent.lib.net.accepted import Accepted, accepted, excess, in_use, shut_down
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.sockets import clear_stale
from carico_agent.lib.net.tls import TlsFiles
from carico_agent.settings import AggregatorSettings

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Answer = Callable[[bytes, str | None], bytes]

CALLS_PER_CONNECTION = 16
"""A node needs one, and another while it reconnects."""
AGE_MS = 3_600_000
"""A connection ends after an hour, give or take a tenth: a withdrawn certificate is not believed for longer."""
PINGS_MS = 20_000
PUSH_SHARE = 0.1
PUSH_S = 2e-4
"""Pushing takes at most this share of a core, at 0.2 ms of CPU time each: to 5,000 streams at most every 10 s. In
between a view travels with the answers."""
MIN_PUSH_PERIOD_S = 1.0
SCAN_SHARE = 0.02
"""Looking for connections that never make a call takes at most this share of a core: where 10,000 sockets are open,
every 2.5 s."""
PUSH_PIECE = 10
"""Streams at a time: answers wait no longer than these take. 2,000 at once made the slowest answers wait 270 ms."""


def options(settings: AggregatorSettings) -> list[tuple[str, int]]:
    """What gRPC's C core enforces for every connection."""
    return [
        ("grpc.so_reuseport", 0),  # a second aggregator on the same port is an error and not half a cluster
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_metadata_size", 4096),
        ("grpc.absolute_max_metadata_size", 8192),
        ("grpc.server_handshake_timeout_ms", int(1000 * settings.handshake_s)),
        ("grpc.max_connection_idle_ms", int(1000 * idle_limit_s(settings))),
        ("grpc.max_connection_age_ms", AGE_MS),
        ("grpc.max_connection_age_grace_ms", 5_000),
        ("grpc.http2.min_ping_interval_without_data_ms", PINGS_MS),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


def idle_limit_s(settings: AggregatorSettings) -> float:
    """A stream or connection without a message for this long is closed [s]; its node was taken out before."""
    return max(2 * settings.silence_s, 5.0)


def push_period_s(streams: int) -> float:
    """Least time between two pushes to so many streams [s]."""
    return max(MIN_PUSH_PERIOD_S, streams * PUSH_S / PUSH_SHARE)


class NodeStream:
    """One open Stream call. Writes are taken in turn: an answer and a pushed view may fall together."""

    __slots__ = ("_context", "_turn", "expired", "received_s", "task")

    def __init__(self, context: Context, now_s: float) -> None:
        self._context, self._turn = context, asyncio.Lock()
        self.task = asyncio.current_task()
        self.received_s = now_s
        self.expired = False

    @property
    def is_writing(self) -> bool:
        return self._turn.locked()

    async def write(self, raw: bytes) -> None:
        async with self._turn:
            await self._context.write(raw)

    async def push(self, raw: bytes) -> None:
        try:
            await self.write(raw)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            return  # it has just ended; its handler tidies up

    def expire(self) -> None:
        self.expired = True
        if self.task is not None:
            self.task.cancel()


class AggregatorServer:
    """`start` listens, `push` sends a view to all streams, `expire` ends those that are silent, `stop` ends it all."""

    def __init__(self, aggregator: Aggregator, tls: TlsFiles | None) -> None:
        settings = aggregator.settings
        self.aggregator = aggregator
        self.limiter = RateLimiter(Limits(settings.peer_calls, settings.peer_messages_per_s))
        self._tls = None if settings.listen.startswith("unix:") else tls
        self._streams: set[NodeStream] = set()
        self._pushing: set[asyncio.Task[None]] = set()
        self._called: set[str] = set()  # connections (as gRPC names them) that have made a call
        self._scan_at_s = 0.0
        self._port = 0  # of TCP
        self._idle_s = idle_limit_s(settings)
        self._server: grpc.aio.Server | None = None

    def _make_server(self) -> grpc.aio.Server:
        """Must run inside the event loop, to which grpc.aio binds a server when it is made."""
        aggregator, settings = self.aggregator, self.aggregator.settings
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        handlers = {
            "Exchange": unary(self._unary(aggregator.exchange), same, same),
            "Stream": stream(self._stream, same, same),
            "Share": unary(self._unary(aggregator.share), same, same),
            "Status": unary(self._unary(lambda raw, identity: aggregator.status()), same, same),
            "Fit": unary(self._unary(lambda raw, identity: aggregator.fit(raw)), same, same),
        }
        server = grpc.aio.server(
            options=options(settings), maximum_concurrent_rpcs=settings.max_connections + CALLS_PER_CONNECTION
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server

    async def start(self) -> str:
        """Listen; the address it has. Raises OSError if it cannot."""
        listen = self.aggregator.settings.listen
        path = Path(listen[5:]) if listen.startswith("unix:") else None
        if path is not None:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            clear_stale(path)
        server = self._server = self._make_server()
        before = os.umask(0o117)  # a unix socket has its rights from the first moment on
        try:
            if self._tls is None:
                port = server.add_insecure_port(listen)
            else:
                port = server.add_secure_port(listen, server_credentials(self._tls))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {listen}: is it taken, or no address of this machine?") from error
        finally:
            os.umask(before)
        await server.start()
        self._port = 0 if path is not None else port
        return listen if path is not None else f"{listen.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        for task in self._pushing:
            task.cancel()
        if self._server is not None:
            await self._server.stop(0.2)

    # Calls

    def _caller(self, context: Context) -> tuple[Peer, str | None]:
        if self._port and self.aggregator.settings.address_connections:
            self._called.add(context.peer())
        return caller(context)

    def _unary(self, answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def call(raw: bytes, context: Context) -> bytes:
            peer, identity = self._caller(context)
            if wait_s := self.limiter.request(peer, time.monotonic()):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many calls; again in {wait_s:.1f} s")
            try:
                return answer(raw, identity)
            except NotAllowed as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            except Rejected as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("abort raises")

        return call

    async def _stream(self, requests: object, context: Context) -> None:
        peer, identity = self._caller(context)
        if not self.limiter.connect(peer):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many streams of {peer.name}")
        stream = NodeStream(context, time.monotonic())
        self._streams.add(stream)
        self.aggregator.streams = len(self._streams)
        try:
            await self._serve(stream, context, peer, identity)
        except asyncio.CancelledError:
            if not stream.expired:
                raise  # the node is gone
            stream.task.uncancel() if stream.task else None
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no message for {self._idle_s:g} s")
        finally:
            self._streams.discard(stream)
            self.aggregator.streams = len(self._streams)
            self.limiter.disconnect(peer)

    async def _serve(self, stream: NodeStream, context: Context, peer: Peer, identity: str | None) -> None:
        while isinstance(raw := await context.read(), bytes):  # else grpc.aio.EOF
            now_s = time.monotonic()
            while wait_s := self.limiter.request(peer, now_s):
                await asyncio.sleep(wait_s)
                now_s = time.monotonic()
            stream.received_s = now_s
            await stream.write(self.aggregator.exchange(raw, identity))

    # Beside the calls

    async def push(self, view: Callable[[], bytes]) -> None:
        """Send the view to all streams that get no answer meanwhile, spread over the whole period: each gets it as it
        is in that moment."""
        started_s = time.monotonic()
        for count, stream in enumerate(list(self._streams), start=1):
            if stream.received_s < started_s and not stream.is_writing and stream in self._streams:
                task = asyncio.create_task(stream.push(view()))
                self._pushing.add(task)
                task.add_done_callback(self._pushing.discard)
                self.aggregator.pushes += 1
            if count % PUSH_PIECE == 0:
                await asyncio.sleep(PUSH_PIECE * PUSH_S / PUSH_SHARE)
        await asyncio.sleep(started_s + push_period_s(len(self._streams)) - time.monotonic())

    def expire(self, now_s: float) -> None:
        """End streams without a message for too long, whether their nodes are silent or do not read answers."""
        for stream in list(self._streams):
            if now_s - stream.received_s > self._idle_s and not stream.expired:
                stream.expire()

    async def limit_addresses(self, now_s: float) -> None:
        """End connections of an address that has too many which have not made a call yet: they never finish their
        handshake, or have nothing to ask."""
        most = self.aggregator.settings.address_connections
        if not most or not self._port or now_s < self._scan_at_s:
            return
        open_now = in_use()
        if open_now - len(self._streams) <= most and len(self._called) <= 2 * (open_now + most):
            return
        called = set(self._called)
        connections, cpu_s = await asyncio.to_thread(_scan, self._port)
        self._called -= called - {one.peer for one in connections}
        waiting = [one for one in connections if one.peer not in self._called]
        self.aggregator.refused_connections += shut_down(excess(waiting, most))
        self._scan_at_s = now_s + cpu_s / SCAN_SHARE


def _scan(port: int) -> tuple[list[Accepted], float]:
    """The connections to this port, and what it took to find them [CPU s]."""
    started_s = time.thread_time()
    return accepted(port), time.thread_time() - started_s


def caller(context: Context) -> tuple[Peer, str | None]:
    """Who calls: for the limits, and the name in the certificate (None without TLS, "" if it has no single name)."""
    found: dict[str, Any] = context.auth_context()  # type: ignore[assignment]  # grpc-stubs: Mapping[str, Iterable[bytes]]
    if found.get("transport_security_type") != [b"ssl"]:
        address = context.peer()
        return Peer(address, trusted=address.startswith("unix:")), None
    names = found.get("x509_common_name", [])
    identity = node_name(names[0].decode(errors="replace")) if len(names) == 1 else ""
    return Peer(f"certificate {identity}"), identity


def node_name(common_name: str) -> str:
    """The node a certificate speaks for; "system:node:" is Kubernetes' way to write a node's.

    >>> node_name("system:node:worker-1")
    'worker-1'
    """
    return common_name.removeprefix("system:node:")
