"""The field's predictors of what running tasks will use together at most, written from their papers.

Each takes the usage so far (tasks × slots, the last column is now, NaN: did not run), the limits of the tasks, and the
horizon; and says one number. Persistence is there because forecasts that repeat the last value have been published.
"""

from collections.abc import Callable

import numpy as np

from lab.traces.data import DAY_SLOTS, Array

Predictor = Callable[[Array, Array, int], float]

WARM_SLOTS = 24
"""N-sigma looks at the last two hours; a task with less of them is cold."""


def now(usage: Array, limit: Array, horizon: int) -> float:
    """What is used now stays: what Pod-Capacity publishes."""
    return float(usage[:, -1].sum())


def persistence(usage: Array, limit: Array, horizon: int) -> float:
    """The peak of the last hours returns, as many as the horizon has."""
    return float(np.nansum(usage[:, -horizon:], axis=0).max())


def n_sigma(n: float) -> Predictor:
    """Take it to the limit (Bashir et al., EuroSys 2021): P = min(1, mean r + n·sd r)·ΣL, r[k] = Σu[k]/ΣL over warm
    tasks; a cold one counts at its limit."""

    def predict(usage: Array, limit: Array, horizon: int) -> float:
        recent = usage[:, -WARM_SLOTS:]
        warm = ~np.isnan(recent).any(axis=1) if recent.shape[1] == WARM_SLOTS else np.zeros(len(limit), bool)
        cold = float(limit[~warm].sum())
        if not warm.any():
            return cold
        ratio = recent[warm].sum(axis=0) / limit[warm].sum()
        return cold + min(1.0, float(ratio.mean() + n * ratio.std())) * float(limit[warm].sum())

    return predict


def rc_like(percentile: float) -> Predictor:
    """Resource Central (Cortez et al., SOSP 2017): Σ percentile_p(u/L)·L over the last 24 h."""

    def predict(usage: Array, limit: Array, horizon: int) -> float:
        day = usage[:, -DAY_SLOTS:]
        whole = ~np.isnan(day).any(axis=1)
        total = float(np.percentile(day[whole], percentile, axis=1).sum()) if whole.any() else 0.0
        return total + sum(float(np.percentile(row[~np.isnan(row)], percentile)) for row in day[~whole])

    return predict


def max_of(*parts: Predictor) -> Predictor:
    """The paper's choice: the larger of N-sigma and RC-like."""
    return lambda usage, limit, horizon: max(part(usage, limit, horizon) for part in parts)


BASELINES: dict[str, Predictor] = {
    "now": now,
    "persistence": persistence,
    "N-sigma": n_sigma(5),
    "RC-like": rc_like(99),
    "max of both": max_of(n_sigma(5), rc_like(99)),
}
