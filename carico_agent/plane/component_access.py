"""Clients for the other components' metrics: one each, with its own credentials or the API server's."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from carico_agent.lib.kube.access import Access
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import BadAccess
from carico_agent.plane.endpoints import Endpoint, parse_endpoint


@dataclass(frozen=True)
class AnyCertificate(Access):
    """An address on this machine whose certificate is not verified."""

    def tls(self, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext | None:
        context = super().tls(certificate, key)
        if context is not None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def access_for(endpoint: Endpoint, api: Access) -> Access:
    """How to ask, with the API server's credentials where the endpoint names none; raises BadAccess."""
    parts = urlsplit(endpoint.url)
    server = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme == "http":
        return Access(server)
    kind = AnyCertificate if endpoint.trust else Access
    own = endpoint.token or endpoint.certificate
    access = kind(
        server,
        ca_file=endpoint.ca or api.ca_file,
        ca_data="" if endpoint.ca else api.ca_data,
        token_file=endpoint.token if own else api.token_file,
        token="" if own else api.token,
        exec=None if own else api.exec,
    )
    if endpoint.certificate:
        return replace(access, certificate=_bytes(endpoint.certificate), key=_bytes(endpoint.key))
    return access if own else replace(access, certificate=api.certificate, key=api.key)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadAccess(f"{path}: {error.strerror}") from error


class Endpoints:
    """A client per component; close them."""

    def __init__(self, components: Mapping[str, str], api: Access) -> None:
        self._api = api
        self._known = {name: parse_endpoint(text) for name, text in components.items()}
        self._clients: dict[str, KubeClient] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def client(self, name: str) -> tuple[KubeClient, str]:
        """The client for a component, and the path of its metrics; raises BadAccess."""
        endpoint = self._known[name]
        if name not in self._clients:
            self._clients[name] = KubeClient(access_for(endpoint, self._api))
        parts = urlsplit(endpoint.url)
        return self._clients[name], (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
