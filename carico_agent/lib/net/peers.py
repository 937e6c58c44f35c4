"""Who is at the other end: SO_PEERCRED on the unix socket, address or certificate on TCP."""

import asyncio
import errno
import ipaddress
import os
import socket
import struct

from carico_agent.lib.net.limits import Peer
from carico_agent.lib.net.tls import common_names

_UCRED = struct.Struct("3i")
SO_PEERPIDFD = 77
"""Linux 6.5; not in the socket module of Python 3.11."""


def peer_pid(connection: socket.socket) -> int:
    """The process that connected, as seen from here; 0 when it is in a namespace we cannot see."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid: int = _UCRED.unpack(raw)[0]
    return pid


def peer_pidfd(connection: socket.socket) -> int | None:
    """A descriptor of that very process, for the caller to close; None where the kernel is older than 6.5. Raises
    ProcessLookupError when the process is gone."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:
            return None
        raise ProcessLookupError("the process that connected is gone") from error


def peer_of(connection: socket.socket) -> Peer:
    """The kernel's word, not the client's. On TCP no client is trusted. OSError if the connection is gone already."""
    if connection.family == socket.AF_UNIX:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(f"uid {uid}", trusted=uid in (0, os.geteuid()))
    return Peer(network_of(connection.getpeername()[0]), may_reserve=False)


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 that one IPv6 host may choose addresses from.

    >>> network_of("10.0.0.1"), network_of("::ffff:10.0.0.1"), network_of("fd00::1:2:3:4%eth0"), network_of("fd00::2")
    ('10.0.0.1', '10.0.0.1', 'fd00::/64', 'fd00::/64')
    """
    if ":" not in address:
        return address
    known = ipaddress.IPv6Address(address.partition("%")[0])
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.IPv6Network((known, 64), strict=False))


def peer_with_certificate(origin: Peer, transport: asyncio.BaseTransport) -> Peer:
    """After a handshake: by the client's certificate, if it showed one. Only a certificate may reserve over TCP."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return origin
    names = common_names(certificate)
    return Peer(f"certificate {names[0] if names else '?'}")
