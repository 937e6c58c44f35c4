"""The latest status, and everyone who waits for the next one.

Only the newest status is kept: a reader who is slow misses the ones in between and never makes a queue grow.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any


def boottime_s() -> float:
    """Goes on while the machine is suspended: a number from before the sleep is old, not fresh."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Board:
    """Where the agent pins its status. Lives in the event loop's thread."""

    def __init__(self, ttl_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self.ttl_s = ttl_s
        self.status: dict[str, Any] = {}
        self.sequence = 0
        self._clock = clock
        self._pinned_s = -float("inf")
        self._head = b""
        self._next: asyncio.Future[None] | None = None

    def publish(self, status: dict[str, Any]) -> None:
        """Replace the status. Its sequence number and TTL are added here; NaN and infinity must be gone already."""
        self.sequence += 1
        self.status = {"version": 1, "sequence": self.sequence, "ttl_s": self.ttl_s, **status}
        self._pinned_s = self._clock()
        self._head = json.dumps(self.status, separators=(",", ":"), allow_nan=False).encode()[:-1]
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    @property
    def age_s(self) -> float:
        """Time since the last status; infinite before the first."""
        return self._clock() - self._pinned_s

    @property
    def fresh(self) -> bool:
        return self.age_s <= self.ttl_s

    def encoded(self) -> bytes:
        """The status as JSON. Only the age is computed per reader: the rest was encoded once."""
        return self._head + b',"age_s":%.3f}' % self.age_s

    async def changed(self) -> None:
        """Wait for the next status."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)
