"""A recorded trace instead of the kernel: another producer for the same queue."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from carico_agent.lib.supervise.ticker import WORK_BOUNDS_S, Lateness, TimeHistogram
from carico_agent.node.sampling import TraceRow
from carico_agent.node.sampling.queue import SampleQueue, UpdateClock
from carico_agent.settings import SamplingSettings

QUEUE_FULL_PAUSE_S = 0.005


class Replay:
    """Feeds a recorded trace at its own pace times `speed`, for demonstrations, tests and soaks. Loses no row: when the
    queue is full it waits."""

    def __init__(
        self,
        rows: Callable[[], Iterator[TraceRow]],
        queue: SampleQueue[TraceRow],
        speed: float,
        repeat: bool,
        on_update: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._rows, self._queue, self._speed, self._repeat = rows, queue, speed, repeat
        self._on_update, self._on_end = on_update, on_end
        self._clock = UpdateClock()
        self.lateness, self.worked, self.failures = Lateness(), TimeHistogram(WORK_BOUNDS_S), 0
        self.period_s = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_settings(self, settings: SamplingSettings) -> None:
        """A trace has its own period."""

    def _run(self) -> None:
        offset_t = 0.0
        began_s, began_t = time.monotonic(), None
        while not self._stop.is_set():
            last_t = 0.0
            for row in self._rows():
                t = row.reading.t + offset_t
                began_t = t if began_t is None else began_t
                wait_s = began_s + (t - began_t) / self._speed - time.monotonic()
                if self._stop.wait(max(0.0, wait_s)) or not self._put(shifted(row, offset_t)):
                    return
                self.lateness.record(max(0.0, -wait_s))
                if self._clock.due(t):
                    self._on_update()
                last_t = row.reading.t
            if not self._repeat:
                break
            first_t = next(self._rows()).reading.t
            offset_t += last_t - first_t + 0.1
        self._on_end()

    def _put(self, row: TraceRow) -> bool:
        """False when it was stopped while it waited for room."""
        while self._queue.full:
            if self._stop.wait(QUEUE_FULL_PAUSE_S):
                return False
        self._queue.put(row)
        return True

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)


def shifted(row: TraceRow, offset_t: float) -> TraceRow:
    """The same row later: a repeated trace must not go back in time (its counters do, which is "unknown" once)."""
    if not offset_t:
        return row
    return replace(row, reading=replace(row.reading, t=row.reading.t + offset_t))
