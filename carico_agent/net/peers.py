"""Who is at the other end: SO_PEERCRED on the unix socket, address or certificate on TCP."""

import asyncio
import os
import socket
import struct

from carico_agent.net.limits import Peer
from carico_agent.net.tls import common_names

_UCRED = struct.Struct("3i")


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
