"""Pulse: who has something to do about once a second does it when the process is awake anyway.

Why: each wake-up of a sleeping process finds its caches cold and costs 0.1 to 0.2 ms of a core, whatever it does then.
Three timers of a second each are three wake-ups, and a timer that waits for the sampling's beat is none.
"""

import asyncio
from math import inf

EARLY_S = 0.25
"""A beat this much before the end of a sleep ends it [s]."""
LATE_S = 1.0
"""Without a beat (sampling hangs, or has not begun) a sleep ends this much later than asked for [s]."""


class Pulse:
    """`beat` about once a second; `sleep` ends with one of the beats. For one event loop."""

    def __init__(self) -> None:
        self._sleeping: dict[asyncio.Future[None], float] = {}
        self.wanted_s = inf
        """From this time of the loop's clock on somebody wants a beat. From any thread."""

    def beat(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self.wanted_s:
            for future in [future for future, due_s in self._sleeping.items() if due_s - EARLY_S <= now_s]:
                _wake(future)

    async def sleep(self, seconds: float) -> None:
        """For `seconds`, a quarter of a second less or a second more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._sleeping[future] = loop.time() + seconds
        self._note()
        latest = loop.call_later(seconds + LATE_S, _wake, future)
        try:
            await future
        finally:
            latest.cancel()
            del self._sleeping[future]
            self._note()

    def _note(self) -> None:
        self.wanted_s = min(self._sleeping.values(), default=inf) - EARLY_S


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
