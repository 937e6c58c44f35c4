"""TLS connections are counted from accept on, not from the end of their handshake.

Why: asyncio's own TLS server makes a connection known when its handshake has ended. Whoever never ends it is counted
by nobody and held for a minute: 300 such connections stood open at a limit of 10.
"""

import asyncio
import ssl
from collections.abc import Callable

from carico_agent.lib.net.limits import Peer, RateLimiter
from carico_agent.lib.net.peers import peer_of

HANDSHAKE_S = 5.0


class TlsAcceptor(asyncio.Protocol):
    """One accepted connection: it takes a place among its address's, shakes hands, and becomes `protocol`."""

    def __init__(
        self, protocol: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext], limiter: RateLimiter
    ) -> None:
        self._make, self._context, self._limiter = protocol, context, limiter
        self._address: Peer | None = None
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        address = peer_of(transport)
        if not self._limiter.connect(address):
            transport.abort()
            return
        transport.pause_reading()
        self._shaking = asyncio.get_running_loop().create_task(self._shake_hands(transport, address))

    async def _shake_hands(self, transport: asyncio.Transport, address: Peer) -> None:
        protocol = self._make()
        inner = _Counted(protocol, lambda: self._limiter.disconnect(address))
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport, inner, self._context(), server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError:  # also ssl.SSLError, ConnectionError and TimeoutError: nobody to talk to
            transport.abort()
            self._limiter.disconnect(address)
            return
        if encrypted is None:  # closed while it was shaking hands
            self._limiter.disconnect(address)
            return
        encrypted.set_protocol(inner)
        inner.connection_made(encrypted)


class _Counted(asyncio.Protocol):
    """`protocol`, and a call when its connection has gone."""

    def __init__(self, protocol: asyncio.Protocol, gone: Callable[[], None]) -> None:
        self._protocol, self._gone = protocol, gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone()
        self._protocol.connection_lost(error)
