"""Who speaks on loopback: every user of the machine can connect there, and a browser can be led there.

A web page of any site may let its own name point to 127.0.0.1 (DNS rebinding), so a request on loopback counts only
under a loopback name. And /proc/net/tcp says which user owns the socket at the other end.
"""

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web

from carico_agent.lib.net.address import BadAddress, is_loopback, split

TABLES = ("tcp", "tcp6")


def is_foreign_host(request: web.BaseRequest) -> bool:
    """Whether a request came over plain loopback under a name that is not loopback's."""
    transport = request.transport
    if transport is None or transport.get_extra_info("ssl_object") is not None:
        return False
    here = transport.get_extra_info("sockname")
    if not isinstance(here, tuple) or not is_loopback(str(here[0])):
        return False
    try:
        host = split(request.host)[0] if ":" in request.host.rpartition("]")[2] else request.host.strip("[]")
    except BadAddress:
        return True
    return not is_loopback(host)


def peer_uid(transport: asyncio.BaseTransport, folder: Path = Path("/proc/self/net")) -> int | None:
    """The user at the other end of a TCP connection within this machine; None where the kernel does not show it."""
    there, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not isinstance(there, tuple) or not isinstance(here, tuple):
        return None
    wanted = {(local, remote) for local in _spelled(there) for remote in _spelled(here)}
    for name in TABLES:
        for row in _rows(folder / name):
            if (row[1], row[2]) in wanted:
                return int(row[7])
    return None


def _rows(table: Path) -> Iterator[list[str]]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    yield from (row for line in lines if len(row := line.split()) > 9)


def _spelled(address: tuple[str | int, ...]) -> list[str]:
    """An address as /proc/net writes it: words of four bytes in the machine's order, hexadecimal; IPv4 also as the IPv6
    socket of a client would have it.

    >>> _spelled(("127.0.0.1", 80))[0] if sys.byteorder == "little" else "0100007F:0050"
    '0100007F:0050'
    """
    ip, port = ipaddress.ip_address(str(address[0]).partition("%")[0]), int(address[1])
    forms = [ip.packed]
    if ip.version == 4:
        forms.append(socket.inet_pton(socket.AF_INET6, f"::ffff:{ip}"))
    elif ip.ipv4_mapped is not None:
        forms.append(ip.ipv4_mapped.packed)
    return [f"{_words(packed)}:{port:04X}" for packed in forms]


def _words(packed: bytes) -> str:
    step = -1 if sys.byteorder == "little" else 1
    return "".join(packed[at : at + 4][::step].hex() for at in range(0, len(packed), 4)).upper()
