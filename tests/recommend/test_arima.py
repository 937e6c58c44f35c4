"""ARIMA: its band covers what it says, its deviation is that of a simulation, and what it cannot fit it refuses."""

import numpy as np
import pytest

from carico_agent.recommend.arima import ArimaFit, CannotFit, fit

ALPHA, BETA = (0.5, -0.3), (0.4,)
Z80 = 1.2815515655446004


def simulated(rng: np.random.Generator, n: int, paths: int) -> np.ndarray:
    """`paths` series of ARIMA(2,1,1), after a run-in."""
    u = rng.normal(0.0, 1.0, (n + 200, paths))
    z = np.zeros_like(u)
    for t in range(2, len(u)):
        z[t] = ALPHA[0] * z[t - 1] + ALPHA[1] * z[t - 2] + u[t] + BETA[0] * u[t - 1]
    return 100.0 + np.cumsum(z[200:], axis=0).T


def test_the_80_percent_band_covers_70_to_90() -> None:
    series = simulated(np.random.default_rng(4), 125, 200)
    inside = []
    for x in series:
        found = fit(x[:120])
        inside.append(np.abs(x[120:] - found.forecast(5)) <= Z80 * found.deviation(5))
    covered = np.mean(inside, axis=0)
    assert ((covered >= 0.70) & (covered <= 0.90)).all(), covered


def truth() -> ArimaFit:
    return ArimaFit(np.array(ALPHA), np.array(BETA), 1.0, 0.0, 0.0, 0.0, np.zeros(2), np.zeros(1))


def test_the_exact_deviation_is_that_of_a_simulation() -> None:
    """From a state of rest 40,000 futures are simulated."""
    u = np.random.default_rng(5).normal(0.0, 1.0, (8, 40_000))
    z = np.zeros_like(u)
    for t in range(3, 8):
        z[t] = ALPHA[0] * z[t - 1] + ALPHA[1] * z[t - 2] + u[t] + (BETA[0] * u[t - 1] if t > 3 else 0.0)
    monte_carlo = np.cumsum(z[3:], axis=0).std(axis=1)
    exact, thesis = truth().deviation(5), truth().deviation(5, "thesis")
    assert exact == pytest.approx(monte_carlo, rel=0.05)
    assert thesis[0] == pytest.approx(exact[0]) and thesis[4] < 0.9 * exact[4]  # the source's sum is too small


def test_forecast_follows_its_equation() -> None:
    model = ArimaFit(
        np.array([0.5, 0.2]), np.array([0.3, 0.1]), 1.0, 0, 0, 10.0, np.array([2.0, 1.0]), np.array([0.5, -1.0])
    )
    first = 0.5 * 2 + 0.2 * 1 + 0.3 * 0.5 + 0.1 * -1.0
    second = 0.5 * first + 0.2 * 2 + 0.1 * 0.5
    assert model.forecast(2).tolist() == pytest.approx([10 + first, 10 + first + second])
    assert model.psi(3).tolist() == pytest.approx([1.0, 0.8, 0.1 + 0.5 * 0.8 + 0.2])


def test_the_unit_does_not_matter() -> None:
    x = simulated(np.random.default_rng(6), 120, 1)[0]
    cores, memory = fit(x), fit(x * 2.0**20)
    assert memory.order == cores.order
    assert memory.forecast(5) == pytest.approx(cores.forecast(5) * 2.0**20, rel=1e-9)
    assert memory.deviation(5) == pytest.approx(cores.deviation(5) * 2.0**20, rel=1e-9)


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (np.arange(59.0), "59 samples, 60 are needed"),
        (np.full(120, 7.0), "never changes"),
        (np.where(np.arange(120) == 5, np.nan, 1.0), "unknown values"),
        (np.arange(120.0), "rank-deficient"),
        (np.tile([0.0, 1.0], 60), "rank-deficient"),
    ],
)
def test_refused(x: np.ndarray, why: str) -> None:
    with pytest.raises(CannotFit, match=why):
        fit(x)


def test_odd_series_never_give_a_forecast_that_is_not_finite() -> None:
    rng = np.random.default_rng(7)
    series = [
        np.where(np.arange(120) == 60, 1e9, 1.0) + rng.normal(0, 1e-9, 120),
        np.exp(np.arange(120) / 5.0),
        np.cumsum(rng.standard_cauchy(120)),
        rng.integers(0, 2, 120).astype(float),
        1e12 + rng.normal(0, 1e-3, 120),
    ]
    fitted = 0
    for x in series:
        before = x.copy()
        try:
            found = fit(x)
        except CannotFit:
            continue
        fitted += 1
        assert np.isfinite(found.forecast(5)).all() and np.isfinite(found.deviation(5)).all()
        assert np.array_equal(before, x)
    assert fitted >= 2, "some of them can be fitted"


def test_short_series_are_fitted_with_a_shorter_first_model() -> None:
    x = simulated(np.random.default_rng(8), 60, 1)[0]
    assert np.isfinite(fit(x).forecast(5)).all()
