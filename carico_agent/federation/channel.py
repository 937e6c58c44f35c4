"""A channel to an aggregator: plaintext only where no other machine can eavesdrop, mTLS elsewhere."""

import grpc

from carico_agent.lib.net.tls import TlsFiles


def same(raw: bytes) -> bytes:
    """Messages travel as the bytes they are; wire.py reads and writes them."""
    return raw


def open_channel(
    address: str, tls: TlsFiles | None, server_name: str, options: list[tuple[str, int | str]]
) -> grpc.aio.Channel:
    """A channel to an aggregator; raises OSError if the certificates cannot be read."""
    if tls is None or address.startswith("unix:"):
        return grpc.aio.insecure_channel(address, options=options)
    ca, cert, key = tls.read()
    if server_name:
        options = [*options, ("grpc.ssl_target_name_override", server_name)]
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options=options)
