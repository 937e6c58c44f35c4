"""What the agent itself costs: CPU, memory, and the time each stage takes."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Stage:
    """One stage of the flow: how often it ran and how long it took, wall clock and in total."""

    runs: int = 0
    total_s: float = 0.0
    max_s: float = 0.0

    def record(self, elapsed_s: float) -> None:
        self.runs += 1
        self.total_s += elapsed_s
        if elapsed_s > self.max_s:
            self.max_s = elapsed_s

    @property
    def mean_s(self) -> float:
        return self.total_s / self.runs if self.runs else 0.0


class OwnCost:
    """CPU seconds and resident bytes of this process, and its stages."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self._started_s = time.monotonic()
        self._started_cpu_s = self.cpu_s()
        self._window = (self._started_s, self._started_cpu_s)

    @staticmethod
    def cpu_s() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    @staticmethod
    def resident_bytes() -> int:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * PAGE_BYTES

    def stage(self, name: str) -> Stage:
        return self.stages.setdefault(name, Stage())

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self.stage(name).record(time.perf_counter() - started_s)

    def cpu_ratio(self) -> float:
        """CPU used since the last call, as a share of one core."""
        now_s, used_s = time.monotonic(), self.cpu_s()
        then_s, then_used_s = self._window
        self._window = (now_s, used_s)
        return (used_s - then_used_s) / max(now_s - then_s, 1e-9)
