"""Kalman filters, small enough to read at a glance.

Why not filterpy: importing it costs 65 MB and 0.6 s (it pulls scipy), for arithmetic of four lines. It is the oracle
of the tests instead, which compare these two classes with it to 1e-9.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class ScalarKalman:
    """Believes one slowly wandering number: `x` with variance `p`.

    >>> k = ScalarKalman(x=0.0, p=1.0)
    >>> k.predict(q=0.0); k.update(z=1.0, h=1.0, r=1.0)
    >>> k
    ScalarKalman(x=0.5, p=0.5)
    """

    x: float
    p: float

    def predict(self, q: float) -> None:
        # x ← x, P ← P + Q
        self.p += q

    def update(self, z: float, h: float, r: float) -> None:
        # S = H P Hᵀ + R, K = P Hᵀ / S, x ← x + K (z − H x), P ← (1 − K H) P (1 − K H) + K R K (Joseph form)
        gain = self.p * h / (h * self.p * h + r)
        self.x += gain * (z - h * self.x)
        rest = 1 - gain * h
        self.p = rest * self.p * rest + gain * r * gain


@dataclass(slots=True)
class JointKalman:
    """Believes several numbers at once, with their covariance: `x` (n) with `p` (n×n)."""

    x: NDArray[np.float64]
    p: NDArray[np.float64]

    def predict(self, q: NDArray[np.float64]) -> None:
        self.p = self.p + q

    def update(self, z: float, h: NDArray[np.float64], r: float) -> None:
        gain = self.p @ h / (h @ self.p @ h + r)
        self.x = self.x + gain * (z - h @ self.x)
        rest = np.eye(len(self.x)) - np.outer(gain, h)
        self.p = rest @ self.p @ rest.T + r * np.outer(gain, gain)
