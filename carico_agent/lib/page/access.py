"""Who may read the page's numbers: a bearer token, and only under the names that are ours.

Why a token in the address's fragment and not a cookie or a query: what stands behind # is not sent to any server and so
is in no log; the page moves it into the Authorization header and clears the address. A cookie would go along with
requests that other sites make.

Why the Host header is checked on loopback: a foreign site can let its own name point to 127.0.0.1 (DNS rebinding), and
its scripts would then count as ours.
"""

import hmac
import stat
from pathlib import Path

from aiohttp import web

from carico_agent.lib.net.address import BadAddress, is_loopback, split
from carico_agent.lib.net.http import ApiError, Handler
from carico_agent.lib.net.openapi import described, operation

MIN_TOKEN_CHARS = 16


def read_token(path: str) -> str:
    """The token in a file; OSError if it cannot be read, is too short or readable by everybody."""
    file = Path(path)
    if file.stat().st_mode & stat.S_IROTH:
        raise PermissionError(f"{path} can be read by every user; chmod o-r {path}")
    token = file.read_text().strip()
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or any(c.isspace() for c in token):
        raise OSError(f"{path}: a token is one word of at least {MIN_TOKEN_CHARS} ASCII characters")
    return token


def has_token(request: web.BaseRequest, token: str) -> bool:
    """Whether the request may see numbers. An empty token asks for none; the comparison takes equally long for all."""
    given = request.headers.get("Authorization", "")
    return not token or hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode())


def check_host(request: web.BaseRequest) -> None:
    """For loopback listeners: ApiError 403 for a name that is not loopback."""
    try:
        host = split(request.host)[0] if ":" in request.host.rpartition("]")[2] else request.host.strip("[]")
    except BadAddress:
        host = ""
    if not is_loopback(host):
        raise ApiError(403, "this page answers under 127.0.0.1, [::1] and localhost only")


def guarded(handler: Handler, token: str, loopback: bool) -> Handler:
    """`handler` for those who may."""

    @operation(described(handler))
    async def checked(request: web.BaseRequest) -> web.StreamResponse:
        if loopback:
            check_host(request)
        if not has_token(request, token):
            raise ApiError(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        return await handler(request)

    checked.__doc__ = handler.__doc__
    return checked
