"""From points as they come to a series one can compute with. What is wrong is dropped and counted, never guessed.

Unknown (NaN), negative, out of order: dropped. A counter that went backwards was reset: that difference is dropped. A
gap of up to three samples is interpolated; a longer one starts the series anew, because a container that was away for
minutes is in another state than before.
"""

from collections import Counter
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

STEP_S = 60.0
MAX_GAP = 3
TAIL = 120
"""Two hours of minutes, what the forecasts look at."""


def clean(t_s: Array, values: Array) -> tuple[Array, Array, Counter[str]]:
    """What remains of the points, and how many were dropped for which reason.

    >>> t, v, dropped = clean(np.array([0.0, 60, 30, 120]), np.array([1.0, float("nan"), 2, -1]))
    >>> v.tolist(), dict(dropped)
    ([1.0, 2.0], {'unknown': 1, 'negative': 1})
    """
    dropped: Counter[str] = Counter()
    known = np.isfinite(values) & np.isfinite(t_s)
    dropped["unknown"] = int((~known).sum())
    t_s, values = t_s[known], values[known]
    positive = values >= 0
    dropped["negative"] = int((~positive).sum())
    t_s, values = t_s[positive], values[positive]
    if t_s.size:
        newest = np.maximum.accumulate(t_s)
        ordered = np.concatenate([[True], t_s[1:] > newest[:-1]])
        dropped["out of order"] = int((~ordered).sum())
        t_s, values = t_s[ordered], values[ordered]
    return t_s, values, +dropped


def rates(t_s: Array, counter: Array) -> tuple[Array, Array, Counter[str]]:
    """Increase per second between neighbours of a cumulative counter, stamped at the later one.

    >>> rates(np.array([0.0, 60, 120, 180]), np.array([0.0, 30, 5, 35]))[1].tolist()
    [0.5, 0.5]
    """
    t_s, counter, dropped = clean(t_s, counter)
    increase, elapsed_s = np.diff(counter), np.diff(t_s)
    kept = increase >= 0
    dropped["counter reset"] = int((~kept).sum())
    return t_s[1:][kept], increase[kept] / elapsed_s[kept], +dropped


def last_run(t_s: Array, values: Array, step_s: float = STEP_S, keep: int = TAIL) -> Array:
    """The newest stretch without a long gap, one value per step, the newest last.

    >>> last_run(np.array([0.0, 600, 660, 780]), np.array([9.0, 1, 2, 4])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    if t_s.size == 0:
        return np.zeros(0)
    long = np.flatnonzero(np.rint(np.diff(t_s) / step_s) - 1 > MAX_GAP)
    first = int(long[-1]) + 1 if long.size else 0
    count = min(int(np.rint((t_s[-1] - t_s[first]) / step_s)) + 1, keep)
    grid = t_s[-1] - step_s * np.arange(count - 1, -1, -1)
    return np.asarray(np.interp(grid, t_s[first:], values[first:]))


class Tail:
    """The newest `keep` values of a series, one per step, fed one by one; the same rules as `last_run`."""

    def __init__(self, step_s: float = STEP_S, keep: int = TAIL) -> None:
        self.step_s, self.keep = step_s, keep
        self.last_s: float | None = None
        self._values = np.zeros(2 * keep)
        self._count = 0

    def push(self, t_s: float, value: float) -> None:
        """A clean value, later than the one before."""
        steps = 0 if self.last_s is None else round((t_s - self.last_s) / self.step_s)
        if self.last_s is None or steps - 1 > MAX_GAP:
            self._count = 0
            self._append(value)
        elif steps >= 1:
            last = self._values[self._count - 1]
            for step in range(1, steps + 1):
                self._append(last + (value - last) * step / steps)
        else:  # sooner than half a step: the newer value stands for this step
            self._values[self._count - 1] = value
            return
        self.last_s = t_s

    def load(self, values: Array, last_s: float | None) -> None:
        """Start from a run that is known already."""
        kept = values[-self.keep :]
        self._values[: kept.size] = kept
        self._count, self.last_s = kept.size, last_s

    @property
    def values(self) -> Array:
        return self._values[max(self._count - self.keep, 0) : self._count].copy()

    def _append(self, value: float) -> None:
        """In place; every `keep` values the newest half moves to the front."""
        if self._count == self._values.size:
            self._values[: self.keep] = self._values[self.keep :]
            self._count = self.keep
        self._values[self._count] = value
        self._count += 1
