"""TLS of an accepted connection, in little memory.

Why not asyncio's own TLS server: each of its connections has a buffer of 256 kB from the first byte on, and 1,400 idle
ones took 464 MB. A TLS record has 16 kB at most, so a buffer of that size loses nothing. It also makes a connection
known only when its handshake has ended; here it is counted from accept on (connections.py).
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable

HANDSHAKE_S = 5
RECORD_BYTES = 16 * 1024


class SmallTls(SSLProtocol):
    """Shakes hands as a server and then serves `protocol`; calls `gone` when the connection has ended, also when there
    was no handshake."""

    max_size = RECORD_BYTES

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, gone: Callable[[], None]) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            protocol,
            context,
            None,  # type: ignore[arg-type]  # no one waits for the end of the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
        )
        self._gone = gone

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._gone()
