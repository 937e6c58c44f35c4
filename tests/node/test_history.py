"""The last quarter of an hour: bounded, in order, and with what the charts mark."""

import json
import sys
from collections.abc import Callable
from math import inf

import pytest

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.node.history import StatusHistory
from carico_agent.node.pods.events import Event
from carico_agent.node.publish.status import Status, status_of
from tests.conftest import AgentProcess


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def filled(rows: int, resources: tuple[str, ...] = ("cpu", "memory", "io", "network")) -> StatusHistory:
    history = StatusHistory(resources, clock=Clock())
    for number in range(rows):
        usage = dict.fromkeys(resources, number % 100 / 100)
        history.record(Status(pods=number % 110, pod_capacity=float(number), low=0.123456, usage=usage))
    return history


def test_only_the_newest_quarter_of_an_hour_is_kept_in_order() -> None:
    body = filled(2345).body()
    assert len(body["time_s"]) == 900
    assert body["pod_capacity"] == [float(number) for number in range(2345 - 900, 2345)]
    assert body["time_s"] == sorted(body["time_s"])
    assert {len(column) for column in body["usage"].values()} == {900}
    assert body["high"] == [None] * 900  # never known


def test_full_of_events_with_long_names_it_stays_below_two_megabytes() -> None:
    history = filled(5000)
    for number in range(5000):
        history.mark(Event(5500.0 + number / 10, 0.0, "/tasks/start", pod_name="p" * 5000, pod_namespace="n"))
    body = history.body()
    assert len(body["events"]) == 900
    assert len(json.dumps(body)) < 2e6
    columns = [history._time_s, *history._numbers.values(), *history._usage.values()]
    assert sum(map(sys.getsizeof, columns)) < 100_000


def test_what_is_asked_for_is_what_came_later() -> None:
    history = filled(1200)
    newest_s = history.body()["time_s"][-1]
    history.mark(Event(newest_s - 100, 0.0, "/tasks/exit", pod_name="old"))
    history.mark(Event(newest_s, 0.0, "/tasks/oom", pod_name="new", pod_namespace="shop"))
    later = history.body(newest_s - 5)
    assert later["time_s"] == [newest_s - 4 + n for n in range(5)]
    assert later["events"] == [{"time_s": newest_s, "what": "oom", "pod": "shop/new"}]
    assert history.body(inf)["time_s"] == []


def test_events_that_no_chart_shows_and_those_before_the_first_row_are_left_out() -> None:
    history = filled(10)
    for topic in ("/containers/create", "/carico/snapshot", "/tasks/create"):
        history.mark(Event(1005.0, 0.0, topic))
    history.mark(Event(10.0, 0.0, "/tasks/start"))
    assert history.body()["events"] == []


@pytest.mark.long
def test_a_real_agent_answers_with_its_history(start_agent: Callable[..., AgentProcess]) -> None:
    process = start_agent()
    agent = process.wait(lambda agent: len(agent.request("GET", "/v1/history")["time_s"]) >= 3)
    body = agent.request("GET", "/v1/history")
    assert {"cpu", "memory"} <= body["usage"].keys()
    assert body["time_s"] == sorted(body["time_s"])
    after = body["time_s"][1]
    assert agent.request("GET", f"/v1/history?after={after}")["time_s"][0] > after


def test_an_estimate_is_recorded_as_its_status_would_be() -> None:
    model = CapacityModel(("cpu", "memory"), ModelConfig(cores=4))
    bodies = []
    for samples in (1, 30):
        for tick in range(samples):
            model.observe(0.1 * tick + samples, [0.25, float("nan")], pods=2)
        by_status, by_estimate = StatusHistory(model.resources), StatusHistory(model.resources)
        estimate = model.estimate()
        by_status.record(status_of("n", model.resources, estimate, {}))
        by_estimate.record_estimate(estimate)
        bodies.append((by_status.body(), by_estimate.body()))
    for one, other in bodies:
        for name in ("pod_capacity", "low", "high", "pods"):
            assert one[name] == pytest.approx(other[name], abs=1e-3)
        assert one["usage"] == other["usage"] and other["usage"]["memory"] == [None]
