"""Who costs most, by user, from an audit log: one JSON object per line, read as a stream in bounded memory."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from carico_agent.lib.net.times import parse_rfc3339

MAX_USERS = 4096
LONG_RUNNING = frozenset({"watch", "connect"})


@dataclass(slots=True)
class UserRequests:
    """Requests of one user and the time they took."""

    requests: int = 0
    seconds: float = 0.0


def by_user(lines: Iterable[str]) -> dict[str, UserRequests]:
    """Finished requests per user; what is no audit event is skipped. Users beyond MAX_USERS count as "other"."""
    found: dict[str, UserRequests] = {}
    for line in lines:
        event = _event(line)
        if event is None:
            continue
        user, took_s = event
        if user not in found and len(found) >= MAX_USERS:
            user = "other"
        one = found.setdefault(user, UserRequests())
        one.requests += 1
        one.seconds += took_s
    return found


def _event(line: str) -> tuple[str, float] | None:
    """Who, and how long it took [s]; None for what is no finished request.

    >>> _event('{"stage":"ResponseComplete","verb":"list","user":{"username":"eve"},'
    ...     '"requestReceivedTimestamp":"2026-01-01T00:00:00.0Z","stageTimestamp":"2026-01-01T00:00:01.5Z"}')
    ('eve', 1.5)
    """
    try:
        event: Any = json.loads(line)
        if event["stage"] != "ResponseComplete" or event["verb"] in LONG_RUNNING:
            return None
        begun_s, ended_s = (parse_rfc3339(event[key]) for key in ("requestReceivedTimestamp", "stageTimestamp"))
        return str(event["user"]["username"]), round(ended_s - begun_s, 6)
    except (ValueError, KeyError, TypeError):
        return None


def costliest(found: dict[str, UserRequests], most: int = 5) -> list[dict[str, Any]]:
    whole = sum(one.seconds for one in found.values()) or 1.0
    largest = sorted(found.items(), key=lambda pair: pair[1].seconds, reverse=True)[:most]
    return [
        {"user": user, "requests": one.requests, "seconds": one.seconds, "share": one.seconds / whole}
        for user, one in largest
    ]
