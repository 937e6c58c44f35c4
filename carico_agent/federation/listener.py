"""Accepts connections: so many and no more, with the certificates of the moment, and drops those that say nothing."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from carico_agent.federation.call import Method
from carico_agent.federation.channel import server_context
from carico_agent.federation.http2 import Connection
from carico_agent.net.address import split
from carico_agent.net.sockets import bind_unix
from carico_agent.net.tls import TlsFiles

log = logging.getLogger(__name__)

GREETING_S = 10.0
BACKLOG = 4096


class Listener:
    """The listening socket and its connections."""

    def __init__(
        self,
        address: str,
        tls: TlsFiles | None,
        methods: Mapping[bytes, Method],
        message_bytes: int,
        most: int,
        streams: int,
        refused: Callable[[str, str], None],
    ) -> None:
        self._tls = None if address.startswith("unix:") else tls
        self._make = lambda: Connection(methods, message_bytes, streams, self.connections.discard)
        self._most, self._refused = most, refused
        self._handshakes: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()
        if self._tls is not None:
            self._print = self._tls.fingerprint()
            self._context = server_context(self._tls)
        self._socket, self.address = _bind(address)

    @property
    def calls(self) -> int:
        return sum(connection.open_calls for connection in self.connections)

    async def accept_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # out of descriptors, or the client is gone already
                log.warning("cannot accept: %s", error)
                await asyncio.sleep(0.1)
                continue
            if len(self.connections) + len(self._handshakes) >= self._most:
                self._refused("connections", f"{self._most} are open")
                client.close()
            elif self._tls is None:
                await self._welcome(client, None)
            else:
                task = asyncio.create_task(self._welcome(client, self._fresh_context()))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)

    async def _welcome(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, connection = await loop.connect_accepted_socket(
                self._make, client, ssl=context, ssl_handshake_timeout=GREETING_S if context else None
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._refused("tls" if context else "connections", str(error))
            client.close()
            return
        if not transport.is_closing():  # gone before we noticed that it came
            self.connections.add(connection)

    def _fresh_context(self) -> ssl.SSLContext:
        """The certificates as they are now; a broken new one does not replace a good old one."""
        assert self._tls is not None
        try:
            seen = self._tls.fingerprint()
            if seen != self._print:
                self._context = server_context(self._tls)
                self._print = seen
                log.info("certificates: read again, they changed")
        except OSError as error:
            log.warning("certificates: keeping the old ones: %s", error)
        return self._context

    def drop_idle(self, idle_s: float) -> None:
        """Close connections without a whole message for long, or not even a hello, and those that do not read."""
        now_s = time.monotonic()
        for connection in list(self.connections):
            quiet_s = idle_s if connection.greeted else min(idle_s, GREETING_S)
            if now_s - min(connection.heard_s, connection.stalled_s or now_s) > quiet_s:
                connection.close(text="idle")

    def close(self) -> None:
        self._socket.close()
        for connection in list(self.connections):
            connection.close(text="stopping")


def _bind(address: str) -> tuple[socket.socket, str]:
    """A listening socket and the address it has; raises OSError."""
    try:
        if address.startswith("unix:"):
            return bind_unix(Path(address[5:]), backlog=BACKLOG), address
        host, port = split(address)
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
    except OSError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening, f"{address.rpartition(':')[0]}:{listening.getsockname()[1]}"
