"""The latest status, for every publisher and every reader.

The agent's loop puts a new Status here as often as its followers want one (`Wants`), and at once when Pods or
reservations change. Without any follower it makes none. Readers read the attribute `status`, or wait for the next one.
Only the newest status is kept: a slow reader misses those in between and never makes a queue grow.

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
from enum import Enum
from math import inf

from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.status import Status, as_json

IDLE_S = 5.0
"""The loop runs at least this often, and publishes for followers that are in no hurry [s]."""
CALM_S = 2.5
"""Between two statuses for followers that want one when the answer has moved, while it has not [s]. With Kubernetes and
110 Pods a status a second took 0.9 ms of a core per second, as much as the model."""
OLD_S = 1.0
"""A reader who can wait gets no status older than this if there are newer samples [s]."""
RENEW_WITHIN_S = 0.5
"""And gets the old one after this long: sampling hangs, or has not begun [s]."""


class Wants(Enum):
    """How often a follower wants a status."""

    EVERY_SECOND = "every second"
    WHEN_MOVED = "when moved"
    """As soon as an answer differs from the last status in a way that a scheduler heeds, and every CALM_S."""
    NOW_AND_THEN = "now and then"
    """Every IDLE_S."""


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
        """A publisher or a client wants a status every second, or when the answer has moved."""
        self._encoded: tuple[Status, bytes] | None = None
        self._followers: dict[asyncio.Event, Wants] = {}

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

    @property
    def is_wanted_every_second(self) -> bool:
        return Wants.EVERY_SECOND in self._followers.values()

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

    def follow(self, wakeup: asyncio.Event, wants: Wants = Wants.EVERY_SECOND) -> None:
        """Set `wakeup` at every status until `unfollow`."""
        self._followers[wakeup] = wants
        if wants is not Wants.NOW_AND_THEN:
            self.is_followed = True
            self._on_follow()

    def unfollow(self, wakeup: asyncio.Event) -> None:
        self._followers.pop(wakeup, None)
        self.is_followed = any(wants is not Wants.NOW_AND_THEN for wants in self._followers.values())

    async def changed(self, wants: Wants = Wants.EVERY_SECOND) -> None:
        """Wait for the next status: see `follow`."""
        wakeup = asyncio.Event()
        self.follow(wakeup, wants)
        try:
            await wakeup.wait()
        finally:
            self.unfollow(wakeup)

    async def updates(self, wants: Wants = Wants.EVERY_SECOND) -> AsyncIterator[Status]:
        """The status now, if there is one, and again at every update; slow readers get the newest only."""
        seen = 0
        while True:
            while seen == self.sequence:
                await self.changed(wants)
            seen = self.sequence
            yield self.status
