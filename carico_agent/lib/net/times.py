"""Time as text: RFC 3339 in UTC, as Kubernetes writes it; and the clock for what others believe for a while."""

import time
from datetime import UTC, datetime
from typing import Literal


def boottime_s() -> float:
    """Like time.monotonic, but it goes on while the machine is suspended: what was true before the sleep is old."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def rfc3339(
    time_s: float | None = None, digits: Literal["seconds", "milliseconds", "microseconds"] = "milliseconds"
) -> str:
    """`time_s` [seconds since 1970] as text; now, if None.

    >>> rfc3339(1700000000.25), rfc3339(1700000000.25, "seconds")
    ('2023-11-14T22:13:20.250Z', '2023-11-14T22:13:20Z')
    """
    moment = datetime.fromtimestamp(time.time() if time_s is None else time_s, UTC)
    return moment.isoformat(timespec=digits).replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """Seconds since 1970; raises ValueError. A time without its zone is refused: it may be hours off.

    >>> parse_rfc3339("2023-11-14T22:13:20.250Z")
    1700000000.25
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
