"""A load generator that speaks just enough gRPC: grpcio's own client needs more CPU than the server it would measure.

Frames are put together by hand and nothing is retried; a reset stream or a closed connection is an error.
"""

import asyncio
import struct
import time
from collections.abc import Callable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(path: str) -> bytes:
    """Request headers, all literal and without indexing."""
    pairs = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "bench"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    )
    return b"".join(b"\x00" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in pairs)


class LoadConnection(asyncio.Protocol):
    """One TCP connection with several nodes on it; `answered(node, body)` is called for each answer."""

    def __init__(self, path: str, unary: bool, answered: Callable[[int, bytes], None]) -> None:
        self._headers, self._unary, self._answered = headers(path), unary, answered
        self._buffer = b""
        self._next_stream = 1
        self._streams: dict[int, int] = {}  # node: its stream (stream calls)
        self._nodes: dict[int, int] = {}
        self.failure = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # INITIAL_WINDOW_SIZE as large as it gets, and the connection's window too: no WINDOW_UPDATE ever after
        transport.write(
            PREFACE
            + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1))
            + frame(8, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))
        )

    def connection_lost(self, error: Exception | None) -> None:
        self.failure = self.failure or f"connection lost: {error}"

    def say(self, node: int, message: bytes) -> None:
        out = b""
        stream = self._streams.get(node)
        if stream is None:
            stream, self._next_stream = self._next_stream, self._next_stream + 2
            self._nodes[stream] = node
            out = frame(HEADERS, END_HEADERS, stream, self._headers)
            if not self._unary:
                self._streams[node] = stream
        body = b"\x00" + struct.pack(">I", len(message)) + message
        self._transport.write(out + frame(DATA, END_STREAM if self._unary else 0, stream, body))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        at = 0
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < 9 + length:
                break
            kind, flags, stream = buffer[at + 3], buffer[at + 4], int.from_bytes(buffer[at + 5 : at + 9], "big")
            self._frame(kind, flags, stream, buffer[at + 9 : at + 9 + length])
            at += 9 + length
        self._buffer = buffer[at:]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA and payload:
            self._answered(self._nodes[stream], payload[5:])
            if self._unary:
                del self._nodes[stream]
        elif kind == SETTINGS and not flags & 1:
            self._transport.write(frame(SETTINGS, 1, 0, b""))
        elif kind == PING and not flags & 1:
            self._transport.write(frame(PING, 1, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            self.failure = f"frame {kind} on stream {stream}: {payload!r}"

    def close(self) -> None:
        self._transport.close()


async def load(
    address: str,
    transport: str,
    first: int,
    nodes: int,
    connections: int,
    seconds: int,
    make: Callable[[str], Callable[[], bytes]],
    service: str,
    ready: Callable[[], float],
) -> tuple[list[float], list[float]]:
    """Speak for `nodes` nodes at 1 Hz, evenly spread, from `ready()` on.

    Returns the answer times [s], counted from when each node should have spoken, and how late it spoke [s].
    """
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    took: list[float] = []
    due_s = [0.0] * nodes
    counted = False

    def answered(node: int, body: bytes) -> None:
        if counted:
            took.append(time.monotonic() - due_s[node])

    path = f"/{service}/{'Stream' if transport == 'stream' else 'Exchange'}"
    lines = []
    for _ in range(connections):
        new = lambda: LoadConnection(path, transport == "unary", answered)  # noqa: E731
        lines.append((await loop.create_connection(new, host, int(port)))[1])
    says = [make(f"node-{first + i:05d}") for i in range(nodes)]
    late: list[float] = []
    start_s = ready()
    for beat in range(seconds):
        counted = beat >= 2
        for i in range(nodes):
            due = start_s + beat + i / nodes
            wait_s = due - time.monotonic()
            if wait_s > 0.001 or i % 16 == 0:
                await asyncio.sleep(max(0.0, wait_s))
            due_s[i] = due
            if counted:
                late.append(time.monotonic() - due)
            lines[i % connections].say(i, says[i]())
    await asyncio.sleep(1.0)
    failures = {line.failure for line in lines} - {""}
    for line in lines:
        line.close()
    if failures:
        raise RuntimeError(f"{len(failures)} kinds of failures, such as {failures.pop()}")
    return took, late
