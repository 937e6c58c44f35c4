"""What can go wrong with the Kubernetes API, in words that name the remedy."""

import json
import re
from typing import Any


class KubeError(Exception):
    """Any failure of a request. Its text is made for the log and for `carico doctor`."""


class BadAccess(KubeError):
    """The kubeconfig or the service account cannot be used as it is."""


class Unreachable(KubeError):
    """No answer: connection refused, timed out, TLS failed. Worth another try later."""


class Refused(KubeError):
    """The server answered, but not with success."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s

    @property
    def gone(self) -> bool:
        """The resourceVersion is too old: list again."""
        return self.status == 410


_FORBIDDEN = re.compile(
    r'User "(?P<who>[^"]*)" cannot (?P<verb>\w+) resource "(?P<what>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<where>[^"]*)")?'
)


def explain(status: int, body: bytes, method: str, path: str) -> str:
    """One line about an answer other than 2xx.

    >>> message = 'x is forbidden: User "eve" cannot patch resource "nodes/status" in API group "" at the cluster scope'
    >>> explain(403, json.dumps({"message": message}).encode(), "PATCH", "/api/v1/nodes/a/status")
    'missing right: "patch" on "nodes/status" for eve; add it to the role (deploy/ has one)'
    >>> explain(404, b'{"message": "nodes \\\\"a\\\\" not found"}', "GET", "/api/v1/nodes/a")
    'nodes "a" not found on the API server'
    """
    message = message_of(body)
    if status == 401:
        return "the API server does not accept these credentials (401): wrong or expired token or certificate"
    if status == 403 and (found := _FORBIDDEN.search(message)):
        group = f".{found['group']}" if found["group"] else ""
        where = f" in namespace {found['where']}" if found["where"] else ""
        return (
            f'missing right: "{found["verb"]}" on "{found["what"]}{group}"{where} for {found["who"]}; '
            "add it to the role (deploy/ has one)"
        )
    if status == 404 and "not found" in message:
        return f"{message} on the API server"
    return f"{method} {path.partition('?')[0]}: {status} {message}".rstrip()


def message_of(body: bytes) -> str:
    """The message of a Status object, or the beginning of whatever came."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return body[:200].decode(errors="replace").strip()
    return str(value.get("message", ""))[:500] if isinstance(value, dict) else ""
