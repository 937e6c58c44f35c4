"""The lab's backtest on few series: its report says what the rows say; recorded series are real and many."""

import os

import numpy as np
import pytest

from carico_agent.recommend.backtest import BacktestRow, ratio_to
from lab.traces.backtest import _reading, best_ratio, recorded, run, table, verdict
from lab.traces.record import WORKLOADS, read
from lab.traces.simulated import SHAPES as SIMULATED
from lab.traces.simulated import series


def test_recorded_series_are_many_and_change() -> None:
    found = recorded()
    assert len(found["memory"]) >= 50 and len(found["cpu"]) >= 50
    for many in found.values():
        assert all(x.size >= 130 and np.isfinite(x).all() and (x >= 0).all() and np.ptp(x) > 0 for x in many)


def test_a_process_can_be_read_and_a_missing_one_is_none() -> None:

    found = read(os.getpid())
    assert found is not None and found[0] > 0 and found[1] > 2**20
    assert read(2**22 + 1) is None and len(WORKLOADS) == 6


@pytest.mark.parametrize("kind", SIMULATED)
def test_simulated_series_are_positive_and_change(kind: str) -> None:
    x = SIMULATED[kind](np.random.default_rng(1))
    assert x.size == 360 and (x > 0).all() and np.ptp(x) > 0
    assert len(series(1.0, 2, 1)) == 2 * len(SIMULATED)


def test_the_report_says_what_the_rows_say() -> None:
    rows = [BacktestRow("vpa", 1, 9, 4, 100.0, 1, 0), BacktestRow("vpa", 2, 9, 2, 200.0, 1, 0)]
    rows += [BacktestRow("walk", 1, 9, 4, 60.0, 1, 0), BacktestRow("walk", 2, 9, 2, 120.0, 1, 0)]
    rows += [BacktestRow("arima", 1, 9, 4, 90.0, 1, 0), BacktestRow("arima", 2, 9, 2, 180.0, 1, 0)]
    assert best_ratio(rows) == ("walk", pytest.approx(0.6))
    result = "\n".join(verdict("here", {"memory": rows, "cpu": rows}))
    assert "walk needs 0.60 × vpa's excess" in result and "0.7 is reached" in result
    assert "memory: arima has 50% more excess than walk" in result


def test_the_variances_are_compared_at_the_n_that_is_named() -> None:
    """Rows go on to n = 12, where hardly anything is short."""
    peak = [BacktestRow("peak", 1, 99, 20, 100.0, 1, 0), BacktestRow("peak", 2, 99, 10, 200.0, 1, 0)]
    exact = [BacktestRow("arima", 4, 99, 20, 130.0, 1, 0), BacktestRow("arima", 12, 99, 2, 900.0, 1, 0)]
    thesis = [BacktestRow("arima", 4, 99, 24, 90.0, 1, 0), BacktestRow("arima", 12, 99, 1, 700.0, 1, 0)]
    result = "\n".join(_reading({"here": {"memory": peak + exact}}, {"here": {"memory": peak + thesis}}))
    assert "the source's variance leaves 24 cases short at n = 4, the exact one 20" in result
    assert f"{ratio_to(peak + exact, 'arima', 'peak'):.2f} × its excess at equal shortages" in result


def test_every_method_has_rows() -> None:
    found = run({"memory": series(2**21, 1, 3), "cpu": series(0.01, 1, 3)})
    for resource, rows in found.items():
        assert {row.method for row in rows} == {"vpa", "peak", "walk", "arima"}
        assert rows[0].cases == 6 * 12 and len(table(resource, rows)) == len(rows) + 3
