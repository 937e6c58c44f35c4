"""The page's files and headers, and its first document, which has the numbers as a table for browsers without scripts.

All files are read once, when the server starts; together they are below 100 kB. A strict Content-Security-Policy holds
for every answer: nothing is loaded from elsewhere, no inline script or style runs, no other page may frame it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler
from carico_agent.lib.net.openapi import Operation, operation
from carico_agent.lib.page.access import check_host, guarded, has_token
from carico_agent.lib.page.cluster_table import plain_cluster
from carico_agent.lib.page.table import NO_TOKEN, plain_page

CONTENT_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
READ_PATHS = (
    "/v1/status",
    "/v1/watch",
    "/v1/history",
    "/v1/outlook",
    "/v1/pods",
    "/v1/workloads",
    "/v1/progress",
    "/v1/reservations",
    "/v1/plugins",
    "/v1/plugins/{id}",
    "/v1/self",
)
"""What the node's page asks for; nothing else of the API is served beside it."""

Facts = Callable[[], Awaitable[Mapping[str, Any]]]
"""What the page shows first, for the table: of a node the status (as /v1/status gives it), of a cluster the body of
/v1/cluster. Raises ApiError while there is none."""


@dataclass(frozen=True, slots=True)
class Document:
    """A first document, and how its numbers look without scripts."""

    file: str
    plain: Callable[[Mapping[str, Any], str], str]
    """Tables out of facts, or out of the reason why there are none."""


NODE = Document("index.html", plain_page)
CLUSTER = Document("cluster.html", plain_cluster)


def page_routes(
    api: Mapping[str, Handler], facts: Facts, token: str = "", loopback: bool = True, document: Document = NODE
) -> dict[str, dict[str, Handler]]:
    """Everything the page needs: its files for all, `api` (path → GET handler) for those with the token."""
    routes = {f"/{name}": {"GET": _file(name, loopback)} for name in _names() if not name.endswith(".html")}
    routes["/"] = {"GET": _index(document, facts, token, loopback)}
    return routes | {path: {"GET": guarded(handler, token, loopback)} for path, handler in api.items()}


def _names() -> list[str]:
    return sorted(one.name for one in files(__package__).joinpath("static").iterdir())


def _read(name: str) -> bytes:
    return files(__package__).joinpath("static", name).read_bytes()


def _type(name: str) -> str:
    return CONTENT_TYPES[name.rpartition(".")[2]]


def _file(name: str, loopback: bool) -> Handler:
    body, workload = _read(name), _type(name)

    @operation(Operation(content=workload))
    async def send(request: web.BaseRequest) -> web.StreamResponse:
        """a file of the page"""
        if loopback:
            check_host(request)
        return web.Response(body=body, content_type=workload, charset="utf-8", headers=HEADERS)

    return send


def _index(document: Document, facts: Facts, token: str, loopback: bool) -> Handler:
    template = Template(_read(document.file).decode())

    @operation(Operation(content="text/html"))
    async def send(request: web.BaseRequest) -> web.StreamResponse:
        """the page; for browsers without scripts it has the numbers as a table"""
        if loopback:
            check_host(request)
        try:
            table = document.plain(await facts(), "") if has_token(request, token) else NO_TOKEN
        except ApiError as error:
            table = document.plain({}, str(error))
        text = template.substitute(plain=table)
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=HEADERS)

    return send
