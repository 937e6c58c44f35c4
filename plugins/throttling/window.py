"""What happened to one cgroup lately: counters kept for the longest window, and their differences."""

from collections import deque
from dataclasses import dataclass

from carico_agent.plugin_api import CgroupUsage


@dataclass(frozen=True, slots=True)
class WindowUsage:
    """Differences over one window, all with the measured time between the two readings."""

    elapsed_s: float
    periods: int
    throttled: int
    throttled_s: float
    used_cores: float
    waiting_ratio: float
    """Share of the time in which a thread of the group waited for a CPU (PSI `some`); a quota is waiting, too."""

    @property
    def throttled_ratio(self) -> float:
        return self.throttled / self.periods if self.periods else 0.0


class ThrottleWindow:
    """Readings of one cgroup over the last `keep_s` seconds; a counter that went backwards starts it anew."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._readings: deque[tuple[float, tuple[int, ...]]] = deque()

    def add(self, now_s: float, usage: CgroupUsage) -> None:
        stall = usage.pressure.get("cpu")
        counters = (
            usage.nr_periods or 0,
            usage.nr_throttled or 0,
            usage.throttled_usec or 0,
            usage.cpu_usage_usec or 0,
            stall.some_usec if stall else 0,
        )
        now_s = now_s if usage.read_s is None else usage.read_s
        if self._readings and now_s <= self._readings[-1][0]:  # the same reading again
            return
        if self._readings and any(new < old for new, old in zip(counters, self._readings[-1][1], strict=True)):
            self._readings.clear()
        self._readings.append((now_s, counters))
        while now_s - self._readings[0][0] > self._keep_s and len(self._readings) > 2:
            self._readings.popleft()

    def over(self, window_s: float) -> WindowUsage | None:
        """The difference between now and the oldest reading within `window_s`; None until there are two."""
        if len(self._readings) < 2:
            return None
        now_s, new = self._readings[-1]
        then_s, old = next((r for r in self._readings if now_s - r[0] <= window_s + 0.5), self._readings[-2])
        if then_s == now_s:
            then_s, old = self._readings[-2]
        periods, throttled, throttled_usec, used_usec, waiting_usec = (a - b for a, b in zip(new, old, strict=True))
        elapsed_s = max(now_s - then_s, 1e-9)
        return WindowUsage(
            elapsed_s,
            periods,
            throttled,
            throttled_usec / 1e6,
            used_usec / 1e6 / elapsed_s,
            min(waiting_usec / 1e6 / elapsed_s, 1.0),
        )
