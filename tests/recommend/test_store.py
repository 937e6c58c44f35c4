"""The histories of a node: from counters to samples, restarts, bounds, and what a client reads of it."""

import json

import pytest

from carico_agent.app.histories import from_agent
from carico_agent.recommend.history import BadHistory
from carico_agent.recommend.store import Counters, HistoryStore

T = 1.7e9
MIB = 2**20
KEY = ("shop", "web-1", "app")


def one(minute: int, container_id: str = "a", pod: str = "web-1", **changes: object) -> Counters:
    made = {
        "cpu_usage_usec": minute * 15_000_000,
        "memory_bytes": (100 + minute) * MIB,
        "nr_periods": minute * 600,
        "nr_throttled": minute * 60,
        "oom_kills": 0,
        "request_cores": 0.5,
        **changes,
    }
    return Counters("shop", pod, "app", container_id, **made)  # type: ignore[arg-type]


def fed(minutes: int) -> HistoryStore:
    store = HistoryStore()
    for n in range(minutes):
        store.minute(T + 60 * n, [one(n)])
    return store


def test_counters_become_samples() -> None:
    history = fed(11).histories[KEY]
    assert history.cpu_tail.values.tolist() == [0.25] * 10 and history.memory_tail.values[-1] == 110 * MIB
    assert history.throttled_ratio == pytest.approx(0.1) and history.samples == 11
    assert not history.dropped  # the first minute has no rate, and that is no error


def test_the_measured_time_counts() -> None:
    store = fed(2)
    store.minute(T + 60 + 90, [one(2, cpu_usage_usec=15_000_000 + 45_000_000)])
    assert store.histories[KEY].cpu_tail.values[-1] == pytest.approx(0.5)


def test_a_restart_is_a_start_and_no_rate() -> None:
    store = fed(10)
    store.minute(T + 600, [one(0, "b", memory_bytes=900 * MIB)])
    store.minute(T + 660, [one(1, "b")])
    history = store.histories[KEY]
    assert history.started_s == T + 600 and history.startup_bytes == 900 * MIB
    assert history.cpu_tail.values.max() == pytest.approx(0.25) and not history.dropped
    store.minute(T + 720, [one(0, "b", cpu_usage_usec=5)])  # the same container, yet backwards
    assert history.dropped["unknown"] == 1


def test_what_runs_already_has_no_start_but_what_comes_later_has() -> None:
    store = fed(3)
    assert store.histories[KEY].started_s is None
    store.minute(T + 180, [one(3), one(0, pod="web-2")])
    assert store.histories["shop", "web-2", "app"].started_s == T + 180


def test_kills_use_the_request() -> None:
    store = fed(5)
    store.minute(T + 300, [one(5, oom_kills=1, request_bytes=float(400 * MIB))])
    assert store.histories[KEY].oom_bytes == 500 * MIB


def test_bounded_and_the_oldest_go_first() -> None:
    store = HistoryStore(most=3)
    for n in range(10):
        store.minute(T + 60 * n, [one(n), one(0, pod=f"job-{n}")])
    assert [key[1] for key in store.histories] == ["job-8", "web-1", "job-9"]
    store.minute(T + 9 * 86_400, [one(0, "z")])
    assert list(store.histories) == [KEY]


def test_saved_restored_and_read_by_a_client() -> None:
    store = fed(200)
    back = HistoryStore.from_state(json.loads(json.dumps(store.state())))
    assert back.state() == store.state()
    back.minute(T + 60 * 200, [one(200)])
    assert back.histories[KEY].started_s is None and back.histories[KEY].samples == 201
    found = from_agent(json.loads(json.dumps(back.answer("n1", 4, 16e9))))
    ((key, history),) = found.histories.items()
    assert (key.workload.name, key.pod, key.container) == ("web", "web-1", "app") and history.samples == 201
    assert found.current[key].request_cores == 0.5 and found.largest is not None and found.largest.cores == 4


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({}, "version"),
        ({"version": 1}, "containers: a list"),
        ({"version": 1, "containers": [{"namespace": "a"}]}, "containers.0."),
        ({"version": 1, "containers": [{"namespace": "a", "pod": "b", "container": "c", "history": {}}]}, "version"),
    ],
)
def test_a_damaged_state_is_refused(state: dict, named: str) -> None:
    with pytest.raises(BadHistory, match=named):
        HistoryStore.from_state(state)
