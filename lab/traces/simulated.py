"""Series as containers make them, simulated: one value a minute, six hours, in units of about 1/100."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
MINUTES = 360
MIB = 2**20


def arima(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """ARIMA(2,1,1) around 100."""
    u, z = rng.normal(0, 1, n + 200), np.zeros(n + 200)
    for t in range(2, n + 200):
        z[t] = 0.5 * z[t - 1] - 0.3 * z[t - 2] + u[t] + 0.4 * u[t - 1]
    return np.asarray(np.maximum(100 + np.cumsum(z)[200:], 1.0))


def level(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """Returns to its mean: a service under steady load."""
    x, share, size = np.zeros(n), rng.uniform(0.3, 0.95), rng.uniform(1, 15)
    for t in range(1, n):
        x[t] = share * x[t - 1] + rng.normal(0, size)
    return np.asarray(np.maximum(100 + x, 1.0))


def sawtooth(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """A garbage collector: climbs, and falls back."""
    x, value = np.zeros(n), 50.0
    step, top = rng.uniform(0.5, 6), rng.uniform(70, 140)
    for t in range(n):
        value = value + step * rng.uniform(0.5, 1.5) if value < top else 50 * rng.uniform(0.9, 1.1)
        x[t] = value
    return x


def batch(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """Steps: another phase every half an hour or so."""
    x, value = np.zeros(n), 60.0
    for t in range(n):
        if rng.random() < 1 / 30:
            value = rng.uniform(20, 150)
        x[t] = value + rng.normal(0, 1)
    return np.asarray(np.maximum(x, 1.0))


def growth(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """A leak or a cache that fills."""
    return np.asarray(50 + np.cumsum(np.maximum(rng.normal(rng.uniform(0.02, 0.4), 0.5, n), 0.0)))


def spikes(rng: np.random.Generator, n: int = MINUTES) -> Array:
    """Quiet, and now and then a request that takes much."""
    return np.asarray(30 + rng.gamma(2, 1, n) + (rng.random(n) < 0.04) * rng.gamma(4, 20, n))


SHAPES: dict[str, Callable[[np.random.Generator], Array]] = {
    workload.__name__: workload for workload in (arima, level, sawtooth, batch, growth, spikes)
}


def series(scale: float, each: int, seed: int) -> list[Array]:
    """`each` series of every workload; sizes of containers are spread over a decade."""
    rng = np.random.default_rng(seed)
    return [shape(rng) * scale * 10 ** rng.uniform(-0.5, 0.5) for shape in SHAPES.values() for _ in range(each)]
