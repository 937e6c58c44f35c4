"""TCP connections that a library of this process has accepted: who they are, by the kernel's tables, and ending them.

Why: gRPC's C core limits connections in number and time but not per address, gives no hook between accept and the end
of the handshake, and takes no sockets that we have accepted. One address could hold all connections that are allowed,
for as long as a handshake may take, again and again. Passing the bytes on ourselves would cost more than serving them.

`sockstat` says in 0.2 ms how many connections there are; only when there are more than can be explained, the
tables (/proc/self/net/tcp, tcp6) are read: 50 ms for 10,000 sockets, most of it in the kernel, so a thread does it.
Linux only, as are the agents.
"""

import ipaddress
import os
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

NET: Final = Path("/proc/self/net")
ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Accepted:
    """One connection; `inode` is its socket's."""

    address: str
    port: int
    inode: int

    @property
    def peer(self) -> str:
        """As gRPC writes it.

        >>> Accepted("10.0.0.1", 5, 0).peer, Accepted("fd00::1", 5, 0).peer
        ('ipv4:10.0.0.1:5', 'ipv6:%5Bfd00::1%5D:5')
        """
        return f"ipv6:%5B{self.address}%5D:{self.port}" if ":" in self.address else f"ipv4:{self.address}:{self.port}"


def in_use(net: Path = NET) -> int:
    """TCP sockets of this network namespace."""
    return sum(_in_use((net / name).read_text()) for name in ("sockstat", "sockstat6") if (net / name).exists())


def _in_use(text: str) -> int:
    """
    >>> _in_use("sockets: used 9\\nTCP: inuse 7 orphan 0 tw 1\\n"), _in_use("TCP6: inuse 3\\n"), _in_use("")
    (7, 3, 0)
    """
    words = [line.split() for line in text.splitlines() if line.startswith(("TCP: inuse", "TCP6: inuse"))]
    return sum(int(line[2]) for line in words)


def accepted(port: int, net: Path = NET) -> list[Accepted]:
    """Open connections to this port of ours."""
    found = []
    for name in ("tcp", "tcp6"):
        if (net / name).exists():
            found += parse((net / name).read_text(), port)
    return found


def parse(table: str, port: int) -> list[Accepted]:
    """Of a table of the kernel (Linux Documentation/networking/proc_net_tcp).

    >>> row = "0: 0100007F:1CFC 0200007F:D431 01 00000000:00000000 00:00000000 00000000 0 0 4242 1 ffff 20 4 30 10 -1"
    >>> parse(f"  sl  local_address rem_address\\n{row}\\n", 7420), parse(row, 7421)
    ([Accepted(address='127.0.0.2', port=54321, inode=4242)], [])
    """
    suffix, found = f":{port:04X}", []
    for line in table.splitlines():
        if suffix not in line:
            continue
        fields = line.split()
        if fields[1].endswith(suffix) and fields[3] == ESTABLISHED:
            remote, _, remote_port = fields[2].partition(":")
            found.append(Accepted(_address(remote), int(remote_port, 16), int(fields[9])))
    return found


@lru_cache(maxsize=8192)
def _address(text: str) -> str:
    """Words of 32 bits in the machine's byte order, each in hex.

    >>> _address("0100007F"), _address("0000000000000000FFFF00000100007F"), _address("000000FD000000000000000001000000")
    ('127.0.0.1', '127.0.0.1', 'fd00::1')
    """
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    raw = b"".join(socket.ntohl(word).to_bytes(4, "big") for word in words)
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def excess(connections: Iterable[Accepted], most: int) -> list[Accepted]:
    """Of every address those beyond `most`."""
    counts: dict[str, int] = {}
    beyond = []
    for one in connections:
        counts[one.address] = counts.get(one.address, 0) + 1
        if counts[one.address] > most:
            beyond.append(one)
    return beyond


def shut_down(connections: Collection[Accepted]) -> int:
    """End these connections of this process; how many. The owner of the socket sees that its peer has gone."""
    wanted = {f"socket:[{one.inode}]": one for one in connections}
    ended = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # a descriptor that has just been closed
            if (one := wanted.get(os.readlink(f"/proc/self/fd/{name}"))) is not None:
                ended += _shut_down(int(name), one)
    return ended


def _shut_down(descriptor: int, one: Accepted) -> bool:
    """A copy of the descriptor is looked at once more: its number may stand for another connection by now."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getpeername()[1] != one.port:
            return False
        connection.shutdown(socket.SHUT_RDWR)
        return True
