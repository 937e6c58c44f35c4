"""The HTTP server of every daemon: HTTP/1.1 and JSON, on a unix socket or TCP. Every error is JSON.

Why aiohttp's low-level server and not web.Application: one dictionary is all the routing this needs, and a request
then costs about a third less (`make bench`, requests per second).
"""

import asyncio
import json
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from carico_agent import __version__
from carico_agent.lib.net import metrics
from carico_agent.lib.net.acceptor import Acceptor, Identify, MakeProtocol, bind_tcp
from carico_agent.lib.net.connections import Held, HeldConnections
from carico_agent.lib.net.handshake import SmallTls
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.local_peers import is_foreign_host
from carico_agent.lib.net.openapi import describe, described
from carico_agent.lib.net.peers import peer_of, peer_with_certificate
from carico_agent.lib.net.sockets import bind_unix

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]
"""Path → method → handler (marked with its `Operation`). The last segment may be "{id}" (`request_id` gives
what stood there) or "{path}", which also matches several segments (`request_tail`)."""

MAX_BODY_BYTES = 64 * 1024
WRITE_DEADLINE_S = 30.0
FIRST_REQUEST_S = 30.0
"""A client that has connected and asks nothing within this is disconnected [s]."""


class ApiError(Exception):
    """An answer other than 2xx, with a message for humans and optional facts for machines."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.status, self.headers, self.facts = status, headers, facts

    def response(self) -> web.Response:
        return answer({"error": str(self), "status": self.status, **self.facts}, self.status, self.headers)


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    encoded = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return web.Response(body=encoded, status=status, content_type="application/json", headers=headers)


def answer_metrics(families: Iterable[metrics.Family]) -> web.Response:
    """The body of /metrics."""
    return web.Response(body=metrics.render(families).encode(), headers={"Content-Type": metrics.CONTENT_TYPE})


def request_id(request: web.BaseRequest) -> str:
    return request.path.rpartition("/")[2]


def request_tail(request: web.BaseRequest, prefix: str) -> str:
    """What stood at "{path}"."""
    return request.path.removeprefix(prefix)


async def read_json(request: web.BaseRequest, max_bytes: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most `max_bytes`."""
    parts, size = [], request.content_length or 0
    if size <= max_bytes:
        size = 0
        async for chunk in request.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                break
    if size > max_bytes:
        raise ApiError(413, f"the body is larger than {max_bytes} bytes")
    try:
        value = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    return value


async def stream_lines(request: web.BaseRequest, next_line: Callable[[], Awaitable[bytes]]) -> web.StreamResponse:
    """One JSON line per call of `next_line`, for as long as the client listens."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await response.prepare(request)
    try:
        while True:
            line = await next_line()
            await asyncio.wait_for(response.write(line + b"\n"), WRITE_DEADLINE_S)
    except (TimeoutError, ConnectionError):
        return response  # gone, or has not read for half a minute: neither is our trouble


class _Connection(RequestHandler):
    """One client. aiohttp's own errors (broken HTTP, a bug in a handler) as JSON too."""

    __slots__ = ("_first", "counted", "held", "owner", "peer")
    owner: "_Server"
    held: Held
    peer: Peer
    counted: bool
    _first: asyncio.TimerHandle | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.owner.closed:  # accepted in the very moment of the stop: no other code would end it
            transport.close()
            return
        self.peer = peer_with_certificate(self.held.origin, transport)
        self.counted = self.owner.limiter.connect(self.peer)
        if self.counted:
            self._first = asyncio.get_running_loop().call_later(FIRST_REQUEST_S, transport.close)
        else:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(TOO_MANY)
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.asked()
        self.held.release()
        if self.counted:
            self.owner.limiter.disconnect(self.peer)
        super().connection_lost(exc)

    def asked(self) -> None:
        """There is a request, or no need to wait for one."""
        if self._first is not None:
            self._first.cancel()
            self._first = None

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("%s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        text = (message or "bad request").splitlines()[0] if status < 500 else "internal error, see the agent's log"
        response = ApiError(status, text).response()
        response.force_close()
        return response


_BUSY = b'{"error":"too many connections of this client","status":503}\n'
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_BUSY)
) + _BUSY


def peer(request: web.BaseRequest) -> Peer:
    """Who asks, by the kernel's word."""
    return _connection(request).peer


def _connection(request: web.BaseRequest) -> _Connection:
    protocol = request.protocol
    assert isinstance(protocol, _Connection)
    return protocol


class _Server(web.Server):
    limiter: RateLimiter
    closed = False

    def serve(self, held: Held) -> _Connection:
        connection = _Connection(self, loop=self._loop, **self._kwargs)
        connection.owner, connection.held, connection.counted, connection._first = self, held, False, None
        return connection


