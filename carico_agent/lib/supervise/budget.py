"""How often to sample, given what sampling costs and how the node is doing. Pure: time and measurements are arguments.

Down at once by one step when two looks in a row are above budget or under pressure; up by one step after a calm
minute, if the cost at the higher rate would still fit. A relapse doubles that time, up to an hour, so that an agent at
the edge of its budget does not swing.

Pressure is a node short of memory, or one so busy that our ticks are missed. Busy CPUs alone are none: a full node is
where ten samples a second are worth most, and they take the same half percent of a core there.
"""

from dataclasses import dataclass
from math import nan

STEPS = (1, 2, 5, 10)
"""Multiples of the configured period: 10, 5, 2 and 1 Hz."""
LOOK_S = 5.0
MAX_CALM_S = 3600.0
MARGIN = 0.9


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the agent may cost, and from which usage on memory counts as short."""

    cpu_ratio: float = 0.03
    resident_bytes: float = 128e6
    pressure_ratio: float = 0.98
    calm_s: float = 60.0


class Pace:
    """Which multiple of the period applies now, and why.

    >>> pace = Pace(Allowance(cpu_ratio=0.02))
    >>> [pace.observe(t, cpu_ratio=0.05, resident_bytes=50e6) for t in (0.0, 5.0, 10.0, 15.0)]
    [False, True, False, True]
    >>> pace.multiple, pace.why
    (5, 'the agent takes 5.0% of a core, 2.0% are allowed')
    """

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.why = ""
        """Why it is slower than configured; empty when it is not."""
        self._step = 0
        self._bad_in_a_row = 0
        self._calm_since_s: float | None = None
        self._relapses = 0
        self._raised_s = -float("inf")

    def allow(self, allowance: Allowance) -> None:
        """From now on."""
        self.allowance = allowance

    @property
    def multiple(self) -> int:
        return STEPS[self._step]

    def observe(
        self, now_s: float, cpu_ratio: float, resident_bytes: float, memory: float = nan, missed: int = 0
    ) -> bool:
        """Take one measurement; True when the pace has changed. `memory`: its usage, NaN unknown; `missed`: ticks
        since the last measurement."""
        if trouble := self._trouble(cpu_ratio, resident_bytes, memory, missed, 1.0):
            self._calm_since_s = None
            self._bad_in_a_row += 1
            return self._bad_in_a_row >= 2 and self._slower(now_s, trouble)
        self._bad_in_a_row = 0
        if self._step == 0:
            return False
        faster = cpu_ratio * STEPS[self._step] / STEPS[self._step - 1]
        if self._trouble(faster, resident_bytes, memory, missed, MARGIN):
            self._calm_since_s = None
            return False
        if self._calm_since_s is None:
            self._calm_since_s = now_s
        return now_s - self._calm_since_s >= self._calm_s and self._faster(now_s)

    @property
    def _calm_s(self) -> float:
        """How long all must be well before the next step up."""
        return max(self.allowance.calm_s, min(MAX_CALM_S, self.allowance.calm_s * 2.0**self._relapses))

    def _trouble(self, cpu_ratio: float, resident_bytes: float, memory: float, missed: int, margin: float) -> str:
        allowed = self.allowance
        if cpu_ratio > margin * allowed.cpu_ratio:
            return f"the agent takes {cpu_ratio:.1%} of a core, {allowed.cpu_ratio:.1%} are allowed"
        if resident_bytes > margin * allowed.resident_bytes:
            return f"the agent takes {resident_bytes / 1e6:.0f} MB, {allowed.resident_bytes / 1e6:.0f} are allowed"
        if memory >= margin * allowed.pressure_ratio:  # NaN is not
            return f"the node is under pressure ({memory:.0%} of its memory used)"
        if missed:
            return f"the node is under pressure ({missed} ticks missed)"
        return ""

    def _slower(self, now_s: float, trouble: str) -> bool:
        self._bad_in_a_row = 0
        if self._step == len(STEPS) - 1:
            return False
        if now_s - self._raised_s < 2 * self._calm_s:
            self._relapses = min(self._relapses + 1, 12)
        self._step, self.why = self._step + 1, trouble
        return True

    def _faster(self, now_s: float) -> bool:
        self._step, self._calm_since_s, self._raised_s = self._step - 1, now_s, now_s
        if self._step == 0:
            self.why = ""
        return True
