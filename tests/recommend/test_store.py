"""The histories of a node: restarts, bounds, save and restore, and what a client reads of it."""

import json

import pytest

from carico_agent.recommend.history import BadHistory, MinuteSample
from carico_agent.recommend.sources.histories import from_agent
from carico_agent.recommend.store import ContainerOwner, HistoryStore
from carico_agent.recommend.workload import Resources

T = 1.7e9
MIB = 2**20
KEY = ("shop", "web-1", "app")
NOW = Resources(request_cores=0.5, request_bytes=400.0 * MIB)


def owner(pod: str = "web-1", container_id: str = "a") -> ContainerOwner:
    return ContainerOwner("shop", pod, "app", container_id, current=NOW)


def sample(minute: float, used: float = 100.0, **kw: int) -> MinuteSample:
    return MinuteSample(T + 60 * minute, 0.25, used * MIB, **kw)


def fed(minutes: int) -> HistoryStore:
    store = HistoryStore()
    for n in range(minutes):
        store.observe(owner(), sample(n, 100 + n, periods=600, throttled=60))
    return store


def test_minutes_are_kept() -> None:
    history = fed(11).histories[KEY]
    assert history.cpu_tail.values.tolist() == [0.25] * 11 and history.memory_tail.values[-1] == 110 * MIB
    assert history.throttled_ratio == pytest.approx(0.1) and history.samples == 11 and not history.dropped


def test_another_id_is_a_restart() -> None:
    store = fed(10)
    store.observe(owner(container_id="b"), sample(10, 900))
    store.observe(owner(container_id="b"), sample(11))
    history = store.histories[KEY]
    assert history.started_s == T + 600 and history.startup_bytes == 900 * MIB and history.samples == 12


def test_what_runs_already_has_no_start_but_what_comes_later_has() -> None:
    store = fed(2)
    store.observe(owner("web-2"), sample(1.5))  # its turn comes later in the first minutes
    assert store.histories[KEY].started_s is None and store.histories["shop", "web-2", "app"].started_s is None
    store.observe(owner("web-3"), sample(5))
    assert store.histories["shop", "web-3", "app"].started_s == T + 300


def test_kills_use_the_request() -> None:
    store = fed(5)
    store.observe(owner(), sample(5, oom_kills=1))
    assert store.histories[KEY].oom_bytes == 500 * MIB


def test_bounded_and_the_oldest_go_first() -> None:
    store = HistoryStore(most=3)
    for n in range(10):
        store.observe(owner(), sample(n))
        store.observe(owner(f"job-{n}"), sample(n))
    assert [key[1] for key in store.histories] == ["job-8", "web-1", "job-9"]


def test_what_was_not_seen_for_eight_days_is_forgotten() -> None:
    store = fed(3)
    for n in range(1000):
        store.observe(owner("web-2"), sample(9 * 1440 + n))
    assert list(store.histories) == [("shop", "web-2", "app")]


def test_saved_restored_and_read_by_a_client() -> None:
    store = fed(200)
    back = HistoryStore.from_state(json.loads(json.dumps(store.state())))
    assert back.state() == store.state()
    back.observe(owner(), sample(200))
    assert back.histories[KEY].started_s is None and back.histories[KEY].samples == 201
    back.observe(owner(container_id="b"), sample(201))  # a restart is seen across a restart of the agent, too
    assert back.histories[KEY].started_s == T + 201 * 60
    found = from_agent(json.loads(json.dumps(back.answer("n1", 4, 16e9))))
    ((key, history),) = found.histories.items()
    assert (key.workload.name, key.pod, key.container) == ("web", "web-1", "app") and history.samples == 202
    assert found.current[key] == NOW and found.largest is not None and found.largest.cores == 4


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
