"""HTTP/2's frames (RFC 9113) and gRPC's statuses: names, numbers, and how to write them."""

from urllib.parse import quote

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR, CALM = 1, 3, 6, 7, 9, 11
FRAME_BYTES = 16_384
WINDOW = 65_535
MOST_WINDOW = 2**31 - 1
MOST_QUEUED_BYTES = 1 << 20
MOST_SETTINGS = 32
OK, INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 3, 7, 8, 12, 13


class CallError(Exception):
    """A call that ends with a gRPC status other than OK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Fault(Exception):
    """The other side broke HTTP/2; the connection ends with this error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header without indexing (shorter than 127 each)."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


RESPONSE = b"\x88" + literal(b"content-type", b"application/grpc")  # 0x88: ":status 200" of the static table
NOT_GRPC = literal(b":status", b"415")
TRAILERS_OK = literal(b"grpc-status", b"0")
SETTINGS_STREAMS, SETTINGS_WINDOW, SETTINGS_HEADER_BYTES = 3, 4, 6


def unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Fault(PROTOCOL_ERROR, "padding")
    return payload[1 : len(payload) - payload[0]]


def status(code: int, text: str) -> bytes:
    """The trailers that end a call."""
    if code == OK:
        return TRAILERS_OK
    return literal(b"grpc-status", str(code).encode()) + literal(b"grpc-message", quote(text)[:120].encode())
