"""What is kept of a container: the same one by one, in bulk and across a restart; bounded; refused by field."""

import json

import numpy as np
import pytest

from carico_agent.recommend.history import BadHistory, ContainerHistory, MinuteSample

T = 1.7e9
MIB = 2**20


def minutes(count: int, seed: int = 1) -> list[MinuteSample]:
    rng = np.random.default_rng(seed)
    cpu, memory = rng.gamma(2.0, 0.1, count), 200 * MIB + np.abs(np.cumsum(rng.normal(0, MIB, count)))
    return [MinuteSample(T + 60 * n, float(cpu[n]), float(memory[n]), periods=600, throttled=60) for n in range(count)]


def fed(samples: list[MinuteSample]) -> ContainerHistory:
    history = ContainerHistory()
    for sample in samples:
        history.observe(sample)
    return history


def same(one: ContainerHistory, other: ContainerHistory) -> None:
    assert json.dumps(one.state(), sort_keys=True) == json.dumps(other.state(), sort_keys=True)


def test_across_a_restart() -> None:
    samples = minutes(3000)
    whole, half = fed(samples), fed(samples[:1500])
    back = ContainerHistory.from_state(json.loads(json.dumps(half.state())))
    same(half, back)
    for sample in samples[1500:]:
        back.observe(sample)
    same(whole, back)


def test_in_bulk() -> None:
    samples = minutes(3000)
    one, bulk = fed(samples), ContainerHistory()
    t_s = np.array([sample.t_s for sample in samples])
    counter = np.concatenate([[0.0], np.cumsum([sample.cpu_cores * 60.0 for sample in samples])])
    bulk.take_memory(t_s, np.array([sample.memory_bytes for sample in samples]))
    bulk.take_cpu(np.concatenate([[T - 60], t_s]), counter)
    assert (bulk.samples, bulk.first_s, bulk.last_s) == (one.samples, one.first_s, one.last_s)
    assert bulk.memory.weights == pytest.approx(one.memory.weights, rel=1e-9)
    assert bulk.cpu.percentile(0.9) == one.cpu.percentile(0.9)
    assert bulk.cpu_tail.values == pytest.approx(one.cpu_tail.values, rel=1e-6)
    assert bulk.highest["memory"] == one.highest["memory"]


def test_bounded() -> None:
    long, short = fed(minutes(6000)), fed(minutes(300))
    assert len(json.dumps(long.state())) < 3 * len(json.dumps(short.state())) < 60_000
    assert long.cpu_tail.values.size == 120


def test_bad_samples_are_counted() -> None:
    history = fed(minutes(10))
    history.observe(MinuteSample(T + 60, 1.0, 1.0))  # older than the last
    history.observe(MinuteSample(float("nan"), 1.0, 1.0))
    history.observe(MinuteSample(T + 6000, -1.0, float("inf")))
    assert dict(history.dropped) == {"out of order": 2, "negative": 1, "unknown": 1}


def test_kills_throttling_and_start() -> None:
    history = ContainerHistory()
    history.started(T)
    history.observe(MinuteSample(T + 60, 2.0, 900 * MIB))
    for n in range(10, 20):
        history.observe(
            MinuteSample(T + 60 * n, 0.1, 300 * MIB, oom_kills=int(n == 15), periods=600, throttled=300), 500 * MIB
        )
    assert history.startup_bytes == 900 * MIB and history.startup_cores == 2.0
    assert history.oom_kills == 1 and history.oom_bytes == pytest.approx(1.2 * 900 * MIB)
    assert history.throttled_ratio == pytest.approx(0.5)
    assert not history.expired(T + 86_400) and history.expired(T + 9 * 86_400)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("samples", -1),
        ("samples", "many"),
        ("cpu", {"reference_s": 0, "total": 1, "weights": {"900": 1}}),
        ("memory", {"reference_s": 0, "total": float("nan"), "weights": {}}),
        ("cpu_tail", {"last_s": 0, "values": [None]}),
        ("peaks", [1]),
        ("lowest", {}),
        ("highest", None),
        ("dropped", 3),
    ],
)
def test_a_damaged_state_is_refused_by_field(field: str, value: object) -> None:
    state = {**fed(minutes(5)).state(), field: value}
    with pytest.raises(BadHistory, match=f"^{field}: "):
        ContainerHistory.from_state(state)
    del state[field]
    with pytest.raises(BadHistory, match=f"^{field}: "):
        ContainerHistory.from_state(state)
