"""Who is at the other end: SO_PEERCRED on the unix socket, address or certificate on TCP."""

import asyncio
import errno
import os
import socket
import struct
from asyncio.trsock import TransportSocket

from carico_agent.lib.net.limits import Peer
from carico_agent.lib.net.tls import common_names

_UCRED = struct.Struct("3i")
SO_PEERPIDFD = 77
"""Linux 6.5; not in the socket module of Python 3.11."""


def peer_pid(connection: "socket.socket | TransportSocket") -> int:
    """The process that connected, as seen from here; 0 when it is in a namespace we cannot see."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid: int = _UCRED.unpack(raw)[0]
    return pid


def peer_pidfd(connection: "socket.socket | TransportSocket") -> int | None:
    """A descriptor of that very process, for the caller to close; None where the kernel is older than 6.5. Raises
    ProcessLookupError when the process is gone."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:
            return None
        raise ProcessLookupError("the process that connected is gone") from error


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """The kernel's word, not the client's. On TCP nobody is trusted, and only a certificate may reserve."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(f"uid {uid}", trusted=uid in (0, os.geteuid()))
    certificate = transport.get_extra_info("peercert")
    if certificate:
        names = common_names(certificate)
        return Peer(f"certificate {names[0] if names else '?'}")
    address = transport.get_extra_info("peername") or ("?",)
    return Peer(str(address[0]), may_reserve=False)
