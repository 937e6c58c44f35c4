"""The number that holds, as others read it: metrics, words, and what the Kubernetes node offers."""

import json
import time
from dataclasses import replace

import pytest

from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.net.metrics import render
from carico_agent.node.publish.families import status_metrics
from carico_agent.node.publish.node_offer import patch
from carico_agent.node.publish.node_workloads import by_horizon, less_reserved
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.throttle import Summary
from carico_agent.node.publish.words import ahead_sentence
from carico_agent.settings import BadSettings, parse

SEEN = Status(
    time="2026-11-18T20:00:00Z",
    pod_capacity=5.4,
    low=5.0,
    high=6.0,
    slots=8.4,
    pods=3,
    mode="measured",
    room={"cpu": 0.5},
    usage={"cpu": 0.5},
    pod_capacity_held=3.2,
    held_low=2.5,
    held_high=4.0,
    horizon_s=86400.0,
    outlook="known",
    peak_time="2026-11-19T10:40:00Z",
    room_held={"cpu": 0.3},
)


def test_the_metrics_have_both_numbers() -> None:
    text = render(status_metrics(SEEN, 0.1))
    for line in (
        "carico_pod_capacity 5.4",
        "carico_pod_capacity_held 3.2",
        "carico_horizon_seconds 86400",
        'carico_room_held_ratio{resource="cpu"} 0.3',
        'carico_outlook{outlook="known"} 1',
        'carico_outlook{outlook="first day"} 0',
    ):
        assert line in text.splitlines(), text


def test_the_sentence_names_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert ahead_sentence(SEEN) == "room for 5 now, 3 through tomorrow's peak (10:40)"
        today = replace(SEEN, peak_time="2026-11-18T22:00:00Z")
        assert ahead_sentence(today) == "room for 5 now, 3 through today's peak (22:00)"
        assert ahead_sentence(replace(SEEN, pod_capacity_held=None)).endswith("no forecast for the coming hours yet")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "horizon, outlook, slots",
    [
        ("now", "known", 8.4),
        ("lifetime", "known", 6.2),
        ("lifetime", "first day", 8.4),
        (3600.0, "first day", 6.2),
        (3600.0, "known", 6.2),
    ],
)
def test_what_a_node_offers_follows_the_horizon(horizon: str | float, outlook: str, slots: float) -> None:
    offered = by_horizon(replace(SEEN, outlook=outlook), horizon)
    assert offered.slots == pytest.approx(slots)
    assert offered.room == ({"cpu": 0.5} if slots > 8 else {"cpu": 0.3})


def test_reservations_are_taken_from_both_numbers() -> None:
    seen = less_reserved(replace(SEEN, reserved=2))
    assert (seen.pod_capacity, seen.pod_capacity_held) == (pytest.approx(3.4), pytest.approx(1.2))


def test_the_annotation_has_the_held_number() -> None:
    body = patch(SEEN, Summary(8, "measured"), Offer(6, 6), "carico.dev/pods", 150.0)
    said = json.loads(body["metadata"]["annotations"]["carico.dev/status"])
    assert said["held"] == {"pods": 3.2, "horizon_s": 86400.0, "outlook": "known"}


@pytest.mark.parametrize("given", ["tomorrow", 5.0, True, -1])
def test_a_horizon_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(BadSettings, match=r"kubernetes\.horizon"):
        parse({"kubernetes": {"horizon": given}})


@pytest.mark.parametrize("given, seconds", [("now", None), ("lifetime", None), (7200, 7200.0)])
def test_horizons(given: object, seconds: float | None) -> None:
    assert parse({"kubernetes": {"horizon": given}}).kubernetes.horizon_s == seconds
