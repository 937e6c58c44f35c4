"""Our HTTP/2: what real gRPC clients do, and what nobody should do, byte by byte without a network."""

import asyncio

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.federation import frames as h2
from carico_agent.federation.call import Method
from carico_agent.federation.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    CallError,
    frame,
    literal,
)
from carico_agent.federation.hpack import Decoder, HpackError, huffman
from carico_agent.federation.http2 import Connection
from carico_agent.federation.listener import Listener

HELLO = PREFACE + frame(SETTINGS, 0, 0)


class Wire(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed, self.paused, self.aborted = b"", False, False, False

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        found, data = [], self.written
        while data:
            length = int.from_bytes(data[:3], "big")
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
            data = data[9 + length :]
        self.written = b""
        return found


def refuse(message: bytes, identity: str | None) -> bytes:
    raise CallError(h2.PERMISSION_DENIED, "no, 100 % no")


METHODS = {
    b"/s/One": Method(lambda message, identity: message.upper()),
    b"/s/Many": Method(lambda message, identity: message.upper(), stream=True),
    b"/s/Big": Method(lambda message, identity: b"x" * 200_000),
    b"/s/No": Method(refuse),
}


def connect(**limits) -> tuple[Connection, Wire]:
    connection = Connection(METHODS, limits.get("message_bytes", 1000), limits.get("streams", 3), lambda gone: None)
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


def headers(path: bytes, **more: bytes) -> bytes:
    fields = {b":method": b"POST", b":path": path, b"content-type": b"application/grpc", **more}
    return b"".join(literal(name, value) for name, value in fields.items())


def message(body: bytes) -> bytes:
    return b"\x00" + len(body).to_bytes(4, "big") + body


def call(path: bytes, body: bytes, number: int = 1) -> bytes:
    return frame(HEADERS, END_HEADERS, number, headers(path)) + frame(DATA, END_STREAM, number, message(body))


def answers(wire: Wire) -> list[bytes]:
    return [payload[5:] for kind, _, _, payload in wire.frames() if kind == DATA]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_bytes_may_come_in_any_pieces(piece):
    connection, wire = connect()
    data = HELLO + call(b"/s/One", b"abc") + call(b"/s/One", b"def", 3)
    for at in range(0, len(data), piece):
        connection.data_received(data[at : at + piece])
    assert answers(wire) == [b"ABC", b"DEF"] and not wire.closed and connection.open_calls == 0


def test_a_stream_answers_each_message_and_ends_with_trailers():
    connection, wire = connect()
    connection.data_received(HELLO + frame(HEADERS, END_HEADERS, 1, headers(b"/s/Many")))
    body = message(b"a") + message(b"b") + message(b"c")
    connection.data_received(frame(DATA, 0, 1, body[:8]))
    connection.data_received(frame(DATA, 0, 1, body[8:]))
    assert answers(wire) == [b"A", b"B", b"C"] and connection.open_calls == 1
    connection.data_received(frame(DATA, END_STREAM, 1, b""))
    kind, flags, number, payload = wire.frames()[-1]
    assert (kind, flags, number) == (HEADERS, END_STREAM | END_HEADERS, 1)
    assert Decoder().decode(payload) == {b"grpc-status": b"0"}


def test_flow_control_is_kept_in_both_directions():
    connection, wire = connect(message_bytes=100_000)
    connection.data_received(HELLO + call(b"/s/Big", b""))
    sent = sum(len(payload) for kind, _, _, payload in wire.frames() if kind == DATA)
    assert sent == 65_535  # the window of stream and connection
    for _ in range(3):
        more = (70_000).to_bytes(4, "big")
        connection.data_received(frame(WINDOW_UPDATE, 0, 0, more) + frame(WINDOW_UPDATE, 0, 1, more))
    frames = wire.frames()
    assert sent + sum(len(p) for kind, _, _, p in frames if kind == DATA) == 200_005
    assert frames[-1][0] == HEADERS and connection.open_calls == 0
    connection.data_received(frame(HEADERS, END_HEADERS, 3, headers(b"/s/One")))
    for _ in range(5):
        connection.data_received(frame(DATA, 0, 3, b"\x00\x00\x01\x80\x00" + b"y" * 9995))
    assert {(kind, number) for kind, _, number, _ in wire.frames() if kind == WINDOW_UPDATE} == {
        (WINDOW_UPDATE, 0),
        (WINDOW_UPDATE, 3),
    }


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (call(b"/s/Nothing", b"x"), b"12"),
        (call(b"/s/No", b"x"), b"7"),
        (frame(HEADERS, END_HEADERS, 1, headers(b"/s/One")) + frame(DATA, END_STREAM, 1, b"\x01\0\0\0\x01x"), b"12"),
        (frame(HEADERS, END_HEADERS, 1, headers(b"/s/One")) + frame(DATA, END_STREAM, 1, b"\x00\0\0\0\x09x"), b"13"),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(b"/s/One")), b"13"),
        (frame(HEADERS, END_HEADERS, 1, headers(b"/s/One")) + frame(DATA, END_STREAM, 1, 2 * message(b"x")), b"13"),
        (frame(HEADERS, END_HEADERS, 1, headers(b"/s/Many")) + frame(DATA, 0, 1, b"\x00\xff\xff\xff\xff"), b"8"),
    ],
    ids=["unknown", "refused", "compressed", "cut off", "empty", "twice", "huge"],
)
def test_calls_that_fail_fail_alone(data, status):
    connection, wire = connect()
    connection.data_received(HELLO + data)
    [payload] = [p for kind, flags, _, p in wire.frames() if kind == HEADERS and flags & END_STREAM]
    assert Decoder().decode(payload)[b"grpc-status"] == status
    connection.data_received(call(b"/s/One", b"next", 3))
    assert answers(wire) == [b"NEXT"] and not wire.closed and connection.open_calls == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        HELLO + b"\xff\xff\xff" + bytes(6),
        HELLO + frame(DATA, 0, 1, b"x"),
        HELLO + frame(DATA, 0, 0, b"x"),
        HELLO + frame(HEADERS, END_HEADERS, 2, headers(b"/s/One")),
        HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        HELLO + frame(HEADERS, END_HEADERS, 1, literal(b"x", b"y" * 100) * 80),
        HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, bytes(8)),
        HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, b"\x88" * 9000) * 3,
        HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, b"") * 3,
        HELLO + frame(CONTINUATION, 0, 1, b"\x88"),
        HELLO + frame(PUSH_PROMISE, 0, 1, bytes(4)),
        HELLO + frame(PING, 0, 0, b"short"),
        HELLO + frame(SETTINGS, 0, 0, b"12345"),
        HELLO + frame(SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"),
        HELLO + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        HELLO + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
        HELLO + frame(HEADERS, END_HEADERS | h2.PADDED, 1, b"\xff"),
    ],
)
def test_a_broken_connection_ends_with_goaway(data):
    connection, wire = connect()
    connection.data_received(data)
    assert wire.closed and wire.frames()[-1][0] == GOAWAY and connection.open_calls == 0


