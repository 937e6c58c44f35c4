"""Addresses: "host:port", "[v6]:port" or "unix:PATH"; and whether anybody beyond this machine can reach them."""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager

MAX_PATH_CHARS = 102
"""A unix socket's path has at most 107 bytes, "unix:" included."""


class BadAddress(ValueError):
    """An address that cannot be used, or not without TLS."""


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """An address that cannot be listened on is reported with the setting that it comes from."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{setting}: {error.strerror or error}") from error


def split(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port".

    >>> split("[::1]:7420"), split("node-1:80")
    (('::1', 7420), ('node-1', 80))
    >>> split("node-1")
    Traceback (most recent call last):
    carico_agent.lib.net.address.BadAddress: 'node-1' is neither host:port nor unix:/path
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise BadAddress(f"{address!r} is neither host:port nor unix:/path")
    return host.strip("[]"), int(port)


def split_listen(address: str) -> tuple[str, int]:
    """The same for a listener, which may leave out the host: then it listens on all of them.

    >>> split_listen("127.0.0.1:9750"), split_listen(":80")
    (('127.0.0.1', 9750), ('0.0.0.0', 80))
    """
    return split(f"0.0.0.0{address}" if address.startswith(":") else address)


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine and nothing else.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("10.0.0.1")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_private(address: str) -> bool:
    """Whether only this machine can reach `address`: a unix socket or loopback."""
    return address.startswith("unix:") or is_loopback(split(address)[0])


def check(address: str, encrypted: bool, allow_plaintext: bool) -> None:
    """Raises BadAddress for what is no address, and for plaintext where another machine could listen in."""
    if address.startswith("unix:"):
        if not 0 < len(address) - 5 <= MAX_PATH_CHARS:
            raise BadAddress(f"{address!r}: a unix socket's path has 1 to {MAX_PATH_CHARS} characters")
    elif not encrypted and not is_private(address) and not allow_plaintext:
        raise BadAddress(f"{address}: plaintext is for loopback and unix sockets; give tls_* files, or allow_plaintext")
