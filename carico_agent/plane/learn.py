"""The concurrency curve f(x) of an API server, learned from what it does: (requests executing, cores used) per window.

Concurrency is binned on a logarithmic scale, eight bins per octave, and each bin forgets with a half-life: the mapping
changes with the requests' mix. A bin that was not seen for long enough is dropped. Bounded: at most 200 bins, whatever
comes.
"""

import math
from dataclasses import dataclass
from typing import Any

from carico_agent.plane.curve import BadTable, Curve

PER_OCTAVE = 8
HALF_LIFE_S = 6 * 3600.0
MIN_X = 1 / 64
MAX_BIN = 200
MIN_WEIGHT = 1 / 16
"""A bin that has faded below this is dropped: a day after its only window, 44 hours after the last of many."""
FLAT_RATIO = 0.95
"""A doubling of the concurrency that brings less than the rest to 1 shows that the cores are used up."""


@dataclass(slots=True)
class _Bin:
    """Weighted means of what fell into it."""

    weight: float
    x: float
    cores: float
    time_s: float

    def left(self, now_s: float) -> float:
        """Its weight after what it has forgotten until `now_s`."""
        return self.weight * float(0.5 ** (max(0.0, now_s - self.time_s) / HALF_LIFE_S))


def _key(x: float) -> int:
    return 0 if x < MIN_X else min(MAX_BIN, 1 + round(PER_OCTAVE * math.log2(x / MIN_X)))


class LearnedCurve:
    """Points come in with a time; a curve comes out when something is known.

    >>> learned = LearnedCurve()
    >>> for t, x, cores in [(0, 0, 0.1), (60, 1, 0.9), (120, 4, 2.0)]: learned.add(t, x, cores)
    >>> learned.curve().cores(4), len(learned)
    (2.0, 3)
    """

    def __init__(self) -> None:
        self._bins: dict[int, _Bin] = {}

    def __len__(self) -> int:
        return len(self._bins)

    def add(self, time_s: float, x: float, cores: float) -> None:
        """One window: x requests executing, cores used, both means. Unknown values (NaN, negative) are left out."""
        if not (math.isfinite(x) and math.isfinite(cores) and x >= 0 and cores >= 0):
            return
        key = _key(x)
        old = self._bins.get(key)
        if old is None:
            self._bins[key] = _Bin(1.0, x, cores, time_s)
        else:
            kept = old.left(time_s)
            weight = kept + 1
            self._bins[key] = _Bin(
                weight, (kept * old.x + x) / weight, (kept * old.cores + cores) / weight, max(time_s, old.time_s)
            )
        self._bins = {key: one for key, one in self._bins.items() if one.left(time_s) >= MIN_WEIGHT}

    def points(self) -> list[tuple[float, float]]:
        return sorted((one.x, one.cores) for one in self._bins.values())

    def curve(self) -> Curve | None:
        """Smoothed; None before anything is known. Where idleness was never seen it begins at (0, 0): without that a
        curve of one point, 40 requests on 1.8 cores, says that one request uses 1.8 cores."""
        begin = {} if 0 in self._bins or not self._bins else {0.0: 0.0}
        try:
            return Curve.of({**begin, **{one.x: self._smoothed(key) for key, one in self._bins.items()}}.items())
        except BadTable:
            return None

    def peak(self) -> float | None:
        """The most cores that the server can use; None while that is not known. It is known once twice the concurrency
        was seen to bring nothing more, with more than one request at once. Below one a curve is flat because the
        server idles."""
        curve = self.curve()
        if curve is None:
            return None
        cores = curve.peak()[1]
        enough = curve.reach(FLAT_RATIO * cores)
        return cores if enough is not None and curve.x[-1] >= 2 * max(1, enough) else None

    def _smoothed(self, key: int) -> float:
        """The weighted mean of the bins within an octave. One lucky window must not look like the best concurrency: on
        a machine with other work single windows of 2 s differed by a factor of two. Idleness (bin 0) stands alone."""
        near = [
            (one.weight * (PER_OCTAVE + 1 - abs(other - key)), one.cores)
            for other, one in self._bins.items()
            if abs(other - key) <= PER_OCTAVE and (other == 0) == (key == 0)
        ]
        return sum(weight * cores for weight, cores in near) / sum(weight for weight, _ in near)

    def save(self, now_s: float) -> list[list[float]]:
        """For a state file: weight, x, cores, age."""
        return [[one.weight, one.x, one.cores, now_s - one.time_s] for one in self._bins.values()]

    def load(self, rows: Any, now_s: float) -> None:
        """What `save` gave, perhaps in an earlier life; anything else is left out."""
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and len(row) == 4 and all(isinstance(v, int | float) for v in row):
                weight, x, cores, age_s = map(float, row)
                if all(map(math.isfinite, (weight, x, cores, age_s))) and min(weight, x, cores, age_s) >= 0:
                    self._bins[_key(x)] = _Bin(weight, x, cores, now_s - age_s)
