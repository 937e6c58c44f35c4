"""Monotonic deadlines: the tick works, the loop only keeps time.

Late ticks are skipped and counted, never caught up in a burst.

Why a thread that sleeps and not the event loop: a thread keeps its time while the loop serves a slow request, and it
alone can be real time. CPU decides little: the same reads by an asyncio timer cost 1.1 to 1.3 times as much on a busy
machine (`make bench`, "timer").

Why the loop is written out: a process that sleeps for 0.1 s finds its caches cold, and every call then costs
microseconds. Reading three files takes 63 µs in C, 90 µs with a plain Python loop around it, 15 µs more when it waits
for a lock instead of sleeping, and 25 µs more when deadlines, lateness and failures are functions of their own.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from carico_agent.lib.supervise.tasks import guard_call

log = logging.getLogger(__name__)

LATENESS_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
WORK_BOUNDS_S = (0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.0007, 0.001, 0.002, 0.005, 0.01)
COUNT_AFTER = 64
"""Times that a histogram notes before it counts them."""
SLEEPS_MAX_S = 0.25
"""Longer waits are for a lock, so that `stop` ends them."""


class TimeHistogram:
    """How long something took, in constant memory; `bounds_s` are the upper bounds of the buckets.

    Recording only notes the time; it is counted when a reader asks, or when many have been noted: once in 64 ticks
    that costs a tenth of what it costs in each of them with cold caches.
    """

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self._counts, self._sum_s, self._max_s = [0] * (len(bounds_s) + 1), 0.0, 0.0
        self._noted: deque[float] = deque()  # its append and popleft are atomic
        self._counting = threading.Lock()

    def record(self, took_s: float) -> None:
        noted = self._noted
        noted.append(took_s)
        if len(noted) >= COUNT_AFTER:
            self._count()

    def _count(self) -> None:
        with self._counting:
            while self._noted:
                took_s = self._noted.popleft()
                self._counts[bisect_left(self.bounds_s, took_s)] += 1
                self._sum_s += took_s
                self._max_s = max(self._max_s, took_s)

    @property
    def counts(self) -> list[int]:
        """Per bucket; the last one is beyond all bounds."""
        self._count()
        return list(self._counts)

    @property
    def sum_s(self) -> float:
        self._count()
        return self._sum_s

    @property
    def max_s(self) -> float:
        self._count()
        return self._max_s

    def quantile_s(self, q: float) -> float:
        """An upper bound of the q-quantile: the bound of the bucket it falls into.

        >>> late = TimeHistogram(LATENESS_BOUNDS_S)
        >>> for s in [0.0004] * 98 + [0.003, 0.5]: late.record(s)
        >>> late.quantile_s(0.5), late.quantile_s(0.99), late.quantile_s(1.0)
        (0.0005, 0.005, 0.5)
        """
        counts, max_s, seen = self.counts, self.max_s, 0
        wanted = q * sum(counts)
        for bound_s, count in zip(self.bounds_s, counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound_s, max_s)
        return max_s


class Lateness(TimeHistogram):
    """How late ticks began, and how many were missed."""

    def __init__(self) -> None:
        super().__init__(LATENESS_BOUNDS_S)
        self.missed = 0

    @property
    def ticks(self) -> int:
        return sum(self.counts)


class Ticker:
    """Calls `work(now_s)` every `period_s` until stopped. Runs in the thread that calls `run`.

    Work that fails is counted and its condition kept in `error`; the next tick comes all the same. What it returns is
    called after it: waking another thread, which then has the interpreter's lock for as long as it needs it.
    """

    def __init__(self, period_s: float, work: Callable[[float], Callable[[], None] | None]) -> None:
        self.period_s = period_s
        self.lateness = Lateness()
        self.worked = TimeHistogram(WORK_BOUNDS_S)
        """How long the work of a tick took, from its beginning to the end."""
        self.failures = 0
        self.error: str | None = None
        self._work = work
        self._deadline_s = 0.0
        self._stopped = False
        self._going = threading.Lock()  # held while going: waiting for it is one call, where an Event takes a dozen
        self._going.acquire()

    def run(self) -> None:
        self._deadline_s = time.monotonic() + self.period_s
        while not self._stopped:
            if error := guard_call("tick", self._tick_until_failure):
                self._failed(error)

    def _tick_until_failure(self) -> None:
        """Returns when stopped; raises what the work raises."""
        monotonic, sleep, work = time.monotonic, time.sleep, self._work
        lateness, worked = self.lateness, self.worked
        ended_s = monotonic()
        while True:
            wait_s, period_s = self._deadline_s - ended_s, self.period_s
            if wait_s <= -period_s:  # whole periods have passed: skip them, say so, keep the phase
                behind = int(-wait_s // period_s)
                lateness.missed += behind
                self._deadline_s += behind * period_s
            if wait_s > SLEEPS_MAX_S:
                self._going.acquire(timeout=wait_s)
            elif wait_s > 0:
                sleep(wait_s)
            if self._stopped:
                return
            now_s = monotonic()
            lateness.record(max(0.0, now_s - self._deadline_s))
            self._deadline_s += period_s
            wake = work(now_s)
            ended_s = monotonic()
            worked.record(ended_s - now_s)
            if wake is not None:
                wake()
                ended_s = monotonic()
            if self.error is not None:
                self._healed()

    def _failed(self, error: str) -> None:
        if not self.error:
            log.error("sampling fails: %s", error)
        self.failures += 1
        self.error = error

    def _healed(self) -> None:
        log.info("sampling works again after %d failures", self.failures)
        self.error = None

    def stop(self) -> None:
        self._stopped = True
        if self._going.locked():
            self._going.release()
