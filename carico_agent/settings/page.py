"""Settings of the page for people."""

from dataclasses import dataclass

from carico_agent.net.address import BadAddress, is_loopback, split


@dataclass(frozen=True)
class PageSettings:
    """The page for people, served by the agent itself. `carico page` opens the same page without any of this. It only
    reads."""

    listen: str = ""
    """"host:port"; empty: none. Beyond loopback it needs tls_cert, tls_key and token_file."""

    tls_cert: str = ""
    """Certificate (PEM file)."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    token_file: str = ""
    """File with the token that readers must know, at least 16 characters; they open https://HOST:PORT/#token=TOKEN,
    and nothing behind the # is ever sent in an address. Empty: none, which is for loopback only."""


def page_errors(page: PageSettings) -> list[str]:
    """What does not fit together."""
    if not page.listen:
        return []
    try:
        host, _ = split(page.listen)
    except BadAddress:
        return [f"page.listen: {page.listen!r} is not host:port"]
    if bool(page.tls_cert) != bool(page.tls_key):
        return ["page.tls_cert, page.tls_key: both are needed for TLS"]
    if is_loopback(host):
        return []
    missing = [name for name in ("tls_cert", "tls_key", "token_file") if not getattr(page, name)]
    return [f"page.listen: {host} is not loopback, so page.{', page.'.join(missing)} is needed"] if missing else []
