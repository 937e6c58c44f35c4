"""Who is at the other end: SO_PEERCRED on the unix socket, address or certificate on TCP."""

import asyncio
import os
import socket
import ssl
import struct

from carico_agent.publish.limits import Client

_UCRED = struct.Struct("3i")


def client_of(transport: asyncio.BaseTransport) -> Client:
    """The kernel's word, not the client's. On TCP nobody is trusted, and only a certificate may reserve."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Client(f"uid {uid}", trusted=uid in (0, os.geteuid()))
    certificate = transport.get_extra_info("peercert")
    if certificate:
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        return Client(f"certificate {names[0] if names else '?'}")
    address = transport.get_extra_info("peername") or ("?",)
    return Client(str(address[0]), may_reserve=False)


def server_context(cert: str, key: str, ca: str) -> ssl.SSLContext:
    """TLS for the TCP listener; with `ca`, clients need a certificate of it. OSError if the files do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    if ca:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
