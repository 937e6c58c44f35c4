"""gRPC's server side over HTTP/2 (RFC 9113) in asyncio: frames in, calls answered at once, frames out.

Why not grpcio's own server: measured here, an exchange that does nothing cost grpc.aio 360 µs of CPU at 1,000 nodes
(its threaded server 460 µs) and each stream 26 kB; with our work in it, 5,000 streams took 184 MB, above the budget of
150. The same 5,000 take 57 % of a core, 58 MB and a p99 of 11 ms here (`python -m lab.bench_federation`). All our calls
answer from memory without waiting, so none of its threads, queues and tasks is needed. Clients are grpcio's, and the
tests use those. What gRPC does not need is refused: priorities and trailers are read over, pushes, compressed
messages and other methods than POST are errors. A fault ends its connection with GOAWAY, and nothing else.
What a client may cost is bounded (patience.py); one that does not read, or says nothing, the listener drops.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from carico_agent.federation.call import UNKNOWN, Call, Method
from carico_agent.federation.frames import (
    ACK,
    CALM,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INTERNAL,
    MOST_QUEUED_BYTES,
    MOST_SETTINGS,
    MOST_WINDOW,
    NOT_GRPC,
    OK,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RESOURCE_EXHAUSTED,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_HEADER_BYTES,
    SETTINGS_STREAMS,
    SETTINGS_WINDOW,
    UNIMPLEMENTED,
    WINDOW,
    WINDOW_UPDATE,
    CallError,
    Fault,
    frame,
    status,
    unpadded,
)
from carico_agent.federation.hpack import Decoder, HpackError
from carico_agent.federation.patience import Patience
from carico_agent.net.tls import common_names


class Connection(asyncio.Protocol):
    """One client. Made by the listener for each accepted socket."""

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_stream",
        "_buffer",
        "_calls",
        "_decoder",
        "_first_window",
        "_greeted",
        "_last",
        "_lost",
        "_message_bytes",
        "_methods",
        "_out",
        "_patience",
        "_queued",
        "_streams",
        "_transport",
        "_unacknowledged",
        "_window",
        "identity",
        "stalled_s",
    )

    def __init__(
        self, methods: Mapping[bytes, Method], message_bytes: int, streams: int, lost: Callable[["Connection"], None]
    ) -> None:
        self._methods, self._message_bytes, self._streams, self._lost = methods, message_bytes, streams, lost
        self.identity: str | None = None
        self.stalled_s: float | None = None
        """Since when answers wait for the client's window."""
        self._patience = Patience(time.monotonic())
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._greeted = False
        self._decoder = Decoder()
        self._calls: dict[int, Call] = {}
        self._last = 0
        self._window = self._first_window = WINDOW
        self._unacknowledged = self._queued = 0
        self._block, self._block_stream, self._block_flags = b"", 0, 0
        self._out: list[bytes] = []

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        certificate = transport.get_extra_info("peercert")
        if transport.get_extra_info("ssl_object") is not None:
            self.identity = _node_name(certificate or {})
        limits = (SETTINGS_STREAMS, self._streams), (SETTINGS_HEADER_BYTES, 8192)
        transport.write(frame(SETTINGS, 0, 0, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in limits)))

    def connection_lost(self, error: Exception | None) -> None:
        self._calls.clear()
        self._lost(self)

    def pause_writing(self) -> None:
        """The client does not read: neither do we, until it does."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._patience.look(time.monotonic())
        try:
            self._buffer = self._frames(self._buffer + data if self._buffer else data)
        except Fault as fault:
            self.close(fault.code, str(fault))
        except HpackError as error:
            self.close(COMPRESSION_ERROR, str(error))
        else:
            self._write()

    def _write(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out) if len(self._out) > 1 else self._out[0])
            self._out.clear()

    def close(self, code: int = 0, text: str = "") -> None:
        """End the connection and say why. Of one that is ending already nobody reads what is left: cut it."""
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()
            return
        self._out.append(frame(GOAWAY, 0, 0, self._last.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()))
        self._write()
        self._calls.clear()
        if self._transport is not None:
            self._transport.close()

    @property
    def greeted(self) -> bool:
        return self._greeted

    @property
    def heard_s(self) -> float:
        """When the last whole message came."""
        return self._patience.heard_s

    @property
    def open_calls(self) -> int:
        return len(self._calls)

    # Frames in

    def _frames(self, buffer: bytes) -> bytes:
        """Take in all whole frames; what is left."""
        at, end = 0, len(buffer)
        if not self._greeted:
            if buffer[:24] != PREFACE[:end]:
                raise Fault(PROTOCOL_ERROR, "not HTTP/2")
            if end < 24:
                return buffer
            self._greeted, at = True, 24
        while end - at >= 9:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            if length > FRAME_BYTES:
                raise Fault(FRAME_SIZE_ERROR, "frame too large")
            if end - at - 9 < length:
                break
            number = int.from_bytes(buffer[at + 5 : at + 9], "big") & MOST_WINDOW
            self._frame(buffer[at + 3], buffer[at + 4], number, buffer[at + 9 : at + 9 + length])
            at += 9 + length
        return buffer[at:]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
            raise Fault(PROTOCOL_ERROR, "headers are not continued")
        self._patience.frame()
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind == HEADERS:
            self._headers(flags, number, payload)
        elif kind == CONTINUATION:
            self._continuation(flags, number, payload)
        elif kind == WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == SETTINGS:
            self._settings(flags, number, payload)
        elif kind == PING:
            if len(payload) != 8 or number:
                raise Fault(FRAME_SIZE_ERROR, "ping")
            if not flags & ACK:
                self._out.append(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            if len(payload) != 4 or not number:
                raise Fault(FRAME_SIZE_ERROR, "reset")
            self._forget(number)
        elif kind == PUSH_PROMISE:
            raise Fault(PROTOCOL_ERROR, "clients do not push")

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        if not number or number > self._last:
            raise Fault(PROTOCOL_ERROR, "data on a stream that was not opened")
        size = len(payload)
        self._unacknowledged += size
        if self._unacknowledged > WINDOW // 2:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, self._unacknowledged.to_bytes(4, "big")))
            self._unacknowledged = 0
        call = self._calls.get(number)
        if call is None or call.half_closed or call.trailers is not None:
            return  # answered or reset already; what was under way is read over
        if flags & PADDED:
            payload = unpadded(payload)
        call.unacknowledged += size
        if call.unacknowledged > WINDOW // 2 and not flags & END_STREAM:
            self._out.append(frame(WINDOW_UPDATE, 0, number, call.unacknowledged.to_bytes(4, "big")))
            call.unacknowledged = 0
        try:
            self._messages(number, call, payload)
            if flags & END_STREAM:
                self._half_close(number, call)
        except CallError as error:
            self._finish(number, call, error.code, error.text)

    def _messages(self, number: int, call: Call, payload: bytes) -> None:
        """gRPC's own frames: one byte "compressed", four bytes of length, the message."""
        received = call.received + payload if call.received else payload
        while len(received) >= 5:
            if received[0]:
                raise CallError(UNIMPLEMENTED, "compressed messages")
            length = int.from_bytes(received[1:5], "big")
            if length > self._message_bytes:
                raise CallError(RESOURCE_EXHAUSTED, f"a message of {length} bytes, {self._message_bytes} are allowed")
            if len(received) < 5 + length:
                break
            message, received = received[5 : 5 + length], received[5 + length :]
            self._patience.message()
            if call.method.stream:
                self._reply(number, call, call.method.answer(message, self.identity))
            elif call.message is not None:
                raise CallError(INTERNAL, "more than one message")
            else:
                call.message = message
                self._patience.hold(length)
        self._patience.hold(len(received) - len(call.received))
        call.received = received

    def _half_close(self, number: int, call: Call) -> None:
        call.half_closed = True
        if call.received or (call.message is None and not call.method.stream):
            raise CallError(INTERNAL, "the message is not complete")
        if call.message is not None:
            self._reply(number, call, call.method.answer(call.message, self.identity))
        self._finish(number, call, OK)

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        self._patience.headers(len(payload))
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & HAS_PRIORITY:
            payload = payload[5:]
        if not flags & END_HEADERS:
            self._block, self._block_stream, self._block_flags = payload, number, flags
        else:
            self._open(number, flags, self._decoder.decode(payload))

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            raise Fault(PROTOCOL_ERROR, "nothing to continue")
        self._patience.headers(len(payload))
        self._block += payload
        if len(self._block) > FRAME_BYTES or not payload:
            raise Fault(CALM, "headers without end")
        if flags & END_HEADERS:
            block, first = self._block, self._block_flags
            self._block, self._block_stream, self._block_flags = b"", 0, 0
            self._open(number, first, self._decoder.decode(block))

    def _open(self, number: int, flags: int, headers: Mapping[bytes, bytes]) -> None:
        if not number % 2:
            raise Fault(PROTOCOL_ERROR, "a client's streams have odd numbers")
        if number <= self._last:
            if number in self._calls and flags & END_STREAM:  # trailers
                self._data(END_STREAM, number, b"")
            return
        self._last = number
        if len(self._calls) >= self._streams:
            self._out.append(frame(RST_STREAM, 0, number, REFUSED_STREAM.to_bytes(4, "big")))
            return
        grpc = headers.get(b"content-type", b"").startswith(b"application/grpc")
        if not grpc or headers.get(b":method") != b"POST":
            self._out.append(frame(HEADERS, END_STREAM | END_HEADERS, number, NOT_GRPC))
            return
        method = self._methods.get(headers.get(b":path", b""))
        call = Call(method or UNKNOWN, self._first_window)
        self._calls[number] = call
        if method is None:
            self._finish(number, call, UNIMPLEMENTED, "no such method")
        elif flags & END_STREAM:
            self._data(END_STREAM, number, b"")

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) % 6 or len(payload) > 6 * MOST_SETTINGS or (flags & ACK and payload):
            raise Fault(FRAME_SIZE_ERROR, "settings")
        if flags & ACK:
            return
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2], "big") == SETTINGS_WINDOW:
                window = int.from_bytes(payload[at + 2 : at + 6], "big")
                if window > MOST_WINDOW:
                    raise Fault(FLOW_CONTROL_ERROR, "window")
                for call in self._calls.values():
                    call.window += window - self._first_window
                    if call.window > MOST_WINDOW:
                        raise Fault(FLOW_CONTROL_ERROR, "window")
                self._first_window = window
        self._out.append(frame(SETTINGS, ACK, 0))
        self._flush_all()

    def _window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(FRAME_SIZE_ERROR, "window update")
        more = int.from_bytes(payload, "big") & MOST_WINDOW
        if not number:
            self._window += more
            if not more or self._window > MOST_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "window")
            self._flush_all()
        elif (call := self._calls.get(number)) is not None:
            call.window += more
            if not more or call.window > MOST_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "window")
            self._flush(number, call)

    # Frames out

    def _reply(self, number: int, call: Call, message: bytes) -> None:
        if not call.started:
            call.started = True
            self._out.append(frame(HEADERS, END_HEADERS, number, RESPONSE))
        body = b"\x00" + len(message).to_bytes(4, "big") + message
        size = len(body)
        if call.queue is None and size <= FRAME_BYTES and size <= self._window and size <= call.window:
            self._window -= size
            call.window -= size
            self._out.append(frame(DATA, 0, number, body))
            return
        call.queue = [*(call.queue or ()), body]
        self._queued += size
        if self._queued > MOST_QUEUED_BYTES:
            raise Fault(CALM, "answers are not read")
        if self.stalled_s is None:
            self.stalled_s = self._patience.now_s
        self._flush(number, call)

    def _finish(self, number: int, call: Call, code: int, text: str = "") -> None:
        end = status(code, text)
        call.trailers = end if call.started else RESPONSE + end
        self._flush(number, call)

    def _flush_all(self) -> None:
        for number, call in list(self._calls.items()):
            if call.queue is not None:
                self._flush(number, call)

    def _flush(self, number: int, call: Call) -> None:
        """Send as much of the queue as the windows allow, then the trailers."""
        while call.queue:
            room = min(self._window, call.window, FRAME_BYTES)
            if room <= 0:
                return
            piece, rest = call.queue[0][:room], call.queue[0][room:]
            call.queue[:1] = [rest] if rest else []
            self._queued -= len(piece)
            self._window -= len(piece)
            call.window -= len(piece)
            self._out.append(frame(DATA, 0, number, piece))
        call.queue = None
        if not self._queued:
            self.stalled_s = None
        if call.trailers is not None:
            self._out.append(frame(HEADERS, END_STREAM | END_HEADERS, number, call.trailers))
            if not call.half_closed:
                self._out.append(frame(RST_STREAM, 0, number, bytes(4)))
            self._forget(number)

    def _forget(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return
        self._patience.hold(-len(call.received) - len(call.message or b""))
        self._queued -= sum(map(len, call.queue or ()))
        if not self._queued:
            self.stalled_s = None


def _node_name(certificate: Mapping[str, object]) -> str:
    """The one name a certificate speaks for; "system:node:" is Kubernetes' way to write a node's."""
    names = common_names(certificate)
    return names[0].removeprefix("system:node:") if len(names) == 1 else ""
