"""Packing scores: each formula by hand, many nodes at once, and the shape of what they accept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender.packing import SCORES, fits

U = np.array([[0.2, 0.6], [0.6, 0.2], [0.5, 0.5], [0.0, 0.9]])
X = np.array([0.3, 0.1])


def angle(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.arccos(one @ other / np.linalg.norm(one) / np.linalg.norm(other)))


BY_HAND = {
    "FF": lambda n, u: -n,
    "KL": lambda n, u: ((1 - (u + X)).mean() + 1 - (u + X).std()) / 2,
    "KM": lambda n, u: ((u + X).mean() + 1 - (u + X).std()) / 2,
    "KR": lambda n, u: (u + X).mean() + 2 * (1 - (u + X).std()),
    "VD": lambda n, u: -angle(1 - u, X),
    "KVD": lambda n, u: (u + X).mean() - 2 * angle(1 - u, X),
    "PP": lambda n, u: (2 if u[0] <= u[1] else 0) + u.sum() / 3,  # X needs the first dimension most
}


@pytest.mark.parametrize("name", SCORES)
def test_by_hand(name: str) -> None:
    assert SCORES[name](U, X).tolist() == pytest.approx([float(BY_HAND[name](n, u)) for n, u in enumerate(U)])


def test_pairwise_compares_from_the_front() -> None:
    demand = np.array([0.4, 0.3, 0.2, 0.1])
    perfect, second, third, wrong = (
        [0.1, 0.2, 0.3, 0.4],
        [0.1, 0.2, 0.4, 0.3],
        [0.1, 0.4, 0.2, 0.3],
        [0.9, 0.1, 0.1, 0.2],
    )
    nodes = np.array([wrong, third, second, perfect])
    assert np.argsort(SCORES["PP"](nodes, demand)).tolist() == [0, 1, 2, 3]
    fuller = np.array([perfect, [0.2, 0.3, 0.4, 0.5]])
    assert np.argmax(SCORES["PP"](fuller, demand)) == 1


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 1000), d=st.integers(1, 9))
def test_many_lists_at_once_are_each_alone(name: str, seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, pods = rng.random((3, 7, d)), rng.random((3, d)) + 1e-3
    before = nodes.copy()
    together = SCORES[name](nodes, pods)
    assert together.shape == (3, 7) and np.array_equal(before, nodes)
    for n in range(3):
        assert together[n] == pytest.approx(SCORES[name](nodes[n], pods[n]), abs=1e-7)


@pytest.mark.parametrize("name", SCORES)
def test_full_nodes_and_empty_pods_have_a_finite_score(name: str) -> None:
    for nodes, pod in ((np.ones((2, 2)), X), (U, np.zeros(2)), (np.zeros((1, 2)), X)):
        assert np.isfinite(SCORES[name](nodes, pod)).all()


def test_a_pod_may_fill_a_node_to_the_brim() -> None:
    assert fits(np.array([[0.95, 0.1], [0.7, 0.9]]), X).tolist() == [False, True]
