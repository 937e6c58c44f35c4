"""From status and held Pods to the offer: pure functions."""

import json
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.lib.kube.names import POD_CAPACITY, RESOURCE, SLOTS, STATUS
from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.node.publish.node_offer import HeldPods, amount, held_pods, patch, places
from carico_agent.node.publish.status import Status, WorkStatus
from carico_agent.node.publish.throttle import Summary, ThrottleConfig


def pod(uid: str, holds: int) -> PodFacts:
    return PodFacts(uid, uid, "d", "a", "Running", "", holds, uid)


def test_who_holds_what() -> None:
    bound, ended = [pod("runs", 2), pod("skipped", 1), pod("starting", 4)], [pod("ends", 8), pod("ended", 16)]
    held = held_pods(bound, ended, {"runs": True, "skipped": False, "ends": True})
    assert held == HeldPods(holds=7, counted_holds=10, counted=1, uncounted=1)


@given(st.floats(0, 1000), st.integers(0, 50), st.one_of(st.none(), st.integers(0, 1000)))
def test_never_below_what_is_held(low: float, holds: int, published: int | None) -> None:
    assert amount(low, HeldPods(holds=holds), published, ThrottleConfig()) >= holds


def test_unknown_offers_what_is_held_and_no_more() -> None:
    assert amount(nan, HeldPods(holds=3), 8, ThrottleConfig()) == 3


@pytest.mark.parametrize(
    ("slots", "pods", "counted", "uncounted", "expected"), [(8, 0, 0, 0, 8), (8, 3, 1, 1, 7), (1, 5, 0, 0, 0)]
)
def test_places(slots: int, pods: int, counted: int, uncounted: int, expected: int) -> None:
    assert places(slots, pods, HeldPods(counted=counted, uncounted=uncounted)) == expected


def test_the_patch_of_an_unknown_number_removes_it() -> None:
    status = Status(sequence=7, pod_capacity=5.25, slots=8.25, pods=3, time="2024-01-01T00:00:00.000Z")
    body = patch(status, Summary(8, "measured"), Offer(7, 5), RESOURCE, 150.0)
    notes = body["metadata"]["annotations"]
    assert (notes[POD_CAPACITY], notes[SLOTS]) == ("5.25", "8")
    assert json.loads(notes[STATUS]).items() >= {"v": 1, "seq": 7, "slots": 8.25, "places": 7, "pods": 3}.items()
    assert body["status"]["allocatable"] == body["status"]["capacity"] == {RESOURCE: "5"}
    gone = patch(status, Summary(None, "stale"), Offer(0, None), RESOURCE, 150.0)
    assert (gone["metadata"]["annotations"][SLOTS], "status" in gone) == (None, False)
    assert json.loads(gone["metadata"]["annotations"][STATUS])["mode"] == "stale"


def test_work_left_is_three_numbers_however_many_jobs_there_are() -> None:
    work = WorkStatus(jobs=1000, unknown=24, uncertain=3, total_s=1e11, longest_s=1e8)
    status = Status(node="a", pod_capacity=2.0, slots=8.0, mode="measured", work=work)
    body = patch(status, Summary(8, "measured"), Offer(7, 5), RESOURCE, 150.0)
    assert json.loads(body["metadata"]["annotations"][STATUS])["work"] == {"jobs": 1000, "sum_s": 1e11, "max_s": 1e8}
    idle = patch(Status(node="a", pod_capacity=2.0, slots=8.0), Summary(8, "measured"), Offer(7, 5), RESOURCE, 150.0)
    assert "work" not in json.loads(idle["metadata"]["annotations"][STATUS])