def test_limits_of_a_connection():
    connection, wire = connect(streams=3)
    for number in (1, 3, 5, 7):
        hello = HELLO if number == 1 else b""
        connection.data_received(hello + frame(HEADERS, END_HEADERS, number, headers(b"/s/Many")))
    assert connection.open_calls == 3
    assert wire.frames()[-1][0] == RST_STREAM
    connection.data_received(frame(RST_STREAM, 0, 1, bytes(4)))
    assert connection.open_calls == 2
    connection.pause_writing()
    assert wire.paused
    connection.resume_writing()
    assert not wire.paused


def test_answers_nobody_reads_end_the_connection():
    connection, wire = connect(streams=100)
    connection.data_received(HELLO)
    for number in range(1, 99, 2):
        connection.data_received(call(b"/s/Big", b"", number))
    assert wire.closed


HEAD = frame(HEADERS, END_HEADERS, 1, headers(b"/s/Many"))
FLOODS = {
    "pings": [frame(PING, 0, 0, bytes(8))] * 3000,
    "settings": [frame(SETTINGS, 0, 0)] * 3000,
    "many settings in one frame": [frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff" * 2000)],
    "rapid resets (CVE-2023-44487)": [
        frame(HEADERS, END_HEADERS, n, headers(b"/s/Many")) + frame(RST_STREAM, 0, n, bytes(4))
        for n in range(1, 4000, 2)
    ],
    "streams that are refused": [frame(HEADERS, END_HEADERS, n, headers(b"/s/Many")) for n in range(1, 4000, 2)],
    "continuations (CVE-2024-27316)": [frame(HEADERS, 0, 1, b"")] + [frame(CONTINUATION, 0, 1, b"\x20")] * 3000,
    "large headers": [
        frame(HEADERS, END_HEADERS, n, headers(b"/s/Nothing") + literal(b"x", b"y" * 120) * 40)
        for n in range(1, 4000, 2)
    ],
    "empty data": [HEAD] + [frame(DATA, 0, 1, b"")] * 3000,
    "crumbs of a message": [HEAD + frame(DATA, 0, 1, b"\x00\x00\x00\xff\xff")] + [frame(DATA, 0, 1, b"x")] * 3000,
    "window updates": [HEAD] + [frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x01")] * 3000,
    "priorities and unknown frames": [frame(h2.PRIORITY, 0, 1, bytes(5)), frame(99, 0, 0, b"")] * 1500,
    "a window that overflows by a setting": [
        HEAD
        + frame(WINDOW_UPDATE, 0, 1, (2**31 - 1 - 65_535).to_bytes(4, "big"))
        + frame(SETTINGS, 0, 0, b"\x00\x04\x7f\xff\xff\xff")
    ],
    "a reset of no stream": [frame(RST_STREAM, 0, 0, bytes(4))],
    "a short reset": [HEAD + frame(RST_STREAM, 0, 1, b"")],
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_connection(name):
    """Soon, and with little written back: patience is the one bound that none of them gets around."""
    connection, wire = connect(message_bytes=100_000)
    connection.data_received(HELLO)
    sent = 0
    while not wire.closed and sent < 1200:
        connection.data_received(FLOODS[name][sent])
        sent += 1
    assert wire.closed
    assert len(wire.written) < 100_000 and connection.open_calls == 0


def test_honest_clients_never_run_out_of_patience():
    """As grpcio does it: with each message a ping and two window updates; a million would do as well."""
    connection, wire = connect()
    connection.data_received(HELLO + HEAD)
    update = frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x10") + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x10")
    for _ in range(5000):
        connection.data_received(frame(DATA, 0, 1, message(b"hi")) + update + frame(PING, 0, 0, bytes(8)))
        wire.written = b""
    assert not wire.closed and connection.open_calls == 1


def test_unfinished_messages_are_bounded_over_all_streams():
    connection, wire = connect(message_bytes=65_536, streams=1000)
    connection.data_received(HELLO)
    for number in range(1, 400, 2):
        connection.data_received(
            frame(HEADERS, END_HEADERS, number, headers(b"/s/One"))
            + frame(DATA, 0, number, b"\x00\x00\x00\xff\xff" + bytes(16_000))
        )
        if wire.closed:
            break
    assert wire.closed and number < 160  # a megabyte, not 200 times 64 kB
    held = connect()[0]
    for number in range(1, 4000, 2):  # what is finished, refused or reset is held no longer
        held.data_received((HELLO if number == 1 else b"") + call(b"/s/One", b"x" * 9, number))
    assert held._patience.held_bytes == 0


def test_crumbs_and_unread_answers_do_not_keep_a_connection():
    """The listener drops by `heard_s` and `stalled_s`; what does not end then is cut off at the next round."""
    connection, wire = connect()
    connection._patience.heard_s = 0.0
    connection.data_received(HELLO + HEAD + frame(PING, 0, 0, bytes(8)) + frame(DATA, 0, 1, b"\x00\x00"))
    assert connection.heard_s == 0.0
    connection.data_received(frame(DATA, 0, 1, message(b"abc")[2:]))
    assert connection.heard_s > 0.0 and connection.stalled_s is None
    connection.data_received(call(b"/s/Big", b"", 3))
    assert connection.stalled_s is not None
    connection.data_received(frame(RST_STREAM, 0, 3, bytes(4)))
    assert connection.stalled_s is None
    connection.close()
    assert wire.closed and not wire.aborted
    connection.close()
    assert wire.aborted


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 11),
            st.integers(0, 255),
            st.integers(0, 6),
            st.binary(max_size=40) | st.just(headers(b"/s/Many")) | st.just(message(b"hi")),
        ),
        max_size=12,
    )
)
def test_any_frames_only_ever_end_the_connection(frames):
    connection, wire = connect()
    connection.data_received(HELLO)
    for one in frames:
        if not wire.closed:
            connection.data_received(frame(*one))
    assert connection.open_calls <= 3


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
def test_any_header_block_is_headers_or_an_error(block):
    decoder = Decoder()
    try:
        decoder.decode(block)
    except HpackError:
        return
    assert decoder._bytes <= 4096


