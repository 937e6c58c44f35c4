"""Whoever floods the aggregator is refused or slowed down; the others are served on, and its memory stays bounded."""

import asyncio
import contextlib
import os
import struct
import time
from pathlib import Path

import grpc
import pytest

from carico_agent.federation import wire
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.server import CALLS_PER_CONNECTION
from carico_agent.federation.status import fetch_status

from .processes import aggregator, until
from .test_client import client, contributed, fast

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)  # preface and empty SETTINGS
MAX_GROWTH_MB = 48.0


def frame(workload: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", workload, flags, stream) + payload


def headers(path: str) -> bytes:
    """Request headers, all literal and without indexing."""
    pairs = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a"), ("te", "trailers"))
    pairs += (("content-type", "application/grpc"),)
    return b"".join(b"\x00" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in pairs)


async def connect(address: str, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), local_addr=(source, 0))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass
    return True


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def message(node: str) -> bytes:
    return wire.write_contribution(node, contributed(0.5), time.time_ns())


async def assert_served(address: str) -> None:
    async with client(fast(address), "honest", contributed(0.5)) as honest:
        await until(lambda: honest.view is not None)


@pytest.mark.long
async def test_connections_beyond_the_limit_are_closed():
    async with aggregator(max_connections=5) as server:
        async with client(fast(server.address), "honest", contributed(0.5)) as honest:
            await until(lambda: honest.view is not None)
            flood = [await connect(server.address) for _ in range(40)]
            closed = [asyncio.create_task(is_closed(reader)) for reader, _ in flood]
            await until(lambda: sum(task.done() for task in closed) >= 36)
            before = honest.exchanges
            await until(lambda: honest.exchanges > before + 2)
            for _, writer in flood:
                writer.close()
            await asyncio.gather(*closed)
        await assert_served(server.address)


@pytest.mark.parametrize("greeting", [b"", b"PRI * HTTP", HELLO[:30]])
async def test_a_handshake_that_never_ends_is_ended(greeting):
    async with aggregator(handshake_s=0.5) as server:
        reader, writer = await connect(server.address)
        writer.write(greeting)
        assert await is_closed(reader)
        writer.close()


async def test_pings_end_their_connection():
    async with aggregator() as server:
        reader, writer = await connect(server.address)
        writer.write(HELLO + frame(6, 0, 0, bytes(8)) * 1000)
        assert await is_closed(reader)
        writer.close()
        await assert_served(server.address)


async def test_resets_leave_nothing_behind():
    """HTTP/2 rapid reset: calls that are opened and cancelled at once."""
    async with aggregator() as server:
        await assert_served(server.address)
        before_mb = rss_mb(server.child.pid)
        for _ in range(5):
            _, writer = await connect(server.address)
            writer.write(HELLO)
            opened = headers(f"/{wire.SERVICE}/Stream")
            with contextlib.suppress(ConnectionError):
                for number in range(1, 4001, 2):
                    writer.write(frame(1, 4, number, opened) + frame(3, 0, number, b"\0\0\0\x08"))
                await writer.drain()
            await assert_served(server.address)
            writer.close()
        assert rss_mb(server.child.pid) - before_mb < MAX_GROWTH_MB
        await until(lambda: _streams(server.address, 0))


async def _streams(address: str, count: int) -> bool:
    return (await fetch_status(address))["streams"] == count


async def test_streams_of_one_peer_are_limited():
    async with aggregator(peer_calls=3) as server, grpc.aio.insecure_channel(server.address) as channel:
        calls = [channel.stream_stream(f"/{wire.SERVICE}/Stream")() for _ in range(6)]
        await until(lambda: sum(call.done() for call in calls) == 3)
        refused = [call for call in calls if call.done()]
        assert [await call.code() for call in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
        for i, call in enumerate(calls):
            if call not in refused:
                await call.write(message(f"n{i}"))
                assert pb.View.FromString(await call.read())
        await assert_served(server.address)


@pytest.mark.long
async def test_a_stream_that_sends_too_fast_is_read_slowly():
    async with aggregator(peer_messages_per_s=20.0) as server:
        before_mb = rss_mb(server.child.pid)
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = channel.stream_stream(f"/{wire.SERVICE}/Stream")()

            async def send() -> None:
                while True:
                    await call.write(
                        message("fast") + b"\x9a\x06" + b"\xff\x7d" + bytes(16_127)
                    )  # unknown field, 16 kB

            sending = asyncio.create_task(send())
            await assert_served(server.address)
            await until(lambda: _exchanges(server.address, 30))
            assert not await _exchanges(server.address, 2000)
            assert rss_mb(server.child.pid) - before_mb < MAX_GROWTH_MB
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await until(lambda: _streams(server.address, 0))


async def _exchanges(address: str, least: int) -> bool:
    return int((await fetch_status(address))["exchanges"]) >= least


@pytest.mark.long
async def test_calls_beyond_the_rate_are_refused():
    async with aggregator(peer_messages_per_s=50.0) as server, grpc.aio.insecure_channel(server.address) as channel:
        before_mb = rss_mb(server.child.pid)
        status = channel.unary_unary(f"/{wire.SERVICE}/Status")
        at_once = asyncio.Semaphore(CALLS_PER_CONNECTION // 2)  # beyond that another limit refuses as well

        async def call() -> grpc.StatusCode:
            async with at_once:
                return await _code(status(b""))

        codes = await asyncio.gather(*(call() for _ in range(2000)))
        assert codes.count(grpc.StatusCode.OK) >= 50
        assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) >= 1000
        await assert_served(server.address)
        assert rss_mb(server.child.pid) - before_mb < MAX_GROWTH_MB


async def _code(call) -> grpc.StatusCode:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call
    return await call.code()


@pytest.mark.long
async def test_a_silent_stream_is_ended():
    async with aggregator(silence_s=1.0) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream(f"/{wire.SERVICE}/Stream")()
        await call.write(message("quiet"))
        await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            while await call.read() is not grpc.aio.EOF:
                pass
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: _streams(server.address, 0))


@pytest.mark.long
async def test_a_node_that_does_not_read_holds_nobody_up():
    """Its pushed views and answers wait in HTTP/2's window; it is ended when it falls silent."""
    async with aggregator(silence_s=1.0, peer_messages_per_s=0.0) as server:
        _, writer = await connect(server.address)
        body = message("deaf")
        sent = frame(1, 4, 1, headers(f"/{wire.SERVICE}/Stream"))
        writer.write(HELLO + sent + frame(0, 0, 1, b"\0" + struct.pack(">I", len(body)) + body) * 500)
        await writer.drain()
        await assert_served(server.address)
        await until(lambda: _streams(server.address, 0), 30)
        writer.close()
