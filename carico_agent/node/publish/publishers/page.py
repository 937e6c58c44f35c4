"""The page for people on an address of its own, where `[page] listen` asks for it; see carico_agent/lib/page."""

import logging
from collections.abc import Mapping
from typing import Any

from carico_agent.lib.net.address import is_loopback, naming, split
from carico_agent.lib.net.http import ApiError, HttpServer
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.tls import TlsFiles, server_context
from carico_agent.lib.page.access import read_token
from carico_agent.lib.page.files import READ_PATHS, page_routes
from carico_agent.node.publish.publisher import PublisherContext
from carico_agent.node.publish.status import as_json

log = logging.getLogger(__name__)


class PagePublisher:
    """Bound when it is opened, served when all parts have added their routes."""

    name = "page"

    def __init__(self, context: PublisherContext) -> None:
        self._context, settings = context, context.settings()
        self._settings = settings.page
        self._token = read_token(self._settings.token_file) if self._settings.token_file else ""
        limits = Limits(settings.clients.connections, settings.clients.requests_per_s)
        self._http = HttpServer({}, RateLimiter(limits))
        self._serving = False

    async def open(self) -> None:
        """Bind; raises OSError when that cannot work."""
        page = self._settings
        tls = server_context(TlsFiles(page.tls_cert, page.tls_key)) if page.tls_cert else None
        with naming("page.listen"):
            await self._http.bind_tcp(*split(page.listen), tls)
        log.info("the page: %s://%s/", "https" if tls else "http", page.listen)

    @property
    def condition(self) -> str:
        return f"at {self._settings.listen}" if self._serving else "not listening yet"

    @property
    def counters(self) -> dict[str, int]:
        return {"refused": sum(self._http.limiter.refused.values())}

    async def run(self) -> None:
        if not self._serving:
            readable = self._context.http.readable()
            api = {path: readable[path] for path in READ_PATHS if path in readable}
            loopback = is_loopback(split(self._settings.listen)[0])
            self._http.add(page_routes(api, self._status, self._token, loopback))
            await self._http.serve()
        self._serving = True

    async def _status(self) -> Mapping[str, Any]:
        latest = self._context.latest
        if not latest.sequence:
            raise ApiError(503, "no sample yet; look again in a second")
        return as_json(await latest.current()) | {"age_s": latest.age_s}

    async def stop(self) -> None:
        self._serving = False
        await self._http.stop()


async def open_publisher(context: PublisherContext) -> PagePublisher | None:
    if not context.settings().page.listen:
        return None
    publisher = PagePublisher(context)
    await publisher.open()
    return publisher