class HttpServer:
    """Serves `routes` on a unix socket, and on TCP if asked to, within the limits of `limiter`."""

    def __init__(
        self,
        routes: Routes,
        limiter: RateLimiter | None = None,
        read_bytes: int = 64 * 1024,
        identify: Identify = peer_of,
    ) -> None:
        """`read_bytes` of a body are taken in before its reader must have looked at them. `identify`: who a connection
        is, for the limits and for the handlers (`peer`); with TLS a client's certificate is asked after that."""
        self._routes: dict[str, Mapping[str, Handler]] = {"/v1/openapi.json": {"GET": self._openapi}}
        self.add(routes)
        self.limiter = limiter or RateLimiter(Limits(0, 0))
        self.accepted = HeldConnections(self.limiter)
        """All connections by where they come from, from accept on: a certificate is known after the handshake only."""
        self._identify = identify
        self._acceptors: list[Acceptor] = []
        self._http = _Server(self._handle, access_log=None, read_bufsize=read_bytes)
        self._http.limiter = self.limiter
        self._path: Path | None = None

    def add(self, routes: Routes) -> None:
        """More routes. Two handlers for one path are a mistake of ours."""
        if double := self._routes.keys() & routes.keys():
            raise ValueError(f"there is a handler for {', '.join(sorted(double))} already")
        self._routes.update(routes)

    def readable(self) -> dict[str, Handler]:
        """Path → handler of all that may be read by every client that can connect."""
        found = {path: methods["GET"] for path, methods in self._routes.items() if "GET" in methods}
        return {path: handler for path, handler in found.items() if described(handler).needs == "read"}

    @property
    def port(self) -> int:
        """The TCP port that was bound first."""
        names = [one.listener.getsockname() for one in self._acceptors]
        return next(int(name[1]) for name in names if isinstance(name, tuple))

    async def bind_unix(self, path: Path, group: str = "", mode: int = 0o660, replace: bool = False) -> None:
        """Take the unix socket; clients wait in its queue until `serve`."""
        listener = bind_unix(path, group, mode=mode, replace=replace)
        self._path = path
        self._acceptors.append(Acceptor(listener, self.accepted, self._identify, self._http.serve))

    async def bind_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Take a TCP address, for `serve`. TLS connections are counted before they shake hands."""

        def encrypted(held: Held) -> asyncio.BaseProtocol:
            assert tls is not None
            return SmallTls(self._http.serve(held), tls, held.release)

        protocol: MakeProtocol = encrypted if tls is not None else self._http.serve
        for listener in await bind_tcp(host, port):
            self._acceptors.append(Acceptor(listener, self.accepted, self._identify, protocol, tls is not None))

    async def serve(self) -> None:
        """Answer on everything that is bound. Returns at once."""
        for acceptor in self._acceptors:
            acceptor.start()

    async def start(self, path: Path, group: str = "") -> None:
        await self.bind_unix(path, group)
        await self.serve()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        await self.bind_tcp(host, port, tls)
        await self.serve()

    async def stop(self) -> None:
        self._http.closed = True
        for acceptor in self._acceptors:
            acceptor.close()
        if self._acceptors:
            await self._http.shutdown(timeout=1.0)
        if self._path is not None:
            with suppress(OSError):  # gone, or a folder in its place: the next start says so
                self._path.unlink()

    async def _openapi(self, request: web.BaseRequest) -> web.StreamResponse:
        """this description"""
        return answer(describe(self._routes, __version__))

    def _find(self, path: str) -> Mapping[str, Handler] | None:
        """The path itself, or the nearest "…/{id}" or "…/{path}" above it."""
        if (exact := self._routes.get(path)) is not None:
            return exact
        above = path.rpartition("/")[0]
        found = self._routes.get(f"{above}/{{id}}")
        while found is None and above:
            found = self._routes.get(f"{above}/{{path}}")
            above = above.rpartition("/")[0]
        return found

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        methods = self._find(request.path)
        _connection(request).asked()
        try:
            if wait_s := self.limiter.request(peer(request), time.monotonic()):
                raise ApiError(429, "too many requests", {"Retry-After": str(math.ceil(wait_s))})
            if is_foreign_host(request):
                raise ApiError(403, "on loopback this answers under 127.0.0.1, [::1] and localhost only")
            if methods is None:
                raise ApiError(404, f"no such path: {request.path}", paths=sorted(self._routes))
            if request.method not in methods:
                allowed = ", ".join(sorted(methods))
                raise ApiError(405, f"{request.path} takes {allowed}, not {request.method}", {"Allow": allowed})
            handler = methods[request.method]
            _check_right(handler, peer(request))
            return await handler(request)
        except ApiError as error:
            return error.response()


def _check_right(handler: Handler, who: Peer) -> None:
    needs = described(handler).needs
    if needs == "root" and not who.trusted:
        raise ApiError(403, f"for root and the agent's own user only, not for {who.name}")
    if needs == "reserve" and not who.may_reserve:
        raise ApiError(403, f"for the unix socket or a client certificate only, not for {who.name}")
