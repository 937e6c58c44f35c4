"""The most that a sum of Pods will use in the next hours, by quantile, from a week of slots of what they used before.

It believes that the coming hours resemble the same hours of the last days. The forecast is a weighted sum of a few
amounts that all scale with usage, so nothing depends on the node's size:

| amount | what |
|---|---|
| now | the newest slot |
| last | peak of the last hours, as many as the horizon has |
| same | peak of the same hours on each of the last 7 days; the highest, older days drawn towards their mean |
| either | the larger of `last` and `same` |
| week_sd | standard deviation over all that is known |
| hours_sd | standard deviation over the last 2 hours |
| parts | Σ over workloads of the 99th percentile of the last 24 h (RC-like) |

The weights of WEIGHTS were fitted by quantile regression on half of the VMs and jobs of the public traces
(`python -m lab.traces --fit`); lab/results/traces.md has what they reach on the others. Why not the mean plus
one standard deviation of `same`, or the last hours if more: on held-out cases it lost 1.1 to 1.4 × as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico_agent.core.history import DAY_SLOTS, DAYS, SLOTS, Array, Singles

HORIZONS = (1, 12, 72, 288)
"""Horizons that weights are known for [slots]: 5 minutes, 1, 6 and 24 hours. Others lie between, by logarithm."""

QUANTILES = (0.5, 0.9, 0.95, 0.99)

OLDER_RATIO = 0.9
"""A day counts this much of the next one in `same`."""

MIN_KNOWN_RATIO = 0.5
"""Hours of a day count if at least this part of them was observed."""

HOURS_SLOTS = 24
"""Two hours: `hours_sd`."""

AMOUNTS = ("now", "last", "same", "either", "week_sd", "hours_sd", "parts")
FIRST_DAY_AMOUNTS = ("now", "last", "most", "week_sd", "parts")
"""Until the same hours of a day before are known: `most` is the highest slot so far."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts above, each per resource; `same` and `either` are NaN where no day before is known."""

    now: Array
    last: Array
    same: Array
    either: Array
    week_sd: Array
    hours_sd: Array
    parts: Array
    most: Array

    def columns(self, names: Sequence[str]) -> Array:
        return np.column_stack([getattr(self, name) for name in names])


class PastWeek:
    """A `series` per resource and slot, oldest first, the last slot being now (NaN: a gap), and its `parts`."""

    def __init__(self, series: Singles, parts: Array) -> None:
        self._known = ~np.isnan(series)
        self._low = np.where(self._known, series, np.float32(-np.inf))
        recent = slice(SLOTS - HOURS_SLOTS, SLOTS)
        self.newest = _newest(series, self._known)
        self._week_sd = _sd(series, self._known)
        self._hours_sd = _sd(series[:, recent], self._known[:, recent])
        self._parts = np.where(np.isnan(parts), self.newest, parts)
        self._most = _peak(self._low, self.newest)

    def amounts(self, horizon_slots: int) -> Amounts:
        last = _peak(self._low[:, SLOTS - horizon_slots :], self.newest)
        same = _same_hours(self._low, self._known, horizon_slots)
        return Amounts(
            now=self.newest,
            last=last,
            same=same,
            either=np.maximum(last, same),
            week_sd=self._week_sd,
            hours_sd=self._hours_sd,
            parts=self._parts,
            most=self._most,
        )


def _newest(series: Singles, known: NDArray[np.bool_]) -> Array:
    """The newest known value of each resource; NaN if there is none."""
    at = SLOTS - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.asarray(np.where(known.any(1), series[np.arange(len(series)), at], np.nan), float)


def _peak(low: Singles, otherwise: Array) -> Array:
    most = low.max(axis=1).astype(float)
    return np.where(np.isfinite(most), most, otherwise)


def _sd(series: Singles, known: NDArray[np.bool_]) -> Array:
    count = np.maximum(known.sum(1), 1)
    values = np.where(known, series, 0.0).astype(float)
    mean = values.sum(1) / count
    return np.asarray(np.sqrt(np.maximum((values * values).sum(1) / count - mean * mean, 0.0)))


def _same_hours(low: Singles, known: NDArray[np.bool_], horizon_slots: int) -> Array:
    """max over days d of mean + OLDER_RATIO^(d−1) · (peak of the same hours d days ago − mean)."""
    peaks = np.full((DAYS, len(low)), np.nan)
    for d in range(1, DAYS + 1):
        start = SLOTS - 1 - d * DAY_SLOTS
        hours = slice(max(0, start), min(start + horizon_slots, SLOTS - 1) + 1)
        width = hours.stop - hours.start
        enough = known[:, hours].sum(1) >= MIN_KNOWN_RATIO * width
        peaks[d - 1] = np.where(enough, low[:, hours].max(axis=1), np.nan)
    days = ~np.isnan(peaks)
    count = days.sum(0)
    mean = np.where(days, peaks, 0.0).sum(0) / np.maximum(count, 1)
    fading = np.power(OLDER_RATIO, np.arange(DAYS))[:, None]
    drawn = np.where(days, mean + (peaks - mean) * fading, -np.inf)
    return np.where(count > 0, drawn.max(axis=0), np.nan)


