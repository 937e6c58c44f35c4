"""What the generators of a move yield and are sent."""

from dataclasses import dataclass, field

from carico_agent.burst.objects import Object


@dataclass(frozen=True)
class Request:
    """One request to an API server. `home`: to which."""

    home: bool
    method: str
    path: str
    body: Object | None = None
    params: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerAnswer:
    """The server's answer. Conflicts and missing objects are answers, other failures end the generator."""

    status: int
    body: Object = field(default_factory=dict)
