"""The low-rank memory of recent usage: σ₁u₁ is the RMS usage vector of the workload seen lately.

Batches are scaled by 1/√n, and merges are √w-weighted, so that σ₁ keeps its meaning: constant usage keeps σ₁
constant, and nodes with different numbers of samples stay comparable. (Plain concatenation lets σ₁ grow without
bound: *CARICO*, appendix A.3.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
TIED = 1e-9
"""Magnitudes that differ by less than this share count as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """Orthonormal directions `u` (m×r) of usage and their magnitudes `sigma` (r, falling).

    >>> s = Subspace.of_batch([[0.6, 0.6], [0.8, 0.8]])
    >>> round(s.magnitude, 12), s.direction.round(12).tolist()
    (1.0, [0.6, 0.8])
    >>> round(s.merge(s, 0.5).magnitude, 12)
    1.0

    Source: *CARICO* (dissertation), 3.2 and 3.3; u₁ ≥ 0 by Perron–Frobenius, appendix A.1.
    """

    u: Vector
    sigma: Vector

    @classmethod
    def empty(cls, m: int) -> "Subspace":
        """Nothing seen yet."""
        return cls(np.zeros((m, 0)), np.zeros(0))

    @classmethod
    def of_batch(cls, batch: ArrayLike, rank: int | None = None) -> "Subspace":
        """The subspace of an m×n batch, one column per sample."""
        a = np.asarray(batch, dtype=np.float64)
        if a.ndim != 2:
            raise ValueError(f"a batch is m×n, one column per sample; got shape {a.shape}")
        if not np.isfinite(a).all():
            raise ValueError("a batch must be finite; mask unknown values first")
        return cls._decompose(a / np.sqrt(max(a.shape[1], 1)), rank)

    @classmethod
    def _decompose(cls, a: Vector, rank: int | None) -> "Subspace":
        if a.shape[1] == 0:
            return cls.empty(a.shape[0])
        u, sigma, _ = np.linalg.svd(a, full_matrices=False)
        if sigma.size > 1 and sigma[1] >= (1 - TIED) * sigma[0] > 0:
            u = _lead(u, int(np.count_nonzero(sigma >= (1 - TIED) * sigma[0])))
        keep = min(rank or len(sigma), len(sigma))
        u, sigma = u[:, :keep], sigma[:keep]
        # The sign of a singular vector is free: each gets a positive sum, so that equal inputs give equal outputs.
        # Usage is non-negative, so u₁ is too; what rounding leaves below zero there is cut off.
        u = u * np.where(u.sum(axis=0) < 0, -1.0, 1.0)
        u[:, :1] = np.maximum(u[:, :1], 0.0)
        return cls(u, sigma)

    @property
    def m(self) -> int:
        return int(self.u.shape[0])

    @property
    def rank(self) -> int:
        return len(self.sigma)

    @property
    def magnitude(self) -> float:
        """σ₁: how heavy the recent workload is; 0 when nothing was seen."""
        return float(self.sigma[0]) if self.rank else 0.0

    @property
    def direction(self) -> Vector:
        """u₁ ≥ 0: which resources the recent workload uses."""
        return self.u[:, 0] if self.rank else np.zeros(self.m)

    @property
    def unit(self) -> Vector:
        """σ₁u₁: one "unit of workload" in the usage space [0,1]^m."""
        return self.magnitude * self.direction

    def take(self, batch: Vector, weight: float, rank: int | None = None) -> "Subspace":
        """The newest m×n batch joins: SVD of [√(1−w)·UΣ, √(w/n)·A].

        The same answer as merging the batch's own subspace, with one decomposition instead of two.

        >>> s, batch = Subspace.of_batch([[0.6, 0.2], [0.1, 0.9]]), np.array([[0.3, 0.5, 0.1], [0.2, 0.2, 0.7]])
        >>> bool(np.allclose(s.take(batch, 0.1).unit, s.merge(Subspace.of_batch(batch), 0.1).unit, atol=1e-14))
        True
        """
        if not self.rank:
            return self.of_batch(batch, rank)
        mine = self.u * (self.sigma * np.sqrt(1 - weight))
        return self._decompose(np.hstack([mine, batch * np.sqrt(weight / batch.shape[1])]), rank)

    def take_samples(self, samples: Sequence[Sequence[float]], weight: float, rank: int | None = None) -> "Subspace":
        """`take` for finite samples as they come, one row each; two resources, the usual number, without LAPACK.

        Why: that costs 10 µs instead of 60 µs in a loop and a fifth with cold caches, once a second, and a library of
        which then not one page is needed.

        >>> s = Subspace.of_batch([[0.6, 0.2], [0.1, 0.9]])
        >>> one, other = s.take_samples([[0.3, 0.2], [0.5, 0.7]], 0.1), s.take(np.array([[0.3, 0.5], [0.2, 0.7]]), 0.1)
        >>> bool(np.allclose(one.u, other.u, atol=1e-14)), bool(np.allclose(one.sigma, other.sigma, atol=1e-14))
        (True, True)
        """
        if self.m == 2 and len(samples) > 1 and (found := self._taken_in_plane(samples, weight, rank)):
            return found
        return self.take(np.array(samples, dtype=np.float64).T, weight, rank)

    def _taken_in_plane(self, samples: Sequence[Sequence[float]], weight: float, rank: int | None) -> "Subspace | None":
        """None where the direction is not unique (both magnitudes alike, or nothing used at all)."""
        weight = weight if self.rank else 1.0
        share, kept = weight / len(samples), 1 - weight
        # the columns of [√(1−w)·UΣ, √(w/n)·A], each with the square of its factor
        columns = [(x, y, share) for x, y in samples]
        columns += [(x, y, kept * s * s) for x, y, s in zip(*self.u.tolist(), self.sigma.tolist(), strict=True)]
        # their second moment [[a, b], [b, d]] has the eigenvalues σ² = (a + d)/2 ± √(((a − d)/2)² + b²)
        a = sum([f * x * x for x, _, f in columns])
        b = sum([f * x * y for x, y, f in columns])
        d = sum([f * y * y for _, y, f in columns])
        half = (a - d) / 2
        apart = hypot(half, b)
        first = (a + d) / 2 + apart
        if apart <= TIED * first:
            return None
        x, y = (apart + half, b) if half >= 0 else (b, apart - half)
        length = hypot(x, y)
        x, y = max(0.0, x / length), max(0.0, y / length)  # u₁ ≥ 0; what rounding leaves below zero is cut off
        # σ₂ from what lies across u₁: as a difference of eigenvalues it would be off by √ε
        second = sum([f * (x * q - y * p) ** 2 for p, q, f in columns])
        across = (-y, x) if x >= y else (y, -x)
        keep = min(rank or 2, 2)
        u = np.array([[x, across[0]], [y, across[1]]])[:, :keep]
        return Subspace(u, np.array([sqrt(first), sqrt(second)])[:keep])

    def merge(self, other: "Subspace", weight: float, rank: int | None = None) -> "Subspace":
        """Both memories in one: SVD of [√(1−w)·UΣ, √w·U′Σ′], w = weight of `other` (*CARICO*, 3.3)."""
        if not 0 <= weight <= 1:
            raise ValueError(f"weight {weight} is not in [0, 1]")
        if other.m != self.m:
            raise ValueError(f"cannot merge {other.m} resources into {self.m}")
        if not self.rank or not other.rank:
            return self if not other.rank else other
        mine = self.u * (self.sigma * np.sqrt(1 - weight))
        theirs = other.u * (other.sigma * np.sqrt(weight))
        return self._decompose(np.hstack([mine, theirs]), rank)

    def state(self) -> dict[str, Any]:
        return {"u": self.u.tolist(), "sigma": self.sigma.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], m: int) -> "Subspace":
        sigma = np.asarray(state["sigma"], dtype=np.float64)
        u = np.asarray(state["u"], dtype=np.float64).reshape(m, len(sigma))
        if not (np.isfinite(u).all() and np.isfinite(sigma).all()):
            raise ValueError("a subspace must be finite")
        return cls(u, sigma)


