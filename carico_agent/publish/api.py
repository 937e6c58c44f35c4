"""The local API: HTTP/1.1 and JSON over a unix socket. Every error is JSON, none is a traceback.

Why aiohttp's low-level server and not web.Application: one dictionary is all the routing this needs, and a request
then costs about a third less (`make bench`, requests per second).
"""

import asyncio
import grp
import json
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from carico_agent.publish.board import Board

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]
"""Path → method → handler. The last segment may be "{id}": `request_id` gives what stood there."""

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


async def read_json(request: web.BaseRequest) -> dict[str, Any]:
    """The request's body, which must be a JSON object of at most 64 KiB."""
    if (request.content_length or 0) > MOST_BODY_BYTES:
        raise ApiError(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
    try:
        value = json.loads(body)
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


class _JsonErrors(RequestHandler):
    """aiohttp's own errors (broken HTTP, a bug in a handler) as JSON too."""

    __slots__ = ()

    def handle_error(self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None,
                     message: str | None = None) -> web.StreamResponse:  # fmt: skip
        if status >= 500:
            log.error("%s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        said = (message or "bad request").splitlines()[0] if status < 500 else "internal error, see the agent's log"
        response = ApiError(status, said).response()
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _JsonErrors(self, loop=self._loop, **self._kwargs)


class LocalApi:
    """Serves `routes` on a unix socket of mode 0660."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._http = _Server(self._handle, access_log=None)
        self._path: Path | None = None

    async def start(self, path: Path, group: str = "") -> None:
        listener = bind(path, group)
        self._path = path
        self._server = await asyncio.get_running_loop().create_unix_server(self._http, sock=listener)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._http.shutdown(timeout=1.0)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        methods = self._routes.get(request.path) or self._routes.get(request.path.rpartition("/")[0] + "/{id}")
        try:
            if methods is None:
                raise ApiError(404, f"no such path: {request.path}", paths=sorted(self._routes))
            if request.method not in methods:
                allowed = ", ".join(sorted(methods))
                raise ApiError(405, f"{request.path} takes {allowed}, not {request.method}", {"Allow": allowed})
            return await methods[request.method](request)
        except ApiError as error:
            return error.response()


def bind(path: Path, group: str = "") -> socket.socket:
    """A listening unix socket at `path`. A dead one is replaced; a living one, or another kind of file, is refused."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o117)  # mode 0660 from the first moment on
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    if group:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    listener.listen(128)
    return listener


def _clear(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(f"{path} exists and is not a socket; remove it or choose another socket.path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError(f"another agent is listening on {path}; stop it or choose another socket.path")


def status_routes(board: Board) -> dict[str, dict[str, Handler]]:
    """What every agent answers: its status, once or as a stream, and whether it is well."""

    async def status(request: web.BaseRequest) -> web.StreamResponse:
        if not board.sequence:
            raise ApiError(503, "no sample yet; ask again in a second", {"Retry-After": "1"})
        return web.Response(body=board.encoded(), content_type="application/json")

    async def watch(request: web.BaseRequest) -> web.StreamResponse:
        seen = 0

        async def next_line() -> bytes:
            nonlocal seen
            while seen == board.sequence:
                await board.changed()
            seen = board.sequence
            return board.encoded()

        return await stream_lines(request, next_line)

    async def healthz(request: web.BaseRequest) -> web.StreamResponse:
        if board.fresh:
            return answer({"ok": True})
        raise ApiError(503, "the last status is older than its TTL" if board.sequence else "no sample yet", ok=False)

    return {"/v1/status": {"GET": status}, "/v1/watch": {"GET": watch}, "/healthz": {"GET": healthz}}
