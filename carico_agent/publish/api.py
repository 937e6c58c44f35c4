"""The local API: HTTP/1.1 and JSON over a unix socket. Every error is JSON, none is a traceback.

Why aiohttp's low-level server and not web.Application: one dictionary is all the routing this needs, and a request
then costs about a third less (`make bench`, requests per second).
"""

import asyncio
import json
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from carico_agent import __version__
from carico_agent.publish.board import Board
from carico_agent.publish.limits import Client, Gate, Limits
from carico_agent.publish.openapi import LINES, Operation, describe, described, operation
from carico_agent.publish.peers import client_of
from carico_agent.supervise.sockets import bind_unix

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]
"""Path → method → handler (marked with its `Operation`). The last segment may be "{id}": `request_id` gives
what stood there."""

MOST_BODY_BYTES = 64 * 1024
WRITE_DEADLINE_S = 30.0


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


def request_id(request: web.BaseRequest) -> str:
    return request.path.rpartition("/")[2]


async def read_json(request: web.BaseRequest, most_bytes: int = MOST_BODY_BYTES) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most `most_bytes`."""
    parts, size = [], request.content_length or 0
    if size <= most_bytes:
        size = 0
        async for chunk in request.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > most_bytes:
                break
    if size > most_bytes:
        raise ApiError(413, f"the body is larger than {most_bytes} bytes")
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

    __slots__ = ("client", "entered", "gate")
    gate: Gate
    client: Client
    entered: bool

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = client_of(transport)
        self.entered = self.gate.enter(self.client)
        if not self.entered:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(TOO_MANY)
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.entered:
            self.gate.leave(self.client)
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("%s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        said = (message or "bad request").splitlines()[0] if status < 500 else "internal error, see the agent's log"
        response = ApiError(status, said).response()
        response.force_close()
        return response


_BUSY = b'{"error":"too many connections of this client","status":503}\n'
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_BUSY)
) + _BUSY


def client(request: web.BaseRequest) -> Client:
    """Who asks, by the kernel's word."""
    protocol = request.protocol
    assert isinstance(protocol, _Connection)
    return protocol.client


class _Server(web.Server):
    gate: Gate

    def __call__(self) -> RequestHandler:
        connection = _Connection(self, loop=self._loop, **self._kwargs)
        connection.gate, connection.entered = self.gate, False
        return connection


class LocalApi:
    """Serves `routes` on a unix socket of mode 0660, and on TCP if told to, within the limits of `gate`."""

    def __init__(self, routes: Routes, gate: Gate | None = None, read_bytes: int = 64 * 1024) -> None:
        """`read_bytes` of a body are taken in before its reader must have looked at them."""
        self._routes = {**routes, "/v1/openapi.json": {"GET": self._openapi}}
        self.gate = gate or Gate(Limits(0, 0, 0))
        self._servers: list[asyncio.Server] = []
        self._http = _Server(self._handle, access_log=None, read_bufsize=read_bytes)
        self._http.gate = self.gate
        self._path: Path | None = None

    async def start(self, path: Path, group: str = "") -> None:
        listener = bind_unix(path, group)
        self._path = path
        self._servers.append(await asyncio.get_running_loop().create_unix_server(self._http, sock=listener))

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._servers.append(await asyncio.get_running_loop().create_server(self._http, host, port, ssl=tls))

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        if self._servers:
            await self._http.shutdown(timeout=1.0)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _openapi(self, request: web.BaseRequest) -> web.StreamResponse:
        """this description"""
        return answer(describe(self._routes, __version__))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        methods = self._routes.get(request.path) or self._routes.get(request.path.rpartition("/")[0] + "/{id}")
        try:
            if wait_s := self.gate.ask(client(request), time.monotonic()):
                raise ApiError(429, "too many requests", {"Retry-After": str(math.ceil(wait_s))})
            if methods is None:
                raise ApiError(404, f"no such path: {request.path}", paths=sorted(self._routes))
            if request.method not in methods:
                allowed = ", ".join(sorted(methods))
                raise ApiError(405, f"{request.path} takes {allowed}, not {request.method}", {"Allow": allowed})
            handler = methods[request.method]
            _check_right(handler, client(request))
            return await handler(request)
        except ApiError as error:
            return error.response()


def _check_right(handler: Handler, who: Client) -> None:
    needs = described(handler).needs
    if needs == "root" and not who.trusted:
        raise ApiError(403, f"for root and the agent's own user only, not for {who.name}")
    if needs == "reserve" and not who.may_reserve:
        raise ApiError(403, f"for the unix socket or a client certificate only, not for {who.name}")


NOT_YET = {503: "no number, or an old one"}
_NUMBER = {"type": ["number", "null"]}
STATUS = {
    "type": "object",
    "required": ["node", "time", "sequence", "ttl_s", "age_s", "pod_capacity", "slots", "pods", "mode", "limiting"],
    "properties": {
        "pod_capacity": _NUMBER,
        "low": _NUMBER,
        "high": _NUMBER,
        "slots": _NUMBER,
        "pods": {"type": "integer"},
        "mode": {"enum": ["learning", "measured", "predicted"]},
        "limiting": {"type": ["string", "null"]},
        "sequence": {"type": "integer"},
        "ttl_s": {"type": "number"},
        "age_s": {"type": "number"},
    },
}


def status_routes(board: Board) -> dict[str, dict[str, Handler]]:
    """What every agent answers: its status, once or as a stream, and whether it is well."""

    @operation(Operation(answer=STATUS, errors=NOT_YET))
    async def status(request: web.BaseRequest) -> web.StreamResponse:
        """the number, its interval, mode, limiting resource, usage, cost per Pod"""
        if not board.sequence:
            raise ApiError(503, "no sample yet; ask again in a second", {"Retry-After": "1"})
        return web.Response(body=board.encoded(), content_type="application/json")

    @operation(Operation(content=LINES))
    async def watch(request: web.BaseRequest) -> web.StreamResponse:
        """the status, one JSON line per update"""
        seen = 0

        async def next_line() -> bytes:
            nonlocal seen
            while seen == board.sequence:
                await board.changed()
            seen = board.sequence
            return board.encoded()

        return await stream_lines(request, next_line)

    @operation(Operation(errors=NOT_YET))
    async def healthz(request: web.BaseRequest) -> web.StreamResponse:
        """whether the last number is valid"""
        if board.fresh:
            return answer({"ok": True})
        raise ApiError(503, "the last status is older than its TTL" if board.sequence else "no sample yet", ok=False)

    return {"/v1/status": {"GET": status}, "/v1/watch": {"GET": watch}, "/healthz": {"GET": healthz}}
