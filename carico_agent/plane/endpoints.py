"""Where the other components' metrics are, and how to ask for them.

kube-scheduler (10259) and kube-controller-manager (10257) have served TLS only since 1.23, and show metrics to callers
who may `get` /metrics: they ask the API server about a token, or check a client certificate. The credentials and the
authority of the API server's kubeconfig are taken unless others are named. kubeadm's components sign a certificate of
their own at each start, which no authority vouches for: `trust=loopback` accepts it, on this machine only.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from carico_agent.lib.net.address import is_loopback

KEYS = ("ca", "token", "certificate", "key", "trust")


class BadEndpoint(ValueError):
    """A component's address that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One component's metrics: an address, and files to use instead of the kubeconfig's credentials."""

    url: str
    ca: str = ""
    token: str = ""
    certificate: str = ""
    key: str = ""
    trust: str = ""


def parse_endpoint(text: str) -> Endpoint:
    """URL[,ca=FILE][,token=FILE][,certificate=FILE,key=FILE][,trust=loopback]; raises BadEndpoint.

    >>> parse_endpoint("https://127.0.0.1:10259/metrics,ca=/etc/ca.crt").ca
    '/etc/ca.crt'
    """
    url, *pairs = text.split(",")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(f"{url!r}: an address like https://127.0.0.1:10259/metrics is expected")
    given = dict(pair.partition("=")[::2] for pair in pairs)
    if unknown := [key for key in given if key not in KEYS]:
        raise BadEndpoint(f"{unknown[0]!r}: after the address {', '.join(KEYS)} are known, each as NAME=VALUE")
    if bool(given.get("certificate")) != bool(given.get("key")):
        raise BadEndpoint("certificate and key are needed together")
    if given and parts.scheme == "http":
        raise BadEndpoint(f"{url}: credentials are sent over https only")
    if given.get("trust", "loopback") != "loopback" or ("trust" in given and not is_loopback(parts.hostname)):
        raise BadEndpoint("trust=loopback is for addresses of this machine (127.0.0.1, ::1); elsewhere name ca=FILE")
    return Endpoint(url, **given)
