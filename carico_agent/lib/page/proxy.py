"""The page for one user: its files, and what it reads forwarded to an agent's unix socket.

Why a proxy and not a port of the agent: the agent then listens nowhere, and who may read is decided by the socket's
rights as before. Only GET of the paths the page needs is forwarded, without body and the client's headers, and of the
query only `after`.
"""

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, HttpServer
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.page.files import READ_PATHS, page_routes

LIMITS = Limits(connections=128, requests_per_s=200.0)
MAX_STATUS_BYTES = 4 * 2**20
CONNECT_S, ANSWER_S = 3.0, 60.0


class PageProxy:
    """Serves the page at a loopback address until it is left."""

    def __init__(self, socket_path: str, token: str) -> None:
        self._path = socket_path
        handlers: dict[str, Handler] = dict.fromkeys(READ_PATHS, self._forward)
        self._http = HttpServer(page_routes(handlers, self._status, token), RateLimiter(LIMITS))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(self._path, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, workload: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._http.stop()

    async def listen(self, host: str, port: int) -> int:
        """Serve there; the port, which the kernel chooses for 0. Raises OSError when it is taken."""
        await self._http.listen(host, port)
        return self._http.port

    async def _status(self) -> Mapping[str, Any]:
        try:
            async with self._session.get("http://localhost/v1/status") as given:
                body: Mapping[str, Any] = json.loads(await given.content.read(MAX_STATUS_BYTES))
                if given.status != 200:
                    raise ApiError(given.status, str(body.get("error")))
                return body
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._unavailable(error) from error

    async def _forward(self, request: web.BaseRequest) -> web.StreamResponse:
        """forwarded to the agent"""
        try:
            async with self._session.get(f"http://localhost{request.path}", params=_query(request)) as given:
                response = web.StreamResponse(
                    status=given.status, headers={"Content-Type": given.content_type, "Cache-Control": "no-store"}
                )
                await response.prepare(request)
                await _copy(given, response)
                return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> ApiError:
        return ApiError(502, f"no agent answers on {self._path} ({error}); is `carico agent` running?")


def _query(request: web.BaseRequest) -> dict[str, str]:
    """Of the query only what the page uses."""
    return {key: request.query[key] for key in ("after",) if key in request.query}


async def _copy(given: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
    """Each piece as it comes: a stream's line must not wait for the next one. Either end may leave at any time; the
    browser notices and asks again."""
    try:
        async for piece in given.content.iter_any():
            await response.write(piece)
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        response.force_close()
