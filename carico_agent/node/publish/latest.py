"""The latest status, for every publisher and every reader.

The agent's loop puts a new Status here once a second, and at once when Pods or reservations change. Readers read the
attribute `status`, or wait for the next one. Only the newest status is kept: a slow reader misses those in between and
never makes a queue grow.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from math import inf

from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.status import Status, as_json


class LatestStatus:
    """Belongs to the event loop's thread; `status` may be read from any thread."""

    def __init__(self, ttl_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self._ttl_s, self._clock, self._published_s = ttl_s, clock, -inf
        self.status = Status()
        """Replaced by each `publish`, never changed."""
        self._encoded: tuple[Status, bytes] | None = None
        self._followers: set[asyncio.Event] = set()

    def publish(self, status: Status) -> None:
        """Replace the status, and wake those who wait for it. Its sequence number and TTL are added here."""
        self.status = replace(status, sequence=self.sequence + 1, ttl_s=self._ttl_s)
        self._published_s = self._clock()
        for follower in self._followers:
            follower.set()

    def expire_after(self, ttl_s: float) -> None:
        """From the next status on."""
        self._ttl_s = ttl_s

    @property
    def sequence(self) -> int:
        """Statuses so far; 0: there is none yet."""
        return self.status.sequence

    @property
    def age_s(self) -> float:
        """Time since the last status; infinite before the first."""
        return self._clock() - self._published_s

    @property
    def fresh(self) -> bool:
        return self.age_s <= self._ttl_s

    @property
    def valid(self) -> Status | None:
        """The status while its TTL lasts."""
        return self.status if self.fresh else None

    def encoded(self) -> bytes:
        """The status as JSON, with its age.

        Why it is encoded for the first reader and kept, and not in `publish`: in most seconds no client asks, and with
        cold caches encoding takes 0.2 ms.
        """
        if self._encoded is None or self._encoded[0] is not self.status:
            text = json.dumps(as_json(self.status), separators=(",", ":"), allow_nan=False)
            self._encoded = self.status, text.encode()[:-1]
        return self._encoded[1] + b',"age_s":%.3f}' % self.age_s

    def follow(self, wakeup: asyncio.Event) -> None:
        """Set `wakeup` at every status, until `unfollow`."""
        self._followers.add(wakeup)

    def unfollow(self, wakeup: asyncio.Event) -> None:
        self._followers.discard(wakeup)

    async def changed(self) -> None:
        """Wait for the next status."""
        wakeup = asyncio.Event()
        self.follow(wakeup)
        try:
            await wakeup.wait()
        finally:
            self.unfollow(wakeup)

    async def updates(self) -> AsyncIterator[Status]:
        """The status now, if there is one, and again at every update; slow readers get the newest only."""
        seen = 0
        while True:
            while seen == self.sequence:
                await self.changed()
            seen = self.sequence
            yield self.status
