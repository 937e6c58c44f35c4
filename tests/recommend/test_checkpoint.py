"""VPA's checkpoints: there and back within a bucket, and what is refused, by field."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS
from carico_agent.recommend.checkpoint import BadCheckpoint, Checkpoint, decode, encode
from carico_agent.recommend.histogram import DecayingHistogram

T = 1.7e9 // 86_400 * 86_400


def filled(values: list[float], scale: float, buckets) -> DecayingHistogram:
    histogram = DecayingHistogram(buckets)
    for n, value in enumerate(values):
        histogram.add(value * scale, 0.1, T + 60 * n)
    return histogram


@given(values=st.lists(st.floats(0, 500), min_size=1, max_size=60))
def test_round_trip_within_a_bucket(values: list[float]) -> None:
    state = Checkpoint(filled(values, 1.0, CPU_BUCKETS), filled(values, 1e8, MEMORY_BUCKETS), T, T + 6000, len(values))
    back = decode(encode(state))
    assert (back.first_s, back.last_s, back.samples) == (T, T + 6000, len(values))
    for before, after in ((state.cpu, back.cpu), (state.memory, back.memory)):
        assert after.total == pytest.approx(before.total)
        for share in (0.5, 0.9, 0.95):
            one, other = (h.buckets.find(h.percentile(share) * (1 - 1e-12)) for h in (before, after))
            assert abs(one - other) <= 1 or near_a_border(before, share)


def near_a_border(histogram: DecayingHistogram, share: float) -> bool:
    """Rounding weights to 1/10,000 may carry a share across the border between two buckets that are far apart."""
    return bool(np.abs(np.cumsum(histogram.weights) / histogram.total - share).min() < 60 * 0.5e-4)


def test_vpas_own_object_is_read() -> None:
    """As the recommender writes it; the histogram of one bucket is exact."""
    status = {
        "version": "v3",
        "lastUpdateTime": "2024-05-01T00:01:00Z",
        "firstSampleStart": "2024-04-30T00:00:00Z",
        "lastSampleStart": "2024-05-01T00:00:00Z",
        "totalSamplesCount": 1440,
        "cpuHistogram": {
            "referenceTimestamp": "2024-05-01T00:00:00Z",
            "bucketWeights": {"36": 10000},
            "totalWeight": 12.5,
        },
        "memoryHistogram": {
            "referenceTimestamp": "2024-05-02T00:00:00Z",
            "bucketWeights": {"0": 1, "40": 9999},
            "totalWeight": 2,
        },
    }
    state = decode(status)
    assert state.cpu.percentile(0.9) == pytest.approx(1.016281389)
    assert state.memory.total == 2 and state.last_s - state.first_s == 86_400
    assert decode({"version": "v3"}).cpu.empty


GOOD = encode(Checkpoint(filled([1.0, 2.0], 1.0, CPU_BUCKETS), filled([1.0], 1e9, MEMORY_BUCKETS), T, T, 2))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("version",), "v2", "status.version: 'v3' is expected"),
        (("version",), None, "status.version"),
        (("totalSamplesCount",), -1, "status.totalSamplesCount"),
        (("totalSamplesCount",), True, "status.totalSamplesCount"),
        (("firstSampleStart",), "yesterday", "status.firstSampleStart"),
        (("lastSampleStart",), "1999-01-01T00:00:00Z", "status.lastSampleStart"),
        (("cpuHistogram",), [1], "status.cpuHistogram: an object"),
        (("cpuHistogram", "totalWeight"), -2.0, "status.cpuHistogram.totalWeight"),
        (("cpuHistogram", "totalWeight"), float("nan"), "status.cpuHistogram.totalWeight"),
        (("cpuHistogram", "totalWeight"), 0, "status.cpuHistogram.totalWeight"),
        (("memoryHistogram", "bucketWeights"), {"176": 1}, "status.memoryHistogram.bucketWeights: bucket '176'"),
        (("memoryHistogram", "bucketWeights"), {"-1": 1}, "bucket '-1'"),
        (("memoryHistogram", "bucketWeights"), {"x": 1}, "bucket 'x'"),
        (("memoryHistogram", "bucketWeights"), {"3": 1.5}, "bucketWeights[3]"),
        (("memoryHistogram", "bucketWeights"), {"3": 10001}, "bucketWeights[3]"),
        (("memoryHistogram", "bucketWeights"), [], "status.memoryHistogram"),
        (("memoryHistogram", "referenceTimestamp"), 7, "status.memoryHistogram.referenceTimestamp"),
    ],
)
def test_refused_by_field(path: tuple[str, ...], value: object, named: str) -> None:
    bad = copy.deepcopy(GOOD)
    inner = bad
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(BadCheckpoint) as refused:
        decode(bad)
    assert named in str(refused.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_anything_else_is_refused_too(value: object) -> None:
    with pytest.raises(BadCheckpoint):
        decode(value)
