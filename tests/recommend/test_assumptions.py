"""The tests of lab/traces/assumptions.py tell what they should tell, on series whose truth is known."""

import numpy as np

from carico_agent.recommend.arima import fit
from carico_agent.recommend.backtest import NAMES, WINDOWLESS, backtest
from lab.traces.assumptions import CRITICAL, chi_squared, dependence, examine, sentences


def test_normal_residuals_are_rejected_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(1)
    normal = np.mean([chi_squared(rng.normal(3.0, 2.0, 110)) > CRITICAL for _ in range(1000)])
    heavy = np.mean([chi_squared(rng.standard_t(1.5, 110)) > CRITICAL for _ in range(200)])
    assert 0.02 < normal < 0.09 and heavy > 0.9


def test_dependence_tells_a_walk_from_noise() -> None:
    rng = np.random.default_rng(2)
    assert np.mean([dependence(rng.normal(size=120)) for _ in range(100)]) < 0.08
    assert np.mean([dependence(np.cumsum(rng.normal(size=120))) for _ in range(100)]) > 0.4


def test_residuals_of_a_fit_are_what_it_minimised() -> None:
    found = fit(np.cumsum(np.random.default_rng(3).normal(size=120)))
    p, q = found.order
    assert np.allclose(found.residuals[::-1][:q], found.surprises)
    assert np.isclose(np.sqrt((found.residuals**2).sum() / (found.residuals.size - p - q)), found.sigma)


def test_vpa_without_windows_is_a_curve_of_its_own() -> None:
    """Memory that is high for a tenth of the time: the daily peak covers it, a percentile of all minutes hardly."""
    x = np.where(np.arange(400) % 12 == 0, 400.0, 200.0) * 2**20 + np.arange(400)
    rows = backtest("memory", [x], max_origins=6, windowless=True)
    short = {row.method: row.short for row in rows if row.n == 0.0}
    assert set(short) == {*NAMES, WINDOWLESS} and short[WINDOWLESS] > short["vpa"]
    assert {row.method for row in backtest("memory", [x], max_origins=2)} == set(NAMES)


def test_sentences_come_from_the_rows() -> None:
    rng = np.random.default_rng(4)
    many = [np.cumsum(rng.normal(size=200)) * 2**20 + 2**30 for _ in range(6)]
    found = examine("walks", "memory", many)
    assert found.series == found.fitted == 6 and f"{found.rejected} of 6" in found.row()
    assert f"{found.beyond:.0%}" in sentences([found])[0]
