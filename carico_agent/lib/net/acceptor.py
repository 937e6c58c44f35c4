"""Accepts the connections of one listening socket, and decides about each before it costs anything.

Why not asyncio's own server: it makes a transport and a protocol of whatever comes. A single process that connected and
closed 4,900 times a second took 89 % of a core from the agent, and sampling fell to 2 Hz. Here a refused connection
costs one accept and one close, and when many are refused the listener rests: the kernel's queue then holds the rest
back, for 50 ms at a time.
"""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable

from carico_agent.lib.net.connections import Held, HeldConnections
from carico_agent.lib.net.limits import Peer
from carico_agent.lib.net.sockets import BACKLOG

log = logging.getLogger(__name__)

BATCH = 256
"""Connections that are accepted before others of this process have their turn: 5,000 a second of a flood."""
MAX_REFUSED = BATCH // 4
"""Refused of a batch; with more the listener rests."""
REST_S = 0.05
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""accept(2): this process or the machine has no descriptors or memory left."""
EXHAUSTED_REST_S = 1.0

Identify = Callable[[socket.socket], Peer]
MakeProtocol = Callable[[Held], asyncio.BaseProtocol]


async def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Listening sockets of all addresses that `host` has. OSError if one is taken."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            made.append(listener := socket.socket(family, kind, number))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in made:
            listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return made


class Acceptor:
    """Hands every connection that may be served to a protocol, in the running event loop."""

    def __init__(
        self,
        listener: socket.socket,
        connections: HeldConnections,
        identify: Identify,
        protocol: MakeProtocol,
        tls: bool = False,
    ) -> None:
        self.listener, self._connections, self._identify = listener, connections, identify
        self._protocol, self._tls = protocol, tls
        self._waiting: dict[Held, asyncio.TimerHandle] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._serving = self._exhausted = False

    def start(self) -> None:
        """Clients wait in the kernel's queue until this is called."""
        if not self._serving:
            self._serving = True
            asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def close(self) -> None:
        """No more connections. Those that are served go on."""
        if self._serving:
            asyncio.get_running_loop().remove_reader(self.listener)
            self._serving = False
        if self._rest is not None:
            self._rest.cancel()
        self.listener.close()
        for held, timer in list(self._waiting.items()):
            timer.cancel()
            held.abort()
            held.release()
        self._waiting.clear()

    def _accept(self) -> None:
        refused = 0
        for _ in range(BATCH):
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._on_exhausted(error)
                return
            refused += not self._take(connection)
        self._exhausted = False
        if refused > MAX_REFUSED:
            self._rest_for(REST_S)

    def _on_exhausted(self, error: OSError) -> None:
        if not self._exhausted:
            log.error("no connection can be accepted: %s", error)
        self._exhausted = True
        self._rest_for(EXHAUSTED_REST_S)

    def _rest_for(self, rest_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listener)
        self._rest = loop.call_later(rest_s, self._resume)

    def _resume(self) -> None:
        if self._serving:
            asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _take(self, connection: socket.socket) -> bool:
        try:
            origin = self._identify(connection)
        except OSError:  # reset before we looked
            connection.close()
            return False
        admitted = self._connections.admit(origin, time.monotonic(), self._tls)
        if admitted is None:
            connection.close()
            return False
        held, wait_s = admitted
        if wait_s:
            held.abort = connection.close
            timer = asyncio.get_running_loop().call_later(wait_s, self._start, connection, held)
            self._waiting[held] = timer
        else:
            self._start(connection, held)
        return True

    def _start(self, connection: socket.socket, held: Held) -> None:
        self._waiting.pop(held, None)
        if connection.fileno() < 0:  # ended while it waited, to make room for another one
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection, held))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _connect(self, connection: socket.socket, held: Held) -> None:
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(held), connection
            )
        except OSError:
            connection.close()
            held.release()
            return
        held.abort = transport.abort
