"""VPA's checkpoint of a histogram: weights as whole numbers up to 10,000, their true sum, and the reference time.

Reading refuses field by field: a checkpoint is written by another program, perhaps of another version, perhaps by
hand. `status` below is that of a VerticalPodAutoscalerCheckpoint (autoscaling.k8s.io/v1).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS, Buckets
from carico_agent.recommend.histogram import DAY_S, DecayingHistogram

VERSION = "v3"
MAX_WEIGHT = 10_000


class BadCheckpoint(ValueError):
    """Names the field that is wrong."""


@dataclass(frozen=True)
class Checkpoint:
    """What VPA remembers about one container of a workload."""

    cpu: DecayingHistogram
    memory: DecayingHistogram
    first_s: float
    last_s: float
    samples: int


def encode(state: Checkpoint) -> dict[str, Any]:
    """The `status` of a VerticalPodAutoscalerCheckpoint."""
    return {
        "version": VERSION,
        "lastUpdateTime": _text_time(state.last_s),
        "firstSampleStart": _text_time(state.first_s),
        "lastSampleStart": _text_time(state.last_s),
        "totalSamplesCount": state.samples,
        "cpuHistogram": encode_histogram(state.cpu),
        "memoryHistogram": encode_histogram(state.memory),
    }


def decode(status: Any) -> Checkpoint:
    """A checkpoint from its `status`; BadCheckpoint names the field."""
    table = _table(status, "status")
    if table.get("version") != VERSION:
        raise BadCheckpoint(f"status.version: {VERSION!r} is expected, not {table.get('version')!r}")
    samples = table.get("totalSamplesCount", 0)
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 0:
        raise BadCheckpoint(f"status.totalSamplesCount: a count is expected, not {samples!r}")
    first_s = _time(table.get("firstSampleStart"), "status.firstSampleStart")
    last_s = _time(table.get("lastSampleStart"), "status.lastSampleStart")
    if last_s < first_s:
        raise BadCheckpoint("status.lastSampleStart: is before firstSampleStart")
    return Checkpoint(
        decode_histogram(table.get("cpuHistogram"), CPU_BUCKETS, "status.cpuHistogram"),
        decode_histogram(table.get("memoryHistogram"), MEMORY_BUCKETS, "status.memoryHistogram"),
        first_s,
        last_s,
        samples,
    )


def encode_histogram(histogram: DecayingHistogram) -> dict[str, Any]:
    heaviest = float(histogram.weights.max(initial=0.0))
    whole = {}
    if heaviest > 0:
        scaled = {n: round(float(w) / heaviest * MAX_WEIGHT) for n, w in enumerate(histogram.weights) if w > 0}
        whole = {str(n): weight for n, weight in scaled.items() if weight}
    return {
        "referenceTimestamp": _text_time(histogram.reference_s),
        "bucketWeights": whole,
        "totalWeight": histogram.total,
    }


def decode_histogram(value: Any, buckets: Buckets, field: str, half_life_s: float = DAY_S) -> DecayingHistogram:
    """A histogram as it was when written, up to the rounding of weights to 1/10,000 of the heaviest bucket."""
    histogram = DecayingHistogram(buckets, half_life_s)
    if value is None or value == {}:  # VPA leaves out what is empty
        return histogram
    table = _table(value, field)
    weights = _table(table.get("bucketWeights") or {}, f"{field}.bucketWeights")
    total = table.get("totalWeight", 0.0)
    if not isinstance(total, int | float) or isinstance(total, bool) or not math.isfinite(total) or total < 0:
        raise BadCheckpoint(f"{field}.totalWeight: a weight of 0 or more is expected, not {total!r}")
    for key, weight in weights.items():
        bucket = int(key) if isinstance(key, str) and re.fullmatch(r"[0-9]{1,6}", key) else key
        if not isinstance(bucket, int) or isinstance(bucket, bool) or not 0 <= bucket < buckets.count:
            raise BadCheckpoint(f"{field}.bucketWeights: bucket {key!r} is not one of 0 to {buckets.count - 1}")
        if not isinstance(weight, int) or isinstance(weight, bool) or not 0 <= weight <= MAX_WEIGHT:
            raise BadCheckpoint(f"{field}.bucketWeights[{key}]: 0 to {MAX_WEIGHT} is expected, not {weight!r}")
        histogram.weights[bucket] = weight
    whole = float(histogram.weights.sum())
    if (whole > 0) != (total > 0):
        raise BadCheckpoint(f"{field}.totalWeight: {total!r} does not fit buckets that weigh {whole:g}")
    if whole > 0:
        histogram.weights *= total / whole
        histogram.total = float(total)
        histogram.reference_s = _time(table.get("referenceTimestamp"), f"{field}.referenceTimestamp")
    return histogram


def _table(value: Any, field: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise BadCheckpoint(f"{field}: an object is expected, not {value!r}")
    return value


def _time(value: Any, field: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, datetime):  # a YAML reader has understood it already
        value = value.isoformat()
    try:
        if not isinstance(value, str):
            raise ValueError
        parsed = datetime.fromisoformat(value)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadCheckpoint(f"{field}: an RFC 3339 time is expected, not {value!r}") from error


def _text_time(t_s: float) -> str:
    return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
