"""Confidence intervals of the backtest: a method beside itself is 1, and sentences say no more than intervals do."""

from pathlib import Path

import numpy as np

from carico_agent.recommend.backtest import backtest
from lab.traces.backtest_public import (
    PAIRS,
    Interval,
    added,
    autocorrelation,
    intervals,
    main,
    per_series,
    sets,
    stretches,
)

RNG = np.random.default_rng(1)
SERIES = [1e9 + np.cumsum(RNG.normal(0, 1e6, 180)) for _ in range(6)]


def test_added_rows_are_those_of_all_series_at_once() -> None:
    tables = per_series("memory", SERIES)
    whole = backtest("memory", SERIES, max_origins=6)
    for one, other in zip(added(tables), whole, strict=True):
        assert (one.method, one.n, one.cases, one.short) == (other.method, other.n, other.cases, other.short)
        assert np.isclose(one.excess, other.excess) and np.isclose(one.shortfall, other.shortfall)


def test_intervals_hold_the_ratio() -> None:
    found = intervals(per_series("memory", SERIES), draws=40)
    assert set(found) == set(PAIRS)
    for one in found.values():
        assert one.ratio is None or one.low <= one.high


def test_a_sentence_says_what_the_whole_interval_says() -> None:
    assert Interval(0.8, 0.7, 0.9).says() == "has less excess than"
    assert Interval(0.8, 0.6, 1.1).says() == "is not told from"
    assert Interval(1.5, 1.2, 1.9).says() == "has more excess than"
    assert Interval(None).text() == "never equal"


def test_stretches_have_no_gaps_and_change(tmp_path: Path) -> None:
    values = np.full((3, 500), 5.0)
    values[0] += np.arange(500)
    values[1, ::50] = np.nan
    assert [x.size for x in stretches(values, 3)] == [360]
    assert sets(tmp_path) == {} and main(["--data", str(tmp_path)]) == 1


def test_a_single_jump_at_the_end_has_no_autocorrelation() -> None:
    jump = np.ones(360)
    jump[-1] = 2.0
    assert np.isfinite(autocorrelation([jump, *SERIES])).all()
