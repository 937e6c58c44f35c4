"""The local API on a unix socket, and on TCP where configured.

The sockets are bound when it is opened, so that an agent that cannot listen does not start; they are served when it
runs, when every part has added its routes.
"""

import logging
from collections.abc import Mapping

from carico_agent.lib.net.address import naming, split
from carico_agent.lib.net.tls import TlsFiles, server_context
from carico_agent.node.publish.publisher import PublisherContext
from carico_agent.node.publish.status_routes import status_routes
from carico_agent.settings import ListenSettings

log = logging.getLogger(__name__)


class SocketPublisher:
    name = "socket"
    counters: Mapping[str, int] = {}

    def __init__(self, context: PublisherContext) -> None:
        self._http, self._settings = context.http, context.settings()
        self._serving = False

    async def open(self) -> None:
        """Bind; raises OSError when that cannot work, LookupError for a group that does not exist."""
        await self._http.bind_unix(self._settings.socket_path, self._settings.socket.group)
        try:
            await self._bind_tcp(self._settings.listen)
        except OSError:
            await self._http.stop()  # no dead socket stays behind
            raise

    async def _bind_tcp(self, listen: ListenSettings) -> None:
        if listen.address:
            tls = server_context(TlsFiles(listen.tls_cert, listen.tls_key, listen.tls_ca)) if listen.tls_cert else None
            with naming("listen.address"):
                await self._http.bind_tcp(*split(listen.address), tls)
            log.info("also listening on %s, %s", listen.address, "with TLS" if tls else "for reading only")

    @property
    def condition(self) -> str:
        return "listening" if self._serving else "not listening yet"

    async def run(self) -> None:
        await self._http.serve()
        self._serving = True

    async def stop(self) -> None:
        self._serving = False
        await self._http.stop()


async def open_publisher(context: PublisherContext) -> SocketPublisher:
    context.http.add(status_routes(context.latest))
    publisher = SocketPublisher(context)
    await publisher.open()
    return publisher
