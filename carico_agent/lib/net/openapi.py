"""The API describes itself: /v1/openapi.json, made from the route table and what stands at each handler.

Why not by hand beside the code: two descriptions drift apart. A test feeds this one to schemathesis,
against a real agent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

H = TypeVar("H", bound=Callable[..., Any])
Right = Literal["read", "reserve", "root"]
JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"
_MARK = "carico_operation"


@dataclass(frozen=True)
class Operation:
    """What one method of one path takes and gives; its summary is the handler's docstring."""

    needs: Right = "read"
    """read: every client that may connect; reserve: not from TCP without a certificate; root: root and the agent's own
    user."""
    gives: int = 200
    content: str = JSON
    body: Mapping[str, Any] | None = None
    """JSON Schema of the request's body."""
    answer: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    errors: Mapping[int, str] = field(default_factory=dict)


def operation(described: Operation) -> Callable[[H], H]:
    def mark(handler: H) -> H:
        setattr(handler, _MARK, described)
        return handler

    return mark


def described(handler: Callable[..., Any]) -> Operation:
    found: Operation = getattr(handler, _MARK, Operation())
    return found


ERROR = {
    "type": "object",
    "required": ["error", "status"],
    "properties": {"error": {"type": "string"}, "status": {"type": "integer"}},
}
COMMON_ERRORS = {
    400: "not understood",
    403: "not for this client",
    429: "too many requests; Retry-After says when to come again",
}


def describe(routes: Mapping[str, Mapping[str, Callable[..., Any]]], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a route table."""
    paths = {
        path: {method.lower(): _method(path, handler) for method, handler in methods.items()}
        for path, methods in sorted(routes.items())
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "carico agent",
            "version": version,
            "description": "How many more Pods can this node take, right now? Over a unix socket.",
        },
        "servers": [{"url": "http://localhost"}],
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _method(path: str, handler: Callable[..., Any]) -> dict[str, Any]:
    made = described(handler)
    errors = COMMON_ERRORS | dict(made.errors) | ({404: "no such thing"} if path.endswith("}") else {})
    responses = {str(made.gives): {"description": "the answer", "content": {made.content: _schema(made)}}}
    for code, text in sorted(errors.items()):
        error = {"schema": {"$ref": "#/components/schemas/Error"}}
        responses[str(code)] = {"description": text, "content": {JSON: error}}
    about: dict[str, Any] = {"summary": (handler.__doc__ or path).strip().splitlines()[0], "responses": responses}
    if path.endswith(("{id}", "{path}")):
        name = path.rpartition("{")[2].rstrip("}")
        about["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
    if made.body is not None:
        about["requestBody"] = {"required": True, "content": {JSON: {"schema": dict(made.body)}}}
    return about


def _schema(made: Operation) -> dict[str, Any]:
    return {"schema": dict(made.answer) if made.content == JSON else {"type": "string"}}
