"""How often, and by how small steps, cgroup files are written: gently, whatever a plugin asks for."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from carico_agent.node.plugin_host import knobs
from carico_agent.node.plugin_host.journal import Knob


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """See the [plugins] section of the settings."""

    write_deadline_s: float = 2.0
    rewrite_after_s: float = 10.0
    writes_per_minute: int = 120
    min_step_ratio: float = 0.05


class WriteRate:
    """When each file was written, and how many in the last minute."""

    def __init__(self, limits: WriteLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock = limits, clock
        self._last_write_s: dict[Knob, float] = {}
        self._minute: deque[float] = deque()

    def wrote(self, knob: Knob) -> None:
        now_s = self._clock()
        self._last_write_s[knob] = now_s
        self._minute.append(now_s)
        while now_s - self._minute[0] >= 60:
            self._minute.popleft()

    def too_soon(self, knob: Knob, old: str, new: str) -> str | None:
        """Why this step has to wait; None when it may be made now."""
        if self._clock() - self._last_write_s.get(knob, -inf) < self.limits.rewrite_after_s:
            return f"written less than {self.limits.rewrite_after_s:g} s ago"
        if knobs.step_ratio(knob.key, old, new) < self.limits.min_step_ratio:
            return f"a step of less than {self.limits.min_step_ratio:.0%}"
        return None

    def too_many(self) -> str | None:
        since_s = self._clock() - 60
        within = sum(at_s > since_s for at_s in self._minute)
        return "too many writes this minute" if within >= self.limits.writes_per_minute else None

    @property
    def known(self) -> int:
        """Files whose last write is remembered."""
        return len(self._last_write_s)

    def keep(self, lives: Callable[[Knob], bool]) -> None:
        """Forget files whose cgroup has ended."""
        self._last_write_s = {knob: at_s for knob, at_s in self._last_write_s.items() if lives(knob)}
