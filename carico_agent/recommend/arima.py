"""ARIMA(p, 1, q) by repeated least squares: a forecast of the next minutes with its standard deviation.

What it believes: the *changes* of a series depend linearly on the last p changes and the last q surprises. An AR(48)
gives a first guess of the surprises; then, for each 2 ≤ p, q ≤ 9, eight rounds of least squares; the smallest AIC wins.
Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.2, equations 5.7 to
5.17. Its printed (5.12) lost a square.

Three things differ from the source. Orders that are not stationary and invertible are passed over: of 300 simulated
ARIMA(2,1,1) a few forecast an explosion (root mean square error at five steps: 155 standard deviations). The source
adds the variances of the steps as if they were independent; the sum of changes has the variance
σ²·Σ_{k<τ}(Σ_{i≤k} ψ_i)², a standard deviation larger by 15 to 29 % (five steps, six synthetic series). And σ² is
divided by the degrees of freedom left, T − p − q: with up to 18 parameters for 110 residuals the mean square is small.

Why not statsmodels: 189 MB and 1.8 s to import for arithmetic that numpy does for all 64 orders at once. Gram matrices
are 18 × 18; columns have unit length, and an order is dropped when its condition number is beyond 1e10.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Variance = Literal["exact", "thesis"]

MIN_ORDER, MAX_ORDER = 2, 9
LONG_ORDER = 48
LONG_LENGTH = 119
"""The source fits AR(48) to 119 changes; shorter series get a proportionally shorter one."""
ROUNDS = 8
MAX_CONDITION = 1e10
MAX_RADIUS = 0.999
MIN_SAMPLES = 60


class CannotFit(ValueError):
    """Says why: too few samples, no change at all, or a rank-deficient fit."""


@dataclass(frozen=True)
class ArimaFit:
    """z_t = Σ α_i z_{t−i} + Σ β_i u_{t−i} + u_t, u ~ N(0, σ²), z = Δx."""

    alpha: Array
    beta: Array
    sigma: float
    aic: float
    r_squared: float
    last: float
    """x_t, where the forecast starts."""
    changes: Array
    """The last p changes, newest first."""
    surprises: Array
    """The last q residuals, newest first."""
    residuals: Array = field(default_factory=lambda: np.zeros(0))
    """All that the fit minimised, oldest first."""

    @property
    def order(self) -> tuple[int, int]:
        return self.alpha.size, self.beta.size

    def forecast(self, steps: int) -> Array:
        """x̂ at t+1 … t+steps (5.10, 5.11); future surprises are zero."""
        changes, surprises, made = list(self.changes), list(self.surprises), []
        for _ in range(steps):
            step = float(self.alpha @ changes[: self.alpha.size] + self.beta @ surprises[: self.beta.size])
            made.append(step)
            changes.insert(0, step)
            surprises.insert(0, 0.0)
        return np.asarray(self.last + np.cumsum(made))

    def psi(self, count: int) -> Array:
        """ψ_0 … ψ_{count−1} of the equivalent MA(∞): ψ_j = β_j + Σ α_i ψ_{j−i}."""
        psi = [1.0]
        for j in range(1, count):
            beta = float(self.beta[j - 1]) if j <= self.beta.size else 0.0
            psi.append(beta + sum(float(a) * psi[j - i] for i, a in enumerate(self.alpha[:j], start=1)))
        return np.array(psi[:count])

    def deviation(self, steps: int, variance: Variance = "exact") -> Array:
        """Standard deviation of the forecast at t+1 … t+steps."""
        psi = self.psi(steps)
        if variance == "thesis":
            # Σ_{i≤τ} σ²·(1 + Σ_{j<i} ψ_j²): every step's error taken as independent of the others.
            return np.asarray(self.sigma * np.sqrt(np.cumsum(np.cumsum(psi**2))))
        # σ²·Σ_{k<τ} (Σ_{i≤k} ψ_i)²
        return np.asarray(self.sigma * np.sqrt(np.cumsum(np.cumsum(psi) ** 2)))


def fit(x: Array, max_order: int = MAX_ORDER) -> ArimaFit:
    """The best order for the series x (oldest first); CannotFit says why not."""
    if x.size < MIN_SAMPLES:
        raise CannotFit(f"{x.size} samples, {MIN_SAMPLES} are needed")
    if not np.isfinite(x).all():
        raise CannotFit("the series has unknown values")
    scale = float(np.abs(np.diff(x)).max())
    if scale <= 1e-12 * max(float(np.abs(x).max()), 1e-300):
        raise CannotFit("the series never changes")
    z = np.diff(x) / scale
    orders = [(p, q) for p in range(MIN_ORDER, max_order + 1) for q in range(MIN_ORDER, max_order + 1)]
    coefficients, residuals, deficient = _fit_all(z, orders, max_order)
    squares = np.einsum("ct,ct->c", residuals[:, max_order:], residuals[:, max_order:])
    rows = z.size - max_order
    sizes = np.array([p + q for p, q in orders])
    # (5.12) with its square: AIC = ln(Σû²/T) + 2(p + q)/T
    aic = np.log(np.maximum(squares / rows, 1e-300)) + 2.0 * sizes / rows
    best = _first_stable(coefficients, orders, np.where(deficient | ~np.isfinite(aic), np.inf, aic), max_order)
    p, q = orders[best]
    total = float(z[max_order:] @ z[max_order:])
    return ArimaFit(
        coefficients[best, :p],
        coefficients[best, max_order : max_order + q],
        float(np.sqrt(squares[best] / max(rows - p - q, 1))) * scale,
        float(aic[best]),
        1.0 - float(squares[best]) / total if total > 0 else 0.0,
        float(x[-1]),
        z[: -p - 1 : -1] * scale,
        residuals[best, : -q - 1 : -1] * scale,
        residuals[best, max_order:] * scale,
    )


def _first_stable(coefficients: Array, orders: list[tuple[int, int]], aic: Array, most: int) -> int:
    """The smallest AIC among the stationary and invertible; others forecast growth without end or past surprises."""
    if not np.isfinite(aic).any():
        raise CannotFit("the fit is rank-deficient for every order")
    for candidate in np.argsort(aic, kind="stable"):
        p, q = orders[candidate]
        if not np.isfinite(aic[candidate]):
            break
        alpha, beta = coefficients[candidate, :p], coefficients[candidate, most : most + q]
        if max(_radius(alpha), _radius(-beta)) < MAX_RADIUS:
            return int(candidate)
    raise CannotFit("no order gives a stable model")


def _radius(coefficients: Array) -> float:
    """Spectral radius of x_t = Σ c_i x_{t−i}: below 1 it dies out."""
    companion = np.eye(coefficients.size, k=-1)
    companion[0] = coefficients
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _fit_all(z: Array, orders: list[tuple[int, int]], most: int) -> tuple[Array, Array, Any]:
    """Coefficients (α padded to `most`, then β), residuals and a flag "deficient" for every order at once."""
    count, n = len(orders), z.size
    used = np.zeros((count, 2 * most))
    for row, (p, q) in enumerate(orders):
        used[row, :p] = 1.0
        used[row, most : most + q] = 1.0
    long_order = n * LONG_ORDER // LONG_LENGTH
    residuals = np.broadcast_to(_long_residuals(z, long_order), (count, n)).copy()
    lagged_z = np.broadcast_to(_lags(z[None, :], most), (count, n - most, most))
    target = z[most:]
    deficient = np.zeros(count, dtype=bool)
    solved = np.zeros((count, 2 * most))
    for turn in range(ROUNDS):
        X = np.concatenate([lagged_z, _lags(residuals, most)], axis=2) * used[:, None, :]
        # The first residuals are known only from `long_order` on.
        since = long_order if turn == 0 else 0
        solved, bad = _least_squares(X[:, since:], target[since:], used)
        deficient |= bad
        residuals[:, most:] = target - np.einsum("ctk,ck->ct", X, solved)
        residuals[:, :most] = 0.0
        residuals[deficient] = 0.0
    return solved, residuals, deficient


def _lags(series: Array, most: int) -> Array:
    """(count, n − most, most): at each t from `most` on, the values at t − 1, t − 2, … t − most."""
    windows = np.lib.stride_tricks.sliding_window_view(series, most, axis=1)[:, :-1]
    return np.asarray(windows[:, :, ::-1])


def _long_residuals(z: Array, order: int) -> Array:
    """û of an AR(order) by least squares; zero where it is not known."""
    X = _lags(z[None, :], order)[0]
    solution = np.linalg.lstsq(X, z[order:], rcond=None)[0]
    residuals = np.zeros(z.size)
    residuals[order:] = z[order:] - X @ solution
    return residuals


def _least_squares(X: Array, y: Array, used: Array) -> tuple[Array, Any]:
    """Normal equations of all orders; unused columns get a 1 on the diagonal and the solution 0."""
    gram = np.matmul(X.transpose(0, 2, 1), X)
    diagonal = np.einsum("ckk->ck", gram)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    empty = (diagonal <= 0) & (used > 0)
    gram = gram / size[:, :, None] / size[:, None, :]
    # A ridge of 1e-12 on columns of unit length keeps an exactly singular order solvable, so that it can be named.
    gram[:, np.arange(used.shape[1]), np.arange(used.shape[1])] += np.where(used > 0, 1e-12, 1.0)
    inverse = np.linalg.inv(gram)
    condition = np.abs(gram).sum(axis=1).max(axis=1) * np.abs(inverse).sum(axis=1).max(axis=1)
    right = np.einsum("ctk,t->ck", X, y) / size
    solution = np.einsum("ckj,cj->ck", inverse, right) / size * used
    return solution, (condition > MAX_CONDITION) | empty.any(axis=1)
