"""One connection from a node to an aggregator: contributions there, views back, by stream or by single calls."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, cast

import grpc

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.lib.net.address import check
from carico_agent.lib.net.tls import TlsFiles
from carico_agent.settings import FederationSettings

MAX_VIEW_BYTES = 262_144
"""A view has some 300 bytes; with 256 workloads about 20 kB."""
CONNECT_RATIO = 5.0
"""The first answer may take this many times longer: when an aggregator returns, all nodes greet it at once, and a
handshake takes it a few milliseconds of CPU time."""
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MAX_VIEW_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
]

OnReceived = Callable[[bytes], bool]
"""Gets every view; returns whether it was an answer (a pushed one is not). May raise Rejected."""


class ConnectionLost(Exception):
    """The aggregator is missing, slow or refuses; the text says why."""


class _Call(Protocol):
    async def write(self, raw: bytes) -> None: ...
    async def read(self) -> bytes: ...
    def cancel(self) -> bool: ...


class AggregatorLink:
    """Opened with `async with`; every failure is ConnectionLost, or Rejected if a view is not believed."""

    def __init__(self, address: str, settings: FederationSettings, on_received: OnReceived) -> None:
        self._address, self._settings, self._on_received = address, settings, on_received
        self._unary = settings.transport == "unary"
        self._tls = TlsFiles.mutual(settings.tls_ca, settings.tls_cert, settings.tls_key)
        check(address, self._tls is not None, settings.allow_plaintext)
        self._fingerprint: tuple[tuple[int, int, int], ...] = ()
        self._stream: _Call | None = None
        self._reader: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._answers = 0

    @property
    def pushes(self) -> bool:
        """Whether views come without being asked for."""
        return not self._unary

    async def __aenter__(self) -> "AggregatorLink":
        try:
            self._fingerprint = self._tls.fingerprint() if self._tls else ()
            self._channel = open_channel(self._address, self._tls, self._settings.tls_server_name, _OPTIONS)
        except OSError as error:
            raise ConnectionLost(f"certificates: {error}") from error
        self._one = self._channel.unary_unary(f"/{wire.SERVICE}/Exchange", same, same)
        self._many = self._channel.stream_stream(f"/{wire.SERVICE}/Stream", same, same)
        return self

    async def __aexit__(
        self, workload: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_stream()
        await self._channel.close(None)

    async def exchange(self, raw: bytes) -> None:
        """Send a contribution and wait until it is answered; `on_received` gets the view."""
        if self._tls and self._files_changed(self._tls):
            raise ConnectionLost("certificates changed, connecting anew")
        limit_s = self._settings.answer_s * (1.0 if self._answers else CONNECT_RATIO)
        try:
            async with asyncio.timeout(limit_s):
                await (self._by_call(raw) if self._unary else self._by_stream(raw))
        except TimeoutError as error:
            raise ConnectionLost(f"no answer within {limit_s:g} s") from error
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED and not self._unary:
                self._unary = True  # an aggregator without streams
                await self._end_stream()
                await self.exchange(raw)
                return
            raise ConnectionLost(f"{error.code().name}: {error.details()}") from error
        except asyncio.InvalidStateError as error:  # grpc.aio's word for writing to a call that has ended
            raise ConnectionLost(f"the stream ended: {error}") from error
        self._answers += 1

    async def _by_call(self, raw: bytes) -> None:
        self._on_received(await self._one(raw, timeout=CONNECT_RATIO * self._settings.answer_s))

    async def _by_stream(self, raw: bytes) -> None:
        if self._stream is None or self._reader is None:
            self._stream = cast(_Call, self._many())  # type: ignore[call-arg]  # grpc-stubs wants an iterator
            self._reader = asyncio.create_task(self._receive(self._stream), name="views")
        if self._reader.done():
            self._reader.result()  # raises why it ended
        self._answered.clear()
        await self._stream.write(raw)
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            await asyncio.wait({answered, self._reader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._reader.done():
            self._reader.result()

    async def _receive(self, stream: _Call) -> None:
        """Hand on every view that comes; ends by an exception only, which the next exchange raises."""
        while isinstance(raw := await stream.read(), bytes):
            if self._on_received(raw):
                self._answered.set()
        raise ConnectionLost("the aggregator closed the stream")  # grpc.aio.EOF

    async def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
            if not self._reader.cancelled():
                self._reader.exception()  # looked at: asyncio need not complain about it
        self._stream = self._reader = None

    def _files_changed(self, tls: TlsFiles) -> bool:
        try:
            return tls.fingerprint() != self._fingerprint
        except OSError:
            return False  # being replaced right now; the old ones work until then
