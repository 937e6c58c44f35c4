"""Scores of packing heuristics: on which of many nodes does a Pod leave the least unusable rest?

All are scores for *online best fit*: among the nodes in use that still have room the one with the highest score gets
the Pod, the first of equals; a new node is opened only when none has room. U is the nodes' utilisation before the Pod,
X the Pod's demand, both as shares of a node (0 to 1) along the last axis; A = U + X.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1. Its table A.4 is
reproduced by `python -m lab.packing --table`. Vector-dot wins for small Pods, most-allocated for large ones; the
combination `packed` has neither weakness.

>>> U = np.array([[0.2, 0.6], [0.6, 0.2]])
>>> [int(np.argmax(SCORES[name](U, np.array([0.3, 0.1])))) for name in ("FF", "KM", "VD", "PP")]
[0, 0, 0, 0]
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Score = Callable[[Array, Array], Array]

ROOM_TOLERANCE = 1e-9
"""Rounding of a sum of shares; a millionth of a node is never decided by it."""
PP_WINDOW = 4
"""From five dimensions on, permutation-pack compares only this many."""


def fits(U: Array, X: Array) -> Array:
    """Which nodes (…, N, d) have room for X (…, d)."""
    return np.asarray((U + X[..., None, :] <= 1.0 + ROOM_TOLERANCE).all(axis=-1))


def first_fit(U: Array, X: Array) -> Array:
    """FF: the oldest node."""
    return -np.arange(U.shape[-2], dtype=float) + np.zeros(U.shape[:-1])


def least_allocated(U: Array, X: Array) -> Array:
    """KL, the default of kube-scheduler: the emptiest and most balanced node."""
    A = U + X[..., None, :]
    return np.asarray((1.0 - A.mean(axis=-1) + _balance(A)) / 2.0)


def most_allocated(U: Array, X: Array) -> Array:
    """KM: the fullest and most balanced node, (S1 + S2)/2."""
    A = U + X[..., None, :]
    return np.asarray((A.mean(axis=-1) + _balance(A)) / 2.0)


def balanced(U: Array, X: Array) -> Array:
    """KR: the same, balance counting twice, S1 + 2·S2."""
    A = U + X[..., None, :]
    return np.asarray(A.mean(axis=-1) + 2.0 * _balance(A))


def vector_dot(U: Array, X: Array) -> Array:
    """VD: the node whose free room points in the Pod's direction, −θ(1 − U, X)."""
    return -_angle(1.0 - U, X)


def packed(U: Array, X: Array) -> Array:
    """KVD: S1 − 2·θ(1 − U, X). The source prints ⟨1 − U, X⟩; only the angle reproduces its table."""
    A = U + X[..., None, :]
    return np.asarray(A.mean(axis=-1) - 2.0 * _angle(1.0 - U, X))


def pairwise(U: Array, X: Array) -> Array:
    """PP, permutation-pack: least used where the Pod needs most, in that order; then the fullest node.

    A node's dimensions in ascending utilisation are compared with the Pod's in descending demand; the longer the two
    agree from the front, the better. A full lexicographic comparison, the other reading of the source, needs 0.4 to
    0.8 nodes less than its table at d = 4 (8 standard errors); this one agrees with it.
    """
    place = np.argsort(np.argsort(-X, axis=-1, kind="stable"), axis=-1, kind="stable")
    ascending = np.argsort(U, axis=-1, kind="stable")
    key = np.take_along_axis(np.broadcast_to(place[..., None, :], U.shape), ascending, axis=-1)
    d = U.shape[-1]
    same = key[..., :PP_WINDOW] == np.arange(min(d, PP_WINDOW))
    return np.asarray(np.cumprod(same, axis=-1).sum(axis=-1) + U.sum(axis=-1) / (d + 1.0))


SCORES: dict[str, Score] = {
    "FF": first_fit,
    "KL": least_allocated,
    "KM": most_allocated,
    "KR": balanced,
    "VD": vector_dot,
    "KVD": packed,
    "PP": pairwise,
}
"""By the source's abbreviations."""


def _balance(A: Array) -> Array:
    """S2 = 1 − the population's standard deviation across dimensions."""
    return np.asarray(1.0 - A.std(axis=-1))


def _angle(room: Array, X: Array) -> Array:
    """Between the free room and the Pod's demand [radians]; a right angle where either is nothing."""
    dot = np.einsum("...nd,...d->...n", room, X)
    size = np.sqrt(np.einsum("...nd,...nd->...n", room, room)) * np.linalg.norm(X, axis=-1)[..., None]
    return np.asarray(np.arccos(np.clip(dot / np.maximum(size, 1e-300), -1.0, 1.0)))