def capacity(usage: Sequence[float], unit: Sequence[float], limits: Sequence[float]) -> tuple[float, int | None]:
    """Capacity k: how many units σ₁u₁ fit on top of `usage`, and the resource that runs out first.

    Unknown resources (NaN) and resources the workload does not use say nothing; if none speaks, k is infinite.

    >>> k, first = capacity([0.5, 0.2], [0.25, 0.1], [1.0, 1.0])
    >>> k, first
    (2.0, 0)

    Source: *CARICO*, equations 3.3 and 3.4: y + k·σ₁u₁ < 1 for all i.
    """
    best, limiting = float("inf"), None
    for i, (y, step, limit) in enumerate(zip(usage, unit, limits, strict=True)):
        if step > 1e-9 and y == y:
            # k = min_i (limit_i − y_i)/(σ₁u₁ᵢ), never negative
            room = max(0.0, (limit - y) / step)
            if room < best:
                best, limiting = room, i
    return best, limiting


def _lead(u: Vector, tied: int) -> Vector:
    """`u` with its first `tied` columns, which have equal magnitudes, turned so that the first one is non-negative.

    Within such columns every rotation is a right answer, and LAPACK may give one of mixed signs. A·Aᵀ has no negative
    entry, so (A·Aᵀ)ᵏ·1 has none either, and for growing k it becomes the projection of 1 onto these columns.

    >>> _lead(np.array([[0.6, 0.8], [-0.8, 0.6]]), 2).round(12)[:, 0].tolist()
    [0.707106781187, 0.707106781187]
    """
    top = u[:, :tied]
    towards = top.sum(axis=0)
    mirror = towards / np.sqrt(towards @ towards)
    mirror[0] -= 1.0  # Householder: I − 2vvᵀ/vᵀv with v = w − e₁ takes e₁ to w
    length = mirror @ mirror
    if length > 0:
        top = top - np.outer(top @ mirror, 2.0 / length * mirror)
    return np.hstack([top, u[:, tied:]])
