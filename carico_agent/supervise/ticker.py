"""Monotonic deadlines: the tick works, the loop only keeps time.

Late ticks are skipped and counted, never caught up in a burst.

Why a thread that sleeps and not the event loop: a thread keeps its time while the loop serves a slow request, and it
alone can be real time. CPU decides little: the same reads by an asyncio timer cost 1.1 to 1.3 times as much on a busy
machine (`make bench`, "timer").
"""

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable

from carico_agent.supervise.tasks import guard_call

log = logging.getLogger(__name__)

LATENESS_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class Lateness:
    """A histogram of how late ticks began, in constant memory."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENESS_BOUNDS_S) + 1)
        self.ticks = 0
        self.missed = 0
        self.sum_s = 0.0
        self.most_s = 0.0

    def record(self, late_s: float) -> None:
        self.counts[bisect_left(LATENESS_BOUNDS_S, late_s)] += 1
        self.ticks += 1
        self.sum_s += late_s
        self.most_s = max(self.most_s, late_s)

    def quantile_s(self, q: float) -> float:
        """An upper bound of the q-quantile: the bound of the bucket it falls into.

        >>> late = Lateness()
        >>> for s in [0.0004] * 98 + [0.003, 0.5]: late.record(s)
        >>> late.quantile_s(0.5), late.quantile_s(0.99), late.quantile_s(1.0)
        (0.0005, 0.005, 0.5)
        """
        wanted, seen = q * self.ticks, 0
        for bound_s, count in zip(LATENESS_BOUNDS_S, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound_s, self.most_s)
        return self.most_s


class Ticker:
    """Calls `work(now_s)` every `period_s` until stopped. Runs in the thread that calls `run`.

    Work that fails is counted and its condition kept in `error`; the next tick comes all the same.
    """

    def __init__(self, period_s: float, work: Callable[[float], None]) -> None:
        self.period_s = period_s
        self.lateness = Lateness()
        self.failures = 0
        self.error: str | None = None
        self._work = work
        self._going = threading.Lock()  # held while going: waiting for it is one call, where an Event takes a dozen
        self._going.acquire()

    def run(self) -> None:
        deadline_s = time.monotonic() + self.period_s
        while not self._going.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            now_s = time.monotonic()
            self.lateness.record(max(0.0, now_s - deadline_s))
            self._guarded(now_s)
            deadline_s += self.period_s
            behind = int((time.monotonic() - deadline_s) // self.period_s)
            if behind > 0:  # whole periods have passed: skip them, say so, keep the phase
                self.lateness.missed += behind
                deadline_s += behind * self.period_s

    def _guarded(self, now_s: float) -> None:
        error = guard_call("tick", self._work, now_s)
        if error and not self.error:
            log.error("sampling fails: %s", error)
        elif self.error and not error:
            log.info("sampling works again after %d failures", self.failures)
        self.failures += error is not None
        self.error = error

    def stop(self) -> None:
        if self._going.locked():
            self._going.release()
