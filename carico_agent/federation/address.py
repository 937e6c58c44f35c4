"""Addresses and credentials: "host:port" or "unix:PATH", plaintext only where nobody can listen in, mTLS elsewhere."""

import ipaddress
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import grpc

log = logging.getLogger(__name__)


class BadAddress(ValueError):
    """An address that cannot be used, or not without TLS."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: whom to believe, who we are."""

    ca: str
    cert: str
    key: str

    @classmethod
    def of(cls, ca: str, cert: str, key: str) -> "Tls | None":
        """None if none is given; all three belong together."""
        if not (ca or cert or key):
            return None
        if not (ca and cert and key):
            raise BadAddress("tls_ca, tls_cert and tls_key are needed together")
        return cls(ca, cert, key)

    def print(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file changes (certificate managers replace files, so the inode counts)."""
        stats = [os.stat(path) for path in (self.ca, self.cert, self.key)]
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Contents of ca, cert, key; raises OSError or ssl.SSLError (an OSError too) if they do not fit together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        context.load_verify_locations(self.ca)
        contents = []
        for path in (self.ca, self.cert, self.key):
            with open(path, "rb") as file:
                contents.append(file.read())
        return contents[0], contents[1], contents[2]


def split(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port".

    >>> split("[::1]:7420"), split("node-1:80")
    (('::1', 7420), ('node-1', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or not host:
        raise BadAddress(f"{address!r} is neither host:port nor unix:/path")
    return host.strip("[]"), int(port)


def is_private(address: str) -> bool:
    """Whether only this machine can reach it: a unix socket or loopback."""
    if address.startswith("unix:"):
        return True
    host, _ = split(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check(address: str, tls: Tls | None, allow_plaintext: bool) -> None:
    """Raises BadAddress for plaintext where somebody else could listen in."""
    if address.startswith("unix:"):
        if not address[5:] or len(address) > 107:
            raise BadAddress(f"{address!r}: a unix socket's path has 1 to 102 characters")
        return
    if tls is None and not is_private(address) and not allow_plaintext:
        raise BadAddress(f"{address}: plaintext is for loopback and unix sockets; give tls_* files, or allow_plaintext")
    split(address)


def same(raw: bytes) -> bytes:
    """Messages travel as the bytes they are; wire.py reads and writes them."""
    return raw


def open_channel(
    address: str, tls: Tls | None, server_name: str, options: list[tuple[str, int | str]]
) -> grpc.aio.Channel:
    """A channel to an aggregator; raises OSError if the certificates cannot be read."""
    if tls is None or address.startswith("unix:"):
        return grpc.aio.insecure_channel(address, options=options)
    ca, cert, key = tls.read()
    if server_name:
        options = [*options, ("grpc.ssl_target_name_override", server_name)]
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options=options)


def common_name(certificate: Mapping[str, object]) -> str:
    """The one name a certificate speaks for; "system:node:" is Kubernetes' way to write a node's."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    names = [value for part in subject for key, value in part if key == "commonName"]
    return str(names[0]).removeprefix("system:node:") if len(names) == 1 else ""


def server_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """mTLS for HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    return context
