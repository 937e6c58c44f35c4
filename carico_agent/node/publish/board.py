"""The latest status, and everyone who waits for the next one.

Only the newest status is kept: a reader who is slow misses the ones in between and never makes a queue grow.

Why a status may be made by the first who reads it: in most seconds nobody does, and making one takes 0.5 ms with cold
caches, more where many workloads run. For the same reason a new one may be published for a reader who finds the
last one older than RENEW_S: while nobody follows, the event loop need not wake for it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.status import Status, as_json

UPDATE_S = 5.0
"""A status is published at least this often, whether anybody follows or not [s]."""
RENEW_S = 1.0
"""A reader gets no status older than this if there is a newer one [s]."""


class StatusBoard:
    """Holds the newest status for all publishers. Lives in the event loop's thread."""

    def __init__(
        self, ttl_s: float, clock: Callable[[], float] = boottime_s, renew: Callable[[], None] = lambda: None
    ) -> None:
        """`renew()` publishes a new status if there is news."""
        self.ttl_s, self._renew = ttl_s, renew
        self.made = Status()
        """The status as it was read last; from any thread."""
        self.sequence = 0
        self._make: Callable[[], Status] | None = None
        self._clock = clock
        self._published_s = -float("inf")
        self._head: bytes | None = None  # the status as JSON without its age, made when somebody asks for it
        self._followers: dict[asyncio.Future[None], bool] = {}
        self.is_followed = False
        """Somebody wants each status, once a second. From any thread."""

    def publish(self, status: Status | Callable[[], Status]) -> None:
        """Replace the status, by one or by what makes one for the first who asks before the next replaces it. Its
        sequence number and TTL are added here."""
        self.sequence += 1
        self._make = (lambda: status) if isinstance(status, Status) else status
        self._published_s = self._clock()
        self._head = None
        for follower in self._followers:
            if not follower.done():
                follower.set_result(None)

    @property
    def status(self) -> Status:
        self.make()
        return self.made

    def make(self) -> None:
        """Let the newest status be in `made`."""
        self._renew_old()
        if self._make is not None:
            made, self._make = self._make(), None
            self.made = replace(made, sequence=self.sequence, ttl_s=self.ttl_s)

    @property
    def age_s(self) -> float:
        """Time since the last status; infinite before the first."""
        self._renew_old()
        return self._clock() - self._published_s

    def _renew_old(self) -> None:
        if self._clock() - self._published_s > RENEW_S:
            self._renew()

    @property
    def fresh(self) -> bool:
        return self.age_s <= self.ttl_s

    @property
    def valid(self) -> Status | None:
        """The status while its TTL lasts."""
        return self.status if self.fresh else None

    def encoded(self) -> bytes:
        """The status as JSON, encoded for the first who asks; only the age is computed per reader.

        Why not when it is published: in most seconds nobody asks, and with cold caches it takes 0.2 ms.
        """
        self._renew_old()
        if self._head is None:
            self._head = json.dumps(as_json(self.status), separators=(",", ":"), allow_nan=False).encode()[:-1]
        return self._head + b',"age_s":%.3f}' % self.age_s

    async def changed(self, urgent: bool = True) -> None:
        """Wait for the next status: of the next second, or, if that is not `urgent`, of the next few."""
        follower = asyncio.get_running_loop().create_future()
        self._followers[follower] = urgent
        self.is_followed |= urgent
        try:
            await follower
        finally:
            del self._followers[follower]
            self.is_followed = any(self._followers.values())

    async def updates(self) -> AsyncIterator[Status]:
        """The status now, if there is one, and again at every update; slow readers get the newest only."""
        async for _ in self.sequences():
            yield self.status

    async def sequences(self, urgent: bool = True) -> AsyncIterator[int]:
        """The same for those who may not want to read it: its number."""
        seen = 0
        while True:
            while seen == self.sequence:
                await self.changed(urgent)
            seen = self.sequence
            yield seen
