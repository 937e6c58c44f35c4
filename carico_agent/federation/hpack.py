"""HPACK (RFC 7541), the decoding half: what a gRPC server needs to understand the headers of a request.

Every length is bounded; whatever breaks a bound or the format raises HpackError, which ends the connection.
"""

from collections import deque
from collections.abc import Mapping

MOST_TABLE_BYTES = 4096  # what a client may assume before it has seen our settings
MOST_HEADER_BYTES = 8192
ENTRY_BYTES = 32  # what RFC 7541 §4.1 adds to the length of an entry

# RFC 7541 appendix A; a name without "=" has an empty value.
_STATIC = """:authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200
:status=204
:status=206|:status=304|:status=400|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate|accept-language
accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|content-disposition
content-encoding|content-language|content-length|content-location|content-range|content-type|cookie|date|etag|expect
expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link|location
max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie
strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""


class HpackError(ValueError):
    """Headers that are not HPACK, or more of them than we take."""


def _static_table() -> list[tuple[bytes, bytes]]:
    entries = _STATIC.replace("\n", "|").split("|")
    pairs = (entry.partition("=") for entry in entries)
    return [(name.encode(), value.encode()) for name, _, value in pairs]


# RFC 7541 appendix B is a canonical code: the lengths say it all. Headers of gRPC are printable ASCII (binary ones are
# base64), so the longer codes of other bytes are not needed; they are refused.
_LENGTHS: Mapping[int, bytes] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\",
}


def _huffman_codes() -> dict[tuple[int, int], int]:
    codes, code, before = {}, 0, 0
    for length, symbols in _LENGTHS.items():
        code <<= length - before
        before = length
        for symbol in symbols:
            codes[length, code] = symbol
            code += 1
    return codes


STATIC = _static_table()
HUFFMAN = _huffman_codes()


def huffman(data: bytes) -> bytes:
    """Decode a Huffman string.

    >>> huffman(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff"))   # RFC 7541, C.4.1
    b'www.example.com'
    """
    out = bytearray()
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | (byte >> shift & 1)
            length += 1
            symbol = HUFFMAN.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code = length = 0
            elif length > 19:
                raise HpackError("a byte that has no place in gRPC headers")
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("Huffman padding")
    return bytes(out)


class Decoder:
    """The state of one connection's headers, in one direction."""

    def __init__(self) -> None:
        self._table: deque[tuple[bytes, bytes]] = deque()
        self._bytes = 0
        self._most_bytes = MOST_TABLE_BYTES

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """The headers of a block; of a name that occurs twice, the last value."""
        headers: dict[bytes, bytes] = {}
        at, total = 0, 0
        while at < len(block):
            first = block[at]
            if first & 0x80:  # an entry of the tables
                index, at = self._integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:  # a new size of the table
                size, at = self._integer(block, at, 5)
                self._resize(size)
                continue
            else:  # a literal: 01 remembered, 0000 not, 0001 never
                remembered = bool(first & 0x40)
                index, at = self._integer(block, at, 6 if remembered else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = self._string(block, at)
                value, at = self._string(block, at)
                if remembered:
                    self._remember(name, value)
            total += len(name) + len(value) + ENTRY_BYTES
            if total > MOST_HEADER_BYTES:
                raise HpackError("too many headers")
            headers[name] = value
        return headers

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 1 <= index <= len(STATIC):
            return STATIC[index - 1]
        if len(STATIC) < index <= len(STATIC) + len(self._table):
            return self._table[index - len(STATIC) - 1]
        raise HpackError(f"no entry {index}")

    def _remember(self, name: bytes, value: bytes) -> None:
        self._table.appendleft((name, value))
        self._bytes += len(name) + len(value) + ENTRY_BYTES
        self._evict()

    def _resize(self, size: int) -> None:
        if size > MOST_TABLE_BYTES:
            raise HpackError(f"a table of {size} bytes")
        self._most_bytes = size
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._most_bytes:
            name, value = self._table.pop()
            self._bytes -= len(name) + len(value) + ENTRY_BYTES

    @staticmethod
    def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
        mask = (1 << bits) - 1
        value = block[at] & mask
        at += 1
        if value < mask:
            return value, at
        for shift in range(0, 28, 7):  # RFC 7541 §5.1, as far as any bound of ours needs it
            if at >= len(block):
                break
            byte = block[at]
            at += 1
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise HpackError("an integer that is cut off or too large")

    def _string(self, block: bytes, at: int) -> tuple[bytes, int]:
        if at >= len(block):
            raise HpackError("a string that is cut off")
        coded = block[at] & 0x80
        length, at = self._integer(block, at, 7)
        if at + length > len(block):
            raise HpackError("a string that is cut off")
        data = block[at : at + length]
        return (huffman(data) if coded else data), at + length
