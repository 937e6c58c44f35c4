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

    def __init__(
        self, status: int, message: str, retry_after_s: float | None = None, cause: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s
        self.cause = cause or {}
        """The Status object of an API server. Empty: something else answered, a load balancer or a proxy."""

    @property
    def gone(self) -> bool:
        """The resourceVersion is too old: list again."""
        return self.status == 410

    def says_absent(self, path: str) -> bool:
        """Whether an API server itself says that the object of this path does not exist. A bare 404 proves nothing: a
        load balancer without a backend answers so, and so does an API server that does not serve the group yet.

        >>> details = {"name": "a", "group": "batch", "kind": "jobs"}
        >>> refused = Refused(404, "", cause={"kind": "Status", "reason": "NotFound", "details": details})
        >>> [refused.says_absent(f"/apis/batch/v1/namespaces/x/jobs{end}") for end in ("/a", "/a/status", "/b", "")]
        [True, True, False, False]
        >>> Refused(404, "default backend").says_absent("/apis/batch/v1/namespaces/x/jobs/a")
        False
        """
        named, details = _OBJECT.match(path), self.cause.get("details")
        if named is None or not isinstance(details, dict) or self.cause.get("reason") != "NotFound":
            return False
        said = tuple(str(details.get(key) or "") for key in ("group", "kind", "name"))
        return self.status == 404 and said == (named["group"] or "", named["resource"], named["name"])


_OBJECT = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/[^/]+)?/(?P<resource>[^/]+)/(?P<name>[^/?]+)(?:/[a-z]+)?$"
)

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


def status_of(body: bytes) -> dict[str, Any]:
    """The Status object of an API server's refusal; empty for anything else.

    >>> status_of(b'{"kind": "Status", "apiVersion": "v1", "code": 404}')["code"], status_of(b"default backend - 404")
    (404, {})
    """
    try:
        value: Any = json.loads(body)
    except ValueError:
        return {}
    ours = isinstance(value, dict) and value.get("kind") == "Status" and value.get("apiVersion") == "v1"
    return value if ours else {}


def message_of(body: bytes) -> str:
    """The message of a Status object, or the beginning of whatever came."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return body[:200].decode(errors="replace").strip()
    return str(value.get("message", ""))[:500] if isinstance(value, dict) else ""
