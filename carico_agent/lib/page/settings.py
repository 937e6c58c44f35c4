"""Settings of the page for people."""

from dataclasses import dataclass

from carico_agent.lib.net.address import BadAddress, is_loopback, split


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


@dataclass(frozen=True)
class ClusterPageSettings:
    """The page of the whole cluster, served by `carico extender`. It only reads."""

    listen: str = ""
    """"host:port"; empty: none. Beyond loopback it needs tls_cert, tls_key and token_file."""

    tls_cert: str = ""
    """Certificate (PEM file)."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    token_file: str = ""
    """File with the token that readers must know, as in [page]."""

    plane: str = ""
    """Where `carico plane` listens, such as "http://127.0.0.1:9765": its panel is shown. Empty: none."""

    burst: str = ""
    """Where `carico burst` listens, such as "http://127.0.0.1:9760": its panel is shown. Empty: none."""


def page_errors(page: PageSettings | ClusterPageSettings, section: str) -> list[str]:
    """What does not fit together."""
    if not page.listen:
        return []
    try:
        host, _ = split(page.listen)
    except BadAddress:
        return [f"{section}.listen: {page.listen!r} is not host:port"]
    if bool(page.tls_cert) != bool(page.tls_key):
        return [f"{section}.tls_cert, {section}.tls_key: both are needed for TLS"]
    if is_loopback(host):
        return []
    missing = [f"{section}.{name}" for name in ("tls_cert", "tls_key", "token_file") if not getattr(page, name)]
    return [f"{section}.listen: {host} is not loopback, so {', '.join(missing)} is needed"] if missing else []


def cluster_page_errors(page: ClusterPageSettings) -> list[str]:
    """The same, and addresses that are none."""
    urls = {"plane": page.plane, "burst": page.burst}
    wrong = [name for name, url in urls.items() if url and not url.startswith(("http://", "https://"))]
    errors = [f"cluster_page.{name}: {urls[name]!r} is no http address" for name in wrong]
    return errors + page_errors(page, "cluster_page")
