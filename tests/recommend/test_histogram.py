"""Decaying histograms: VPA's oracles, merging, forgetting, checkpoints."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS, LinearBuckets
from carico_agent.recommend.histogram import DecayingHistogram

DAY_S = 86_400.0
SAMPLES = st.lists(
    st.tuples(st.floats(0, 2000), st.floats(0.01, 10), st.floats(1.7e9, 1.7e9 + 20 * DAY_S)), min_size=1, max_size=40
)


def end_of(bucket: int, first: Fraction) -> float:
    """start(n + 1) in exact arithmetic."""
    return float(first * (Fraction(105, 100) ** (bucket + 1) - 1) / Fraction(5, 100))


@pytest.mark.parametrize(("cores", "bucket"), [(1.0, 36), (2.0, 49), (3.0, 56)])
def test_cpu_oracles(cores: float, bucket: int) -> None:
    histogram = DecayingHistogram(CPU_BUCKETS)
    histogram.add(cores, 0.1, 1.7e9)
    assert CPU_BUCKETS.find(cores) == bucket
    assert histogram.percentile(0.9) == pytest.approx(end_of(bucket, Fraction(1, 100)), abs=1e-9)


def test_memory_oracle() -> None:
    histogram = DecayingHistogram(MEMORY_BUCKETS)
    histogram.add(1e9, 1.0, 1.7e9)
    assert round(histogram.percentile(0.9)) == 1_016_281_389
    assert CPU_BUCKETS.count == MEMORY_BUCKETS.count == 176


def test_the_documented_linear_example() -> None:
    histogram = DecayingHistogram(LinearBuckets(10.0, 1.0), half_life_s=3600.0)
    for n in range(1, 5):
        histogram.add(n, n, (n - 1) * 3600.0)
    assert [histogram.percentile(p) for p in (0.02, 0.10, 0.34, 0.35)] == [2, 3, 4, 5]


def test_edges() -> None:
    histogram = DecayingHistogram(CPU_BUCKETS)
    assert histogram.empty and histogram.percentile(0.9) == 0.0
    histogram.add(1e9, 1.0, 0.0)  # beyond the last bucket, which has no end: its start
    assert histogram.percentile(0.9) == CPU_BUCKETS.start(CPU_BUCKETS.count - 1)
    histogram.subtract(1e9, 1.0, 0.0)
    assert histogram.empty and histogram.total == 0.0
    assert [CPU_BUCKETS.find(v) for v in (0.0, 0.00999, 0.01, 0.0204, 0.0206)] == [0, 0, 1, 1, 2]
    with pytest.raises(ValueError, match="another half-life"):
        histogram.merge(DecayingHistogram(CPU_BUCKETS, 1.0))


@given(one=SAMPLES, other=SAMPLES)
def test_merging_equals_inserting_jointly(one: list, other: list) -> None:
    left, right, joint = (DecayingHistogram(CPU_BUCKETS) for _ in range(3))
    for sample in one:
        left.add(*sample)
    for sample in other:
        right.add(*sample)
    for sample in (*one, *other):
        joint.add(*sample)
    before = right.weights.copy()
    left.merge(right)
    assert np.array_equal(before, right.weights)
    assert np.allclose(
        left.weights / left.total, joint.weights / joint.total, rtol=0, atol=1e-12
    )  # relative: references may differ
    for share in (0.5, 0.9):
        cumulative = np.cumsum(joint.weights) / joint.total
        if np.abs(cumulative - share).min() > 1e-9:  # at an exact tie rounding decides
            assert left.percentile(share) == joint.percentile(share)


@given(samples=SAMPLES)
def test_order_and_bulk_do_not_matter(samples: list) -> None:
    forward, backward, bulk = (DecayingHistogram(CPU_BUCKETS) for _ in range(3))
    for value, _, t_s in samples:
        forward.add(value, 0.1, t_s)
    for value, _, t_s in reversed(samples):
        backward.add(value, 0.1, t_s)
    bulk.add_many(np.array([v for v, _, _ in samples]), 0.1, np.array([t for _, _, t in samples]))
    for other in (backward, bulk):
        assert np.allclose(forward.weights / forward.total, other.weights / other.total, atol=1e-12)


def test_a_sample_counts_half_after_a_half_life_even_across_a_shift() -> None:
    histogram = DecayingHistogram(CPU_BUCKETS)
    histogram.add(1.0, 1.0, 1.7e9)
    histogram.add(3.0, 1.0, 1.7e9 + DAY_S)
    weights = histogram.weights[[36, 56]]
    assert weights[1] / weights[0] == pytest.approx(2.0)
    histogram.add(2.0, 1.0, 1.7e9 + 150 * DAY_S)  # beyond 2^100: renormalised
    assert histogram.reference_s % DAY_S == 0.0
    assert histogram.percentile(0.01) == histogram.percentile(0.99) == CPU_BUCKETS.start(50)
    assert np.isfinite(histogram.weights).all()
