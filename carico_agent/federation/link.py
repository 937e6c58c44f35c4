"""One connection from a node to an aggregator: bytes there, bytes back, by stream or by single calls."""

import asyncio
from types import TracebackType
from typing import Protocol, cast

import grpc

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.net.address import check
from carico_agent.net.tls import TlsFiles
from carico_agent.settings import FederationSettings

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", 65_536),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
]


class LinkLost(Exception):
    """The aggregator is missing, slow or refuses; says why."""


class _Call(Protocol):
    async def write(self, raw: bytes) -> None: ...
    async def read(self) -> bytes: ...
    def cancel(self) -> bool: ...


class Link:
    """Opened with `async with`; every failure is LinkLost."""

    def __init__(self, address: str, settings: FederationSettings, unary: bool) -> None:
        self._address, self._settings, self._unary = address, settings, unary
        self._tls = TlsFiles.mutual(settings.tls_ca, settings.tls_cert, settings.tls_key)
        check(address, self._tls is not None, settings.allow_plaintext)
        self._certificates: tuple[tuple[int, int, int], ...] = ()
        self._stream: _Call | None = None

    async def __aenter__(self) -> "Link":
        try:
            self._certificates = self._tls.fingerprint() if self._tls else ()
            self._channel = open_channel(self._address, self._tls, self._settings.tls_server_name, _OPTIONS)
        except OSError as error:
            raise LinkLost(f"certificates: {error}") from error
        self._one = self._channel.unary_unary(f"/{wire.SERVICE}/Exchange", same, same)
        self._many = self._channel.stream_stream(f"/{wire.SERVICE}/Stream", same, same)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close(None)

    async def exchange(self, raw: bytes) -> bytes:
        """Say `raw`, hear the answer."""
        if self._tls and self._tls_changed(self._tls):
            raise LinkLost("certificates changed, connecting anew")
        try:
            async with asyncio.timeout(self._settings.answer_s):
                return await (self._by_call(raw) if self._unary else self._by_stream(raw))
        except TimeoutError as error:
            raise LinkLost(f"no answer within {self._settings.answer_s:g} s") from error
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED and not self._unary:
                self._unary = True  # an aggregator without streams
                return await self.exchange(raw)
            raise LinkLost(f"{error.code().name}: {error.details()}") from error
        except asyncio.InvalidStateError as error:  # grpc.aio's word for writing to a call that has ended
            raise LinkLost(f"the stream ended: {error}") from error

    async def _by_call(self, raw: bytes) -> bytes:
        answer: bytes = await self._one(raw, timeout=self._settings.answer_s)
        return answer

    async def _by_stream(self, raw: bytes) -> bytes:
        if self._stream is None:
            self._stream = cast(_Call, self._many())  # type: ignore[call-arg]  # grpc-stubs wants an iterator
        await self._stream.write(raw)
        answer = await self._stream.read()
        if not isinstance(answer, bytes):  # grpc.aio.EOF
            raise LinkLost("the aggregator closed the stream")
        return answer

    def _tls_changed(self, tls: TlsFiles) -> bool:
        try:
            return tls.fingerprint() != self._certificates
        except OSError:
            return False  # being replaced right now; the old ones work until then
