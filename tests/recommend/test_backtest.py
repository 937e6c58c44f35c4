"""The backtest: numbers by hand on a small series, nobody sees the future, and equal shortages are compared."""

import numpy as np
import pytest

from carico_agent.recommend.backtest import BacktestRow, backtest, excess_at, ratio_to

MIB = 2**20


def noisy(seed: int, n: int = 200) -> np.ndarray:
    return np.abs(np.random.default_rng(seed).normal(200, 20, n)) * MIB


def rows_of(rows: list[BacktestRow], method: str) -> list[BacktestRow]:
    return [row for row in rows if row.method == method]


def test_peak_by_hand() -> None:
    x = np.concatenate([np.tile([1.0, 2.0], 60), [2.5, 1.0, 1.0, 1.0, 1.0]])
    rows = rows_of(backtest("cpu", [x]), "peak")
    assert {row.cases for row in rows} == {1}
    by_n = {row.n: row for row in rows}
    assert [by_n[n].short for n in (-1.0, 0.0, 1.0, 2.0, 7.0)] == [1, 1, 1, 0, 0]  # 1.7, 2.0, 2.3, 2.6, 4.1 against 2.5
    assert by_n[0.0].shortfall == pytest.approx(0.5) and by_n[2.0].excess == pytest.approx(0.1)


def test_the_future_is_not_seen() -> None:
    x = noisy(1, 125)
    changed = x.copy()
    changed[120:] *= 3.0
    later = changed[120:].max() - x[120:].max()
    for before, after in zip(backtest("memory", [x]), backtest("memory", [changed]), strict=True):
        assert before.excess - before.shortfall - (after.excess - after.shortfall) == pytest.approx(later)


def test_more_safety_never_means_more_shortages() -> None:
    for resource, scale in (("memory", 1.0), ("cpu", 1.0 / (200 * MIB))):
        rows = backtest(resource, [noisy(seed) * scale for seed in range(6)])
        for method in ("vpa", "peak", "walk", "arima"):
            line = rows_of(rows, method)
            assert [r.short for r in line] == sorted((r.short for r in line), reverse=True)
            assert [r.excess for r in line] == sorted(r.excess for r in line)


def test_constant_and_short_series_are_left_out() -> None:
    assert {row.cases for row in backtest("memory", [np.full(300, 5.0), noisy(1)[:124], np.zeros(0)])} == {0}


def test_what_cannot_be_fitted_is_counted() -> None:
    rows = backtest("cpu", [np.arange(130.0)])
    assert rows_of(rows, "arima")[0].fallbacks == rows_of(rows, "arima")[0].cases == 2
    fifteen = next(row for row in rows_of(rows, "peak") if row.n == 1.0)
    assert {row.excess for row in rows_of(rows, "arima")} == {fifteen.excess}


def test_equal_shortages() -> None:
    rows = [BacktestRow("vpa", 1, 10, 4, 100.0, 1, 0), BacktestRow("vpa", 2, 10, 2, 200.0, 1, 0)]
    rows += [BacktestRow("walk", 1, 10, 5, 20.0, 1, 0), BacktestRow("walk", 2, 10, 1, 100.0, 1, 0)]
    rows += [BacktestRow("walk", 9, 10, 1, 500.0, 1, 0)]  # more safety that bought nothing does not count against it
    assert excess_at(rows, "walk", 3) == pytest.approx(60.0) and excess_at(rows, "walk", 9) == 20.0
    assert excess_at(rows, "walk", 0) is None
    assert ratio_to(rows, "walk") == pytest.approx((40 / 100 + 80 / 200) / 2)
    assert ratio_to(rows, "arima") is None
