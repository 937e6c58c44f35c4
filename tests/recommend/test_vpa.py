"""VPA's rules: bounds, confidence, daily peaks, OOM kills."""

from fractions import Fraction

import pytest

from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS
from carico_agent.recommend.histogram import DecayingHistogram
from carico_agent.recommend.vpa import MemoryPeaks, bounds, confidence, lower_factor, oom_bump, upper_factor

from .test_histogram import DAY_S, end_of

T = 1.7e9
MIB = 2**20


@pytest.mark.parametrize(
    ("cores", "bucket", "rounded"), [(1.0, 36, 1.168724), (2.0, 49, 2.407502), (3.0, 56, 3.481230)]
)
def test_targets(cores: float, bucket: int, rounded: float) -> None:
    histogram = DecayingHistogram(CPU_BUCKETS)
    for minute in range(200):
        histogram.add(cores, 0.1, T + 60 * minute)
    found = bounds(histogram, 1.0)
    assert found.target == pytest.approx(1.15 * end_of(bucket, Fraction(1, 100)), abs=1e-9)
    assert found.target == pytest.approx(rounded, abs=1e-6)
    assert found.upper == pytest.approx(2 * found.target, abs=1e-9)
    assert found.lower == pytest.approx(found.target / 1.001**2, abs=1e-9)


def test_percentiles_of_a_mixture() -> None:
    histogram = DecayingHistogram(CPU_BUCKETS)
    for cores, count in ((1.0, 60), (2.0, 33), (3.0, 7)):
        for _ in range(count):
            histogram.add(cores, 0.1, T)
    found = bounds(histogram, 7.0)
    ends = {n: end_of(b, Fraction(1, 100)) for n, b in ((1, 36), (2, 49), (3, 56))}
    assert found.target == pytest.approx(1.15 * ends[2], abs=1e-9)
    assert found.lower == pytest.approx(1.15 * ends[1] * (1 + 0.001 / 7) ** -2, abs=1e-9)
    assert found.upper == pytest.approx(1.15 * ends[3] * (1 + 1 / 7), abs=1e-9)


def test_factors() -> None:
    assert lower_factor(5 / 1440) == pytest.approx(1 / 1.288**2, abs=1e-9)
    assert lower_factor(30 / 1440) == pytest.approx(1 / 1.048**2, abs=1e-9)
    assert upper_factor(0.5) == 3.0 and upper_factor(7.0) == pytest.approx(8 / 7, abs=1e-9)
    assert lower_factor(0.0) == 0.0 and upper_factor(0.0) == float("inf")
    assert confidence(0, 10 * DAY_S, 1440) == 1.0 and confidence(0, DAY_S / 2, 1e9) == 0.5


def weights(histogram: DecayingHistogram) -> int:
    return int((histogram.weights > 0).sum())


def test_one_peak_per_day_and_container() -> None:
    histogram, peaks = DecayingHistogram(MEMORY_BUCKETS), MemoryPeaks()
    for used in (1e9, 3e9, 2e9):
        peaks.usage(histogram, T, used)
        T_end = peaks.window_end_s
    assert weights(histogram) == 1 and T_end == T + DAY_S
    assert histogram.percentile(0.9) == MEMORY_BUCKETS.start(MEMORY_BUCKETS.find(3e9) + 1)
    alone = DecayingHistogram(MEMORY_BUCKETS)
    alone.add(3e9, 1.0, T + DAY_S)  # stamped at the window's end
    assert histogram.total == pytest.approx(alone.total, rel=1e-12)
    peaks.usage(histogram, T + 3.5 * DAY_S, 1e9)  # days without a sample are skipped
    assert peaks.window_end_s == T + 4 * DAY_S and weights(histogram) == 2


def test_oom_kills_do_not_lift_each_other() -> None:
    histogram, peaks = DecayingHistogram(MEMORY_BUCKETS), MemoryPeaks()
    peaks.usage(histogram, T, 100 * MIB)
    assert peaks.oom(histogram, T + 1, 300 * MIB) == 400 * MIB
    assert peaks.oom(histogram, T + 2, 300 * MIB) == 400 * MIB
    assert weights(histogram) == 1
    assert histogram.percentile(0.9) == MEMORY_BUCKETS.start(MEMORY_BUCKETS.find(400 * MIB) + 1)
    assert oom_bump(2**30) == 1.2 * 2**30
