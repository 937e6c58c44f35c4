"""A tiny client of a node's agent, for schedulers and scripts. Standard library only.

    from carico_agent.client import AgentClient
    agent = AgentClient()                       # or AgentClient("/run/carico/agent.sock")
    print(agent.status()["pod_capacity"])
    for status in agent.watch():          # one per update
        ...

`AsyncAgentClient` offers the same with `await` and `async for`.
"""

import asyncio
import grp
import http.client
import json
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

StatusBody = dict[str, Any]
"""The body of /v1/status, as the agent sent it."""


class AgentError(Exception):
    """The agent answered, but not with what was asked for."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body.get("error", f"HTTP status {status}"))
        self.status, self.body = status, body


class AgentUnavailable(Exception):
    """No agent answers on that socket."""


SYSTEM, TEMPORARY = "/run/carico/agent.sock", "/tmp"


def default_path() -> str:
    """Where an agent listens by default: the system's socket, or else the user's own."""
    if path := os.environ.get("CARICO_SOCKET"):
        return path
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        own = f"{runtime}/carico/agent.sock"
    else:
        folder = f"{TEMPORARY}/carico-{os.geteuid()}"
        own = f"{folder}/agent.sock" if _may_be_ours(folder) else SYSTEM
    return next((path for path in (SYSTEM, own) if os.path.exists(path)), SYSTEM if os.geteuid() == 0 else own)


def _may_be_ours(folder: str) -> bool:
    """Whether no other user can have put a socket there: in the temporary folder any user may take our name."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return True
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return ours and not found.st_mode & stat.S_IWOTH


def _unavailable(path: str, error: Exception) -> AgentUnavailable:
    if isinstance(error, PermissionError):
        return AgentUnavailable(f"this user may not open {path}: {_who_may(path)}")
    return AgentUnavailable(f"no agent answers on {path} ({error}); is `carico agent` running?")


def _who_may(path: str) -> str:
    """Whom the socket is for, and how to become one of them."""
    try:
        found = os.stat(path)
    except OSError:
        return f"its folder {os.path.dirname(path)} is closed to this user; ask as root"
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    if not found.st_mode & stat.S_IWGRP or found.st_gid == 0:
        return f"it is user {found.st_uid}'s alone; ask as that user, or set socket.group"
    return f"it is for members of the group {group}; `sudo usermod -aG {group} $USER` and log in again, or ask as root"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Waits in line while the agent's queue is full. A socket with Python's own timeout does not block, and would
        be refused."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if self.timeout is not None:
            limit = struct.pack("ll", int(self.timeout), int(self.timeout % 1 * 1e6))  # struct timeval
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.sock.connect(self._path)
        self.sock.settimeout(self.timeout)


class AgentClient:
    """One node's agent, synchronously. Keeps its connection; not for several threads at once."""

    def __init__(self, path: str | None = None, timeout_s: float = 5.0) -> None:
        self.path = path or default_path()
        self._timeout_s = timeout_s
        self._connection: _UnixConnection | None = None

    def status(self) -> StatusBody:
        """The newest status. It is void when age_s > ttl_s."""
        return self.request("GET", "/v1/status")

    def pods(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.request("GET", "/v1/pods")["pods"]
        return pods

    def watch(self) -> Iterator[StatusBody]:
        """The status now, and again at every update, for as long as the agent lives."""
        return self.lines("/v1/watch")

    def lines(self, path: str, timeout_s: float | None = 60.0) -> Iterator[dict[str, Any]]:
        """Any streaming path, one object per line; None waits without a limit."""
        connection = _UnixConnection(self.path, timeout_s)
        try:
            response = self._send(connection, "GET", path, None)
            if response.status != 200:
                raise AgentError(response.status, _decode(response.read()))
            while line := response.readline():
                yield _decode(line)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error
        finally:
            connection.close()

    @contextmanager
    def reserve(
        self, pods: int, ttl_s: float, holder: str = "", pod_uid: str = "", workload: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Room for `pods` Pods while inside; AgentError (409) says in `body["available"]` how many would fit."""
        wanted = {"pods": pods, "ttl_s": ttl_s, "holder": holder, "pod_uid": pod_uid, "workload": workload}
        held = self.request("POST", "/v1/reservations", wanted)
        try:
            yield held
        finally:
            try:
                self.request("DELETE", f"/v1/reservations/{held['id']}")
            except AgentError as error:
                if error.status != 404:  # it has expired, or its Pod has started: released already
                    raise

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request; raises AgentError when the answer is not 2xx."""
        for fresh in (False, True):
            if fresh or self._connection is None:
                self.close()
                self._connection = _UnixConnection(self.path, self._timeout_s)
                fresh = True
            try:
                response = self._send(self._connection, method, path, body)
                answer = _decode(response.read())
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if fresh or method != "GET":  # an old connection may have been closed by a restart: try once more
                    raise self._unavailable(error) from error
                continue
            if response.status >= 300:
                raise AgentError(response.status, answer)
            return answer
        raise AssertionError("unreachable")

    @staticmethod
    def _send(
        connection: _UnixConnection, method: str, path: str, body: dict[str, Any] | None
    ) -> http.client.HTTPResponse:
        encoded = json.dumps(body).encode() if body is not None else None
        connection.request(method, path, encoded, {"Content-Type": "application/json"} if encoded else {})
        return connection.getresponse()

    def _unavailable(self, error: Exception) -> AgentUnavailable:
        return _unavailable(self.path, error)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "AgentClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAgentClient:
    """One node's agent, for asyncio. A connection per call."""

    def __init__(self, path: str | None = None, timeout_s: float = 5.0) -> None:
        self.path = path or default_path()
        self._timeout_s = timeout_s

    async def status(self) -> StatusBody:
        return await self.request("GET", "/v1/status")

    async def watch(self) -> AsyncIterator[StatusBody]:
        reader, writer = await self._open("GET", "/v1/watch", None)
        try:
            code, headers = await self._head(reader)
            if code != 200:
                raise AgentError(code, _decode(await self._body(reader, headers)))
            rest = b""
            async for chunk in _chunks(reader):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _decode(line)
        except (OSError, EOFError, ValueError) as error:
            raise AgentUnavailable(f"the agent on {self.path} went away ({error})") from error
        finally:
            writer.close()

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await self._open(method, path, body)
                try:
                    code, headers = await self._head(reader)
                    answer = _decode(await self._body(reader, headers))
                finally:
                    writer.close()
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            raise _unavailable(self.path, error) from error
        if code >= 300:
            raise AgentError(code, answer)
        return answer

    async def _open(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        encoded = json.dumps(body).encode() if body is not None else b""
        length = f"Content-Length: {len(encoded)}"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}\r\n\r\n"
        writer.write(head.encode() + encoded)
        await writer.drain()
        return reader, writer

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
        return int(lines[0].split()[1]), headers

    @staticmethod
    async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in _chunks(reader)])
        return await reader.readexactly(int(headers.get("content-length", "0")))


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readline()


def _decode(body: bytes) -> dict[str, Any]:
    value = json.loads(body or b"{}")
    return value if isinstance(value, dict) else {"value": value}
