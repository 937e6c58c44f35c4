"""What a node publishes about kinds: in cores and bytes, bounded, without what is reserved."""

from math import nan

import pytest

from carico_agent.kube.kinds import MOST_KINDS, decode
from carico_agent.kube.names import KINDS, RESOURCE
from carico_agent.kube.placement_lease import Offer
from carico_agent.kube.pods import PodFacts
from carico_agent.publish.node_kinds import less_reserved, moved, node_kinds, pods_by_kind
from carico_agent.publish.node_offer import patch
from carico_agent.publish.status import KindStatus, Status
from carico_agent.publish.throttle import Summary

SIZES = {"cpu": 8.0, "memory": 1e9}


def kind(name: str, cpu: float = 0.1, **more: object) -> KindStatus:
    cost = {"cpu": cpu, "memory": 0.05}
    given: dict[str, object] = {"pods": 1, "fits": 5.2, "limiting": "cpu", "arrivals": 0.2, "trusted": True}
    return KindStatus(name, cost=cost, **(given | more))  # type: ignore[arg-type]


def status(*kinds: KindStatus, **more: object) -> Status:
    room, next_cost = {"cpu": 0.65, "memory": 0.4}, {"cpu": 0.125, "memory": 0.06}
    given = {"measured": True, "room": room, "cost_vector": next_cost, "sizes": SIZES, "pod_capacity": 5.2}
    return Status(kinds=kinds, slots=8.2, pods=3, **(given | more))  # type: ignore[arg-type]


def test_shares_become_cores_and_bytes() -> None:
    given = status(kind("shop/web"), usage={"cpu": 0.25, "memory": None})
    found = node_kinds(given, {"shop/web": 3, "shop/unlisted": 2})
    assert found is not None
    assert found.used == pytest.approx((2.0, nan, nan, nan), nan_ok=True)
    assert found.room[:2] == pytest.approx((5.2, 4e8)) and found.next[:2] == pytest.approx((1.0, 6e7))
    web = found.kinds["shop/web"]
    assert (web.cost[:2], web.fits, web.pods, found.other) == (pytest.approx((0.8, 5e7)), 5.2, 3, 2)


def test_pods_of_kinds_that_are_not_learned_or_are_daemons_are_counted_only() -> None:
    given = status(kind("new", trusted=False), kind("daemon", daemon=True, arrivals=0.0), kind("gone", arrivals=0.0))
    found = node_kinds(given, {"new": 2, "daemon": 1})
    assert found is not None and list(found.kinds) == ["new"]  # "gone" neither runs nor arrives
    assert found.kinds["new"].pods == 2 and found.kinds["new"].cost[0] != found.kinds["new"].cost[0]
    assert found.other == 1


def test_those_that_arrive_or_run_most_are_listed() -> None:
    kinds = [kind(f"k{n}", arrivals=n / 100) for n in range(30)] + [kind("runs", arrivals=0.0)]
    found = node_kinds(status(*kinds), {"runs": 60, "k0": 1})
    assert found is not None and len(found.kinds) == MOST_KINDS
    assert list(found.kinds)[:2] == ["runs", "k29"] and "k0" not in found.kinds and found.other == 1


def test_without_measured_pods_there_is_no_room_to_speak_of() -> None:
    assert node_kinds(status(kind("a"), measured=False), {}) is None


def test_a_reservation_is_offered_to_nobody_else() -> None:
    seen = less_reserved(status(low=4.0, high=6.0, reserved=2))
    assert (seen.pod_capacity, seen.slots, seen.low, seen.high) == pytest.approx((3.2, 6.2, 2.0, 4.0))
    assert seen.room == pytest.approx({"cpu": 0.65 - 2 * 0.125, "memory": 0.4 - 2 * 0.06})
    all_of_it = less_reserved(status(reserved=50))
    assert (all_of_it.pod_capacity, all_of_it.slots) == (0.0, pytest.approx(3.0))
    assert less_reserved(status()) == status()


def test_the_patch_carries_it_and_takes_it_back() -> None:
    given = status(kind("shop/web"))
    found = node_kinds(given, {})
    body = patch(given, Summary(8, "measured"), Offer(8, 8), RESOURCE, 150.0, found)
    back = decode(body["metadata"]["annotations"][KINDS])
    assert back is not None and back.kinds["shop/web"].cost[0] == pytest.approx(0.8)
    for summary, kinds in ((Summary(None, "stale"), found), (Summary(8, "measured"), None)):
        assert patch(given, summary, Offer(0, 0), RESOURCE, 150.0, kinds)["metadata"]["annotations"][KINDS] is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ([kind("a")], [kind("a")], None),
        ([kind("a")], [kind("a", 0.109)], None),  # less than a tenth
        ([kind("a")], [kind("a", 0.12)], "the cost of a"),
        ([kind("a")], [kind("a", 0.08)], "the cost of a"),
        ([kind("a", 0.001)], [kind("a", 0.002)], None),  # sleeps, and sleeps a little less
        ([kind("a")], [kind("a"), kind("b")], "the cost of b"),
        ([kind("a", trusted=False)], [kind("a")], "the cost of a"),
        ([kind("a"), kind("b")], [kind("a")], None),  # nobody waits for a kind that is gone
        ([], [kind("a", trusted=False)], None),
    ],
)
def test_what_is_worth_a_write(old: list[KindStatus], new: list[KindStatus], words: str | None) -> None:
    assert moved(node_kinds(status(*old), {}), node_kinds(status(*new), {})) == words


def test_room_that_becomes_known_is_worth_a_write() -> None:
    found = node_kinds(status(), {})
    assert (moved(None, found), moved(found, None), moved(None, None)) == ("room is known", "room is unknown", None)


def test_pods_are_counted_by_the_names_of_the_api_server() -> None:
    def pod(uid: str, kind: str) -> PodFacts:
        return PodFacts(uid, uid, "d", "a", "Running", kind, local_uid=uid)

    bound = [pod("1", "a"), pod("2", "a"), pod("3", "b"), pod("starting", "b")]
    assert pods_by_kind(bound, {"1": True, "2": False, "3": True, "unknown": True}) == {"a": 2, "b": 1}
