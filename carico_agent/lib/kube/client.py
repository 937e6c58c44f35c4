"""Requests to the Kubernetes API: paced, verified, and with errors that say what to do.

On good days a budget limits requests. On bad ones (no answer, 429, 5xx) the whole client pauses, by Retry-After or a
backoff, and then one request at a time tries; the rest waits for its luck. So a server that comes back meets one
request per client, not one per task, and the pause is at most 3 s: the server is noticed within 5 s of its return.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from carico_agent.lib.kube.access import Access
from carico_agent.lib.kube.clock import skew_s
from carico_agent.lib.kube.credentials import Credentials, certificate_end
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable, explain, status_of
from carico_agent.lib.kube.lists import ListReader
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.supervise.backoff import Backoff

Object = dict[str, Any]
Texts = Mapping[str, str]

MERGE = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Of an answer we only want to know that it came: a Node is 10 to 50 kB, its metadata one."""

RETRY_DELAYS = Backoff(first_s=0.5, factor=2.0, max_s=3.0, jitter_ratio=0.3)
MAX_PAUSE_S = 120.0
SILENCE_S = 100.0
"""A watch without even a bookmark (one a minute) for this long is dead [s]."""


class KubeClient:
    """One API server. Close it; or use `async with`."""

    def __init__(
        self,
        access: Access,
        budget: TokenBucket | None = None,
        timeout_s: float = 10.0,
        retry_delays: Backoff = RETRY_DELAYS,
    ) -> None:
        self.access = access
        self.credentials = Credentials(access)
        self.generation = 0
        """How often `use` has changed the way to the server."""
        self.requests = 0
        """Sent so far, for metrics."""
        self.clock_skew_s = 0.0
        """How far this clock is ahead of the API server's, by its last answer [s]."""
        self._budget = budget or TokenBucket(per_s=5.0, burst=20)
        self._timeout_s, self._retry_delays = timeout_s, retry_delays
        self._session: aiohttp.ClientSession | None = None
        self._tls: Any = None
        self._tls_pair = b""
        self._failures = 0
        self._resume_s = 0.0
        self._trying = asyncio.Lock()

    async def __aenter__(self) -> "KubeClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def use(self, access: Access) -> None:
        """Reach the server in another way from the next request on: rotated credentials, or another cluster."""
        self.access, self.credentials = access, Credentials(access)
        self._tls, self._tls_pair = None, b""
        self._failures, self._resume_s = 0, 0.0
        self.generation += 1

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # ---- verbs

    async def get(self, path: str, params: Texts | None = None) -> Object:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Object, kind: str = MERGE) -> Object:
        return await self.request("PATCH", path, body, {"Content-Type": kind, "Accept": METADATA_ONLY})

    async def delete(self, path: str) -> Object:
        return await self.request("DELETE", path)

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        headers: Texts | None = None,
        params: Texts | None = None,
    ) -> Object:
        """One request and its answer; raises KubeError."""
        async with self._answer(method, path, body, headers, params, self._timeout_s) as response:
            try:
                text = await response.read()
                value: Object = json.loads(text) if text else {}
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise Unreachable(f"{self.access.server}: the answer broke off: {error}") from error
            return value

    async def lines(self, path: str, params: Texts, opened: Callable[[], None]) -> AsyncIterator[Object]:
        """A watch: `opened` once the server agrees, then one object per line until it ends or falls silent."""
        async with self._answer("GET", path, None, None, params, None) as response:
            opened()
            rest = b""
            try:
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield json.loads(line)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                return  # broken off; the watch resumes where it was

    async def items(self, path: str, params: Texts, take: Callable[[Object], None]) -> Object:
        """A list: `take` is called with every item as it arrives. Returns the list's metadata; raises KubeError."""
        reader = ListReader()
        async with self._answer("GET", path, None, None, params, self._timeout_s) as response:
            try:
                async for chunk in response.content.iter_any():
                    for item in reader.feed(chunk):
                        take(item)
                return reader.finish()
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
                raise Unreachable(f"{self.access.server}: the list broke off: {error}") from error

    async def chunks(self, path: str, timeout_s: float) -> AsyncIterator[bytes]:
        """An answer that is no JSON (metrics, logs), in pieces as they come; raises KubeError."""
        async with self._answer("GET", path, None, {"Accept": "text/plain, */*"}, None, timeout_s) as response:
            try:
                async for chunk in response.content.iter_chunked(1 << 16):
                    yield chunk
            except (aiohttp.ClientError, TimeoutError) as error:
                raise Unreachable(f"{self.access.server}: the answer broke off: {error}") from error

    # ---- one exchange

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: Object | None,
        headers: Texts | None,
        params: Texts | None,
        timeout_s: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response; the turn it took ends when its headers have come."""
        async with AsyncExitStack() as stack:
            for attempt in (1, 2):
                async with self._turn():
                    response = await self._send(stack, method, path, body, headers, params, timeout_s)
                if response.status == 401 and attempt == 1 and self.credentials.doubt():
                    await response.read()
                    continue
                break
            if response.status >= 300:
                raise await self._refusal(response, method, path)
            yield response

    async def _send(
        self,
        stack: AsyncExitStack,
        method: str,
        path: str,
        body: Object | None,
        headers: Texts | None,
        params: Texts | None,
        timeout_s: float | None,
    ) -> aiohttp.ClientResponse:
        if not self.access.server:
            self._troubled(None)
            raise Unreachable("no kubeconfig is known for it yet")
        sent = {"Content-Type": "application/json", "Accept": "application/json", **await self.credentials.headers()}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._timeout_s, sock_read=timeout_s or SILENCE_S)
        self.requests += 1
        sent_s = time.time()
        try:
            response = await stack.enter_async_context(
                self._open().request(
                    method,
                    self.access.server + path,
                    params=params,
                    headers={**sent, **(headers or {})},
                    timeout=timeout,
                    data=None if body is None else json.dumps(body, separators=(",", ":")),
                    allow_redirects=False,
                    ssl=self._context(),
                    server_hostname=self.access.tls_server_name or None,
                    proxy=self.access.proxy or None,
                )
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._tls = None  # the authority's file may have been renewed
            self._troubled(None)
            raise Unreachable(self._why(error)) from error
        self.clock_skew_s = skew_s(sent_s, time.time(), response.headers.get("Date", ""))
        if response.status == 429 or response.status >= 500:
            self._troubled(_retry_after_s(response))
        else:
            self._failures, self._resume_s = 0, 0.0
        return response

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await asyncio.sleep(self._budget.reserve(time.monotonic()))
        if not self._failures and time.monotonic() >= self._resume_s:
            yield
            return
        async with self._trying:
            while (pause_s := self._resume_s - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            yield

    def _troubled(self, retry_after_s: float | None) -> None:
        self._failures += 1
        pause_s = (
            self._retry_delays.delay_s(self._failures) if retry_after_s is None else min(retry_after_s, MAX_PAUSE_S)
        )
        self._resume_s = time.monotonic() + pause_s

    async def _refusal(self, response: aiohttp.ClientResponse, method: str, path: str) -> KubeError:
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return Unreachable(f"{self.access.server}: the answer broke off: {error}")
        message = explain(response.status, text, method, path)
        end = certificate_end(self.access.certificate) if response.status == 401 else None
        if end is not None and end.timestamp() < time.time():
            message = f"the client certificate ended on {end:%Y-%m-%d %H:%M} UTC; renew it in the kubeconfig"
        return Refused(response.status, message, _retry_after_s(response), status_of(text))

    def _why(self, error: BaseException) -> str:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return f"{self.access.server} is not trusted: {getattr(error.certificate_error, 'verify_message', error)}"
        if isinstance(error, TimeoutError):
            return f"{self.access.server} does not answer within {self._timeout_s:g} s"
        cause = getattr(error, "os_error", error)
        if isinstance(cause, PermissionError):  # IPAddressDeny of a unit, or a firewall of this machine
            return (
                f"{self.access.server} cannot be reached: this machine forbids it. For a service that was installed "
                "before its configuration named an API server: `carico install --systemd` again"
            )
        return f"{self.access.server} cannot be reached: {getattr(cause, 'strerror', None) or cause}"

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"User-Agent": "carico"})
        return self._session

    def _context(self) -> Any:
        """The TLS context; a new one when a plugin gave a new certificate."""
        pair = self.credentials.certificate
        if self._tls is None or pair != self._tls_pair:
            self._tls, self._tls_pair = self.access.tls(pair, self.credentials.key) or True, pair
        return self._tls


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
