"""The latest status, for every publisher and every reader.

The agent's loop puts a new Status here once a second while a publisher or a client follows, every IDLE_S for followers
that are in no hurry, and at once when Pods or reservations change. Without any follower it makes none. Readers read the
attribute `status`, or wait for the next one. Only the newest status is kept: a slow reader misses those in between and
never makes a queue grow.

Why not once a second always: on a node without Pods the event loop then takes 1.31 ms of a core per second, against
0.58 ms (`lab/bench/beside.py`, "no Pods": 4.07 times the C loop, against 2.81); with one every five seconds that no
reader wants it is 2.93 times. A client that asks while the status is old follows until the next one, which the loop
makes at once (`current`). It is never the client that publishes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from math import inf

from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.status import Status, as_json

IDLE_S = 5.0
"""The loop runs at least this often, and publishes for followers that are in no hurry [s]."""
OLD_S = 1.0
"""A reader who can wait gets no status older than this if there are newer samples [s]."""
RENEW_WITHIN_S = 0.5
"""And gets the old one after this long: sampling hangs, or has not begun [s]."""


async def at_once() -> None:
    """In place of `LatestStatus.current`, where there is nothing to wait for."""


class LatestStatus:
    """Belongs to the event loop's thread; `status`, `is_followed` and `age_s` may be read from any thread."""

    def __init__(
        self,
        ttl_s: float,
        clock: Callable[[], float] = boottime_s,
        on_follow: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_follow()` tells the agent's loop that a reader waits for the next status."""
        self._ttl_s, self._clock, self._published_s = ttl_s, clock, -inf
        self._on_follow = on_follow
        self.status = Status()
        """Replaced by each `publish`, never changed."""
        self.is_followed = False
        """A publisher or a client wants a status every second."""
        self._encoded: tuple[Status, bytes] | None = None
        self._followers: dict[asyncio.Event, bool] = {}

    def publish(self, status: Status) -> None:
        """Replace the status, and wake those who wait for it. Its sequence number and TTL are added here."""
        self.status = replace(status, sequence=self.sequence + 1, ttl_s=self._ttl_s)
        self._published_s = self._clock()
        for follower in self._followers:
            follower.set()

    @property
    def is_awaited(self) -> bool:
        """A reader waits for the next status, in a hurry or not."""
        return bool(self._followers)

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

    async def current(self) -> Status:
        """A status that is at most OLD_S old; an older one when none comes within RENEW_WITHIN_S."""
        if self.sequence and self.age_s > OLD_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_WITHIN_S):
                    await self.changed()
        return self.status

    def follow(self, wakeup: asyncio.Event, urgent: bool = True) -> None:
        """Set `wakeup` at every status until `unfollow`: of every second, or, if that is not `urgent`, every IDLE_S."""
        self._followers[wakeup] = urgent
        self.is_followed |= urgent
        if urgent:
            self._on_follow()

    def unfollow(self, wakeup: asyncio.Event) -> None:
        self._followers.pop(wakeup, None)
        self.is_followed = any(self._followers.values())

    async def changed(self, urgent: bool = True) -> None:
        """Wait for the next status: see `follow`."""
        wakeup = asyncio.Event()
        self.follow(wakeup, urgent)
        try:
            await wakeup.wait()
        finally:
            self.unfollow(wakeup)

    async def updates(self, urgent: bool = True) -> AsyncIterator[Status]:
        """The status now, if there is one, and again at every update; slow readers get the newest only."""
        seen = 0
        while True:
            while seen == self.sequence:
                await self.changed(urgent)
            seen = self.sequence
            yield self.status
