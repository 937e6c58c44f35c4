"""The harm guard: memory.high without room to reclaim can freeze a workload for an hour without an OOM kill.

Watched for as long as our value stands, not only after the write: a workload may grow into it later.
"""

from collections import deque
from dataclasses import dataclass

WINDOW_S = 10.0
MIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Signs:
    """Counters of one cgroup that show whether memory.high hurts."""

    now_s: float
    high_events: int
    full_usec: int
    pgscan: int
    pgsteal: int
    current: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    full_ratio: float
    scan_per_s: float
    steal_ratio: float


class Guard:
    """One Pod's watch.

    >>> guard = Guard(Tolerance(0.1, 1000, 0.1))
    >>> [guard.harm(Signs(t, t * 50, t * 400_000, 0, 0, 1 << 20), high=1 << 20) for t in (0, 1, 2)][-1]
    'all of it stood still 40% of the time (memory.pressure full)'
    """

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._seen: deque[Signs] = deque()

    def harm(self, now: Signs, high: int) -> str | None:
        """What hurts, or None. Nothing is judged before memory.high has been met in the window."""
        self._seen.append(now)
        while now.now_s - self._seen[0].now_s > WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()
        then = self._seen[0]
        elapsed_s = now.now_s - then.now_s
        if elapsed_s < MIN_S or now.high_events <= then.high_events:
            return None
        full = (now.full_usec - then.full_usec) / 1e6 / elapsed_s
        scanned, stolen = now.pgscan - then.pgscan, now.pgsteal - then.pgsteal
        if full > self._tolerance.full_ratio:
            return f"all of it stood still {full:.0%} of the time (memory.pressure full)"
        if scanned / elapsed_s > self._tolerance.scan_per_s and stolen < self._tolerance.steal_ratio * scanned:
            return f"the kernel looked at {scanned} pages and could free {stolen}"
        if now.current >= high and stolen == 0 and now.high_events - then.high_events > elapsed_s:
            return f"{now.high_events - then.high_events} times over memory.high and nothing could be freed"
        return None
