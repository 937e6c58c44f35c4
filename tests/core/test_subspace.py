"""The invariants of the subspace (*CARICO*, appendix A), for any usage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from carico_agent.core.subspace import Subspace, capacity

usages = st.floats(0.0, 1.0, allow_subnormal=False)


def batches(m: int | None = None, columns: int = 12) -> st.SearchStrategy[np.ndarray]:
    rows = st.integers(1, 6) if m is None else st.just(m)
    return rows.flatmap(
        lambda r: st.integers(1, columns).flatmap(lambda c: hnp.arrays(np.float64, (r, c), elements=usages))
    )


pairs = st.integers(1, 6).flatmap(lambda m: st.tuples(batches(m), batches(m)))
weights = st.floats(0.0, 1.0)


def projections(a: np.ndarray, u: np.ndarray) -> float:
    """P_A(u): mean squared projection of the columns onto u."""
    return float(np.sum((u @ a) ** 2) / a.shape[1])


@given(batches())
def test_direction_is_non_negative_and_conic_combination_of_columns(a: np.ndarray) -> None:
    s = Subspace.of_batch(a)
    assert (s.direction >= 0).all()
    if s.magnitude > 1e-6:
        # u₁ = (1/σ₁²) Σ (a_jᵀu₁) a_j / n with non-negative coefficients (A.1.1)
        coefficients = s.direction @ a
        assert (coefficients >= -1e-12).all()
        rebuilt = a @ coefficients / a.shape[1] / s.magnitude**2
        np.testing.assert_allclose(rebuilt, s.direction, atol=1e-7)


@given(batches(), st.floats(0.0, 1.0))
def test_magnitude_is_monotone_in_usage(a: np.ndarray, share: float) -> None:
    more = a + share * (1 - a)
    assert Subspace.of_batch(more).magnitude >= Subspace.of_batch(a).magnitude - 1e-12


@given(pairs, weights)
def test_merged_magnitude_lies_between_the_projections(pair: tuple[np.ndarray, np.ndarray], w: float) -> None:
    a, b = pair
    merged = Subspace.of_batch(a).merge(Subspace.of_batch(b), w)
    both = sorted((projections(a, merged.direction), projections(b, merged.direction)))
    assert both[0] - 1e-9 <= merged.magnitude**2 <= both[1] + 1e-9


def test_equal_magnitudes_have_a_first_direction_without_mixed_signs() -> None:
    """Two Pods, one busy with each resource: every direction between them is as heavy."""
    batch = np.full((4, 4), 1.7e-150)
    batch[2, 3] = batch[3, 1] = 1.0
    one = Subspace.of_batch(batch)
    assert one.direction.min() >= 0
    np.testing.assert_allclose(one.u.T @ one.u, np.eye(one.rank), atol=1e-9)
    np.testing.assert_allclose(one.merge(one, 0.5).sigma[:2], [0.5, 0.5], atol=1e-12)


@given(pairs, weights)
def test_merge_equals_svd_of_the_weighted_concatenation(pair: tuple[np.ndarray, np.ndarray], w: float) -> None:
    a, b = pair
    merged = Subspace.of_batch(a).merge(Subspace.of_batch(b), w)
    whole = np.hstack([np.sqrt((1 - w) / a.shape[1]) * a, np.sqrt(w / b.shape[1]) * b])
    expected = np.linalg.svd(whole, compute_uv=False)
    np.testing.assert_allclose(merged.sigma[: len(expected)], expected[: merged.rank], atol=1e-12)
    second_moment = merged.u @ np.diag(merged.sigma**2) @ merged.u.T
    np.testing.assert_allclose(second_moment, whole @ whole.T, atol=1e-12)


@pytest.mark.long
@given(hnp.arrays(np.float64, 3, elements=usages), st.floats(0.01, 1.0))
def test_constant_usage_keeps_the_magnitude(y: np.ndarray, w: float) -> None:
    batch = np.tile(y[:, None], 10)
    s = first = Subspace.of_batch(batch)
    for _ in range(300):
        s = s.merge(Subspace.of_batch(batch), w)
    assert s.magnitude == pytest.approx(first.magnitude, abs=1e-12)


@given(batches(3))
def test_state_round_trip(a: np.ndarray) -> None:
    s = Subspace.of_batch(a)
    again = Subspace.from_state(s.state(), 3)
    assert np.array_equal(again.u, s.u)
    assert np.array_equal(again.sigma, s.sigma)


def test_number_of_samples_does_not_change_the_scale() -> None:
    y = np.array([[0.3], [0.4]])
    assert Subspace.of_batch(np.tile(y, 3)).magnitude == pytest.approx(Subspace.of_batch(np.tile(y, 30)).magnitude)


def test_merging_with_nothing_is_the_other() -> None:
    s = Subspace.of_batch([[0.5], [0.1]])
    assert Subspace.empty(2).merge(s, 0.1) is s
    assert s.merge(Subspace.empty(2), 0.1) is s


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_bad_weight_is_refused(weight: float) -> None:
    s = Subspace.of_batch([[0.5], [0.1]])
    with pytest.raises(ValueError, match="weight"):
        s.merge(s, weight)


def test_bad_shapes_are_refused() -> None:
    s = Subspace.of_batch([[0.5], [0.1]])
    with pytest.raises(ValueError, match="cannot merge 3 resources into 2"):
        s.merge(Subspace.empty(3), 0.5)
    with pytest.raises(ValueError, match="m×n"):
        Subspace.of_batch([0.5, 0.1])
    with pytest.raises(ValueError, match="finite"):
        Subspace.of_batch([[np.nan]])


@given(st.integers(1, 5).flatmap(lambda m: st.tuples(*[hnp.arrays(np.float64, m, elements=usages)] * 3)))
def test_capacity_fits_exactly(vectors: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    y, unit, limits = vectors
    k, first = capacity(y, unit, limits)
    assert k >= 0
    if first is None:
        assert (unit <= 1e-9).all()
    elif k > 0:
        assert (y + k * unit <= limits + 1e-9)[unit > 1e-9].all()
        assert y[first] + k * unit[first] == pytest.approx(limits[first])


def test_capacity_ignores_unknown_resources() -> None:
    assert capacity([float("nan"), 0.5], np.array([0.1, 0.1]), np.ones(2)) == (5.0, 1)
    assert capacity([float("nan")], np.array([0.1]), np.ones(1)) == (float("inf"), None)


def second_moment(s: Subspace) -> np.ndarray:
    return (s.u * s.sigma**2) @ s.u.T


@given(pairs, st.floats(0.001, 0.999), st.sampled_from([None, 1, 2]))
def test_samples_are_taken_in_like_a_batch(
    pair: tuple[np.ndarray, np.ndarray], weight: float, rank: int | None
) -> None:
    for before in (Subspace.empty(pair[0].shape[0]), Subspace.of_batch(pair[0])):
        rows, batch = pair[1].T.tolist(), pair[1]
        whole, expected = before.take_samples(rows, weight), before.take(batch, weight)
        np.testing.assert_allclose(second_moment(whole), second_moment(expected), atol=1e-12)
        np.testing.assert_allclose(whole.sigma, expected.sigma, atol=1e-9)
        np.testing.assert_allclose(whole.u.T @ whole.u, np.eye(whole.rank), atol=1e-9)
        assert (whole.direction >= 0).all()
        kept = before.take_samples(rows, weight, rank)
        np.testing.assert_allclose(kept.sigma, whole.sigma[: kept.rank], atol=1e-12)