def forecast(series: Singles, parts: Array, horizon_slots: float, quantiles: Sequence[float]) -> Array:
    """Per quantile and resource the peak of the next `horizon_slots`, which may be a fraction of one; NaN: unknown."""
    whole = min(max(1, round(horizon_slots)), DAY_SLOTS)
    seen = PastWeek(series, parts)
    best = np.tile(seen.newest, (len(quantiles), 1))
    for slots in [*(h for h in HORIZONS if h < whole), whole]:  # a longer horizon never promises more room
        found = seen.amounts(slots)
        for row, quantile in enumerate(quantiles):
            best[row] = np.fmax(best[row], _weighted(found, slots, quantile))
    return best if horizon_slots >= 1 else seen.newest + horizon_slots * (best - seen.newest)


def _weighted(found: Amounts, slots: int, quantile: float) -> Array:
    first_day = np.isnan(found.same)
    if first_day.all():
        return np.asarray(found.columns(FIRST_DAY_AMOUNTS) @ weights(FIRST_DAY_WEIGHTS, slots, quantile))
    later = found.columns(AMOUNTS) @ weights(WEIGHTS, slots, quantile)
    if not first_day.any():
        return np.asarray(later)
    first = found.columns(FIRST_DAY_AMOUNTS) @ weights(FIRST_DAY_WEIGHTS, slots, quantile)
    return np.where(first_day, first, later)


def weights(table: Array, slots: int, quantile: float) -> Array:
    """Between the tabled horizons (by logarithm) and quantiles; outside them, those at the edge."""
    by_quantile = _between(np.array(QUANTILES), table, quantile)
    return _between(np.log(HORIZONS), by_quantile, float(np.log(slots)))


def _between(points: Array, table: Array, x: float) -> Array:
    at = min(max(int(np.searchsorted(points, x)) - 1, 0), len(points) - 2)
    share = min(max((x - points[at]) / (points[at + 1] - points[at]), 0.0), 1.0)
    return np.asarray((1 - share) * table[at] + share * table[at + 1])


def parts_of(last_day: Singles, pods: Array) -> Array:
    """RC-like: Σ over workloads of Pods × 99th percentile of the last 24 h, per resource; NaN if nothing is known.

    `last_day`: workloads × resources × slots.
    """
    day = np.sort(last_day, axis=2)  # NaN last
    count = (~np.isnan(day)).sum(2)
    at = 0.99 * np.maximum(count - 1, 0)
    low, share = np.floor(at).astype(int), at - np.floor(at)
    first = np.take_along_axis(day, low[:, :, None], 2)[:, :, 0]
    second = np.take_along_axis(day, np.minimum(low + 1, np.maximum(count - 1, 0))[:, :, None], 2)[:, :, 0]
    percentile = first + share * (second - first)
    known = count > 0
    total = (np.where(known, percentile, 0.0) * pods[:, None]).sum(0)
    return np.where(known.any(0), total, np.nan)


# per quantile (.5, .9, .95, .99) and horizon (5 min, 1 h, 6 h, 24 h): now, last, same, either, week_sd, hours_sd, parts
WEIGHTS: Array = np.array(
    [
        [
            [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [0.27, 0.7, 0.02, 0.0, 0.0, 0.0, 0.02],
            [0.5, 0.23, 0.22, 0.0, 0.0, 0.38, 0.05],
            [0.41, 0.15, 0.0, 0.29, 0.2, 0.12, 0.16],
        ],
        [
            [0.0, 0.97, 0.02, 0.0, 0.0, 0.86, 0.04],
            [0.16, 0.51, 0.07, 0.13, 0.11, 0.52, 0.11],
            [0.13, 0.09, 0.25, 0.39, 0.21, 0.47, 0.13],
            [0.16, 0.0, 0.0, 0.73, 0.51, 0.31, 0.14],
        ],
        [
            [0.0, 0.89, 0.01, 0.04, 0.0, 1.28, 0.07],
            [0.21, 0.31, 0.06, 0.28, 0.23, 0.8, 0.11],
            [0.07, 0.0, 0.18, 0.6, 0.39, 0.29, 0.14],
            [0.11, 0.0, 0.0, 0.85, 0.49, 1.23, 0.07],
        ],
        [
            [0.0, 0.66, 0.0, 0.19, 0.0, 1.54, 0.15],
            [0.16, 0.09, 0.0, 0.53, 1.1, 0.35, 0.18],
            [0.0, 0.0, 0.28, 0.52, 1.03, 1.0, 0.17],
            [0.0, 0.0, 0.0, 0.95, 0.52, 2.86, 0.17],
        ],
    ]
)
# the same on the first day: now, last, most, week_sd, parts
FIRST_DAY_WEIGHTS: Array = np.array(
    [
        [
            [0.0, 1.0, 0.0, 0.0, 0.0],
            [0.3, 0.67, 0.0, 0.0, 0.04],
            [0.35, 0.0, 0.4, 0.0, 0.28],
            [0.23, 0.0, 0.14, 1.03, 0.69],
        ],
        [
            [0.0, 0.84, 0.11, 0.04, 0.05],
            [0.11, 0.58, 0.03, 0.26, 0.29],
            [0.0, 0.0, 0.0, 0.0, 1.0],
            [0.17, 0.0, 0.0, 2.49, 0.94],
        ],
        [
            [0.0, 0.81, 0.12, 0.38, 0.08],
            [0.07, 0.48, 0.07, 0.39, 0.39],
            [0.0, 0.0, 0.0, 0.0, 1.0],
            [0.11, 0.0, 0.0, 4.01, 1.03],
        ],
        [
            [0.0, 0.6, 0.09, 0.94, 0.29],
            [0.02, 0.36, 0.0, 2.23, 0.56],
            [0.0, 0.0, 0.0, 3.75, 0.97],
            [0.0, 0.0, 0.0, 5.0, 1.85],
        ],
    ]
)