def test_hpack_examples_of_the_rfc():
    """RFC 7541 C.3 and C.4: three requests on one connection, the table carried on; plain and Huffman."""
    for blocks in (
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ):
        decoder = Decoder()
        first, second, third = (decoder.decode(bytes.fromhex(block)) for block in blocks)
        assert first == {b":method": b"GET", b":scheme": b"http", b":path": b"/", b":authority": b"www.example.com"}
        assert second == {**first, b"cache-control": b"no-cache"}
        assert third == {
            b":method": b"GET",
            b":scheme": b"https",
            b":path": b"/index.html",
            b":authority": b"www.example.com",
            b"custom-key": b"custom-value",
        }
    with pytest.raises(HpackError):
        huffman(b"\xff\xff\xff\xff")


@pytest.mark.asyncio(loop_scope="session")
async def test_slow_and_silent_connections_are_dropped():
    """On real sockets: one that greets and sends crumbs, one that never reads its answers, one that says nothing."""
    listener = Listener("127.0.0.1:0", None, METHODS, 100_000, 10, 100, lambda *why: None)
    accepting = asyncio.create_task(listener.accept_for_ever())
    host, _, port = listener.address.rpartition(":")
    try:
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        crumbs, deaf = clients[0][1], clients[1][1]
        deaf.write(HELLO + frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00") + call(b"/s/Big", b""))
        crumbs.write(HELLO)
        for _ in range(12):
            crumbs.write(frame(PING, 0, 0, bytes(8)))
            await asyncio.sleep(0.1)
        assert len(listener.connections) == 3
        for _ in range(3):  # closed, and if that does not help, cut off
            listener.drop_idle(1.0)
            await asyncio.sleep(0.1)
        assert not listener.connections
        for _, writer in clients:
            writer.close()
    finally:
        accepting.cancel()
        listener.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_real_clients_with_large_answers_and_many_calls():
    """grpcio's client: flow control over many answers on one connection, cancelled calls, metadata."""
    refused: list[tuple[str, str]] = []
    listener = Listener("127.0.0.1:0", None, METHODS, 100_000, 2, 100, lambda *why: refused.append(why))
    accepting = asyncio.create_task(listener.accept_for_ever())
    try:
        async with grpc.aio.insecure_channel(listener.address) as channel:
            big = channel.unary_unary("/s/Big")
            found = await asyncio.gather(*(big(b"", timeout=20) for _ in range(20)))
            assert {len(each) for each in found} == {200_000}
            one = channel.unary_unary("/s/One")
            assert await one(b"m" * 90_000, metadata=(("custom", "~value {} \\"),), timeout=5) == b"M" * 90_000
            many = channel.stream_stream("/s/Many")()
            for i in range(500):
                await many.write(b"n%d" % i)
                assert await many.read() == b"N%d" % i
            many.cancel()
            with pytest.raises(grpc.aio.AioRpcError, match="no, 100 % no"):
                await channel.unary_unary("/s/No")(b"", timeout=5)
            assert await one(b"still", timeout=5) == b"STILL"
            host, _, port = listener.address.rpartition(":")
            _, second = await asyncio.open_connection(host, int(port))
            reader, third = await asyncio.open_connection(host, int(port))  # one more than allowed
            assert await reader.read() == b""
            assert refused[0][0] == "connections"
            second.close()
            third.close()
    finally:
        accepting.cancel()
        listener.close()
