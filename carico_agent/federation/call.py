"""One call of a connection, and how it is answered."""

from collections.abc import Callable
from dataclasses import dataclass

from carico_agent.federation.frames import UNIMPLEMENTED, CallError


@dataclass(frozen=True, slots=True)
class Method:
    """How a call is answered: one message for each message; `stream` says whether more than one may come."""

    answer: Callable[[bytes, str | None], bytes]
    stream: bool = False


@dataclass(slots=True)
class Call:
    """One stream of a connection."""

    method: Method
    window: int
    received: bytes = b""
    message: bytes | None = None
    started: bool = False
    half_closed: bool = False
    unacknowledged: int = 0
    queue: list[bytes] | None = None
    trailers: bytes | None = None


def _unknown(message: bytes, identity: str | None) -> bytes:
    raise CallError(UNIMPLEMENTED, "no such method")


UNKNOWN = Method(_unknown)
