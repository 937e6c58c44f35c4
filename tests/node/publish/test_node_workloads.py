"""What a node publishes about workloads: in cores and bytes, bounded, without what is reserved."""

from math import nan

import pytest

from carico_agent.lib.kube.names import RESOURCE, WORKLOADS
from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import MAX_WORKLOADS, decode
from carico_agent.node.publish.node_offer import patch
from carico_agent.node.publish.node_workloads import less_reserved, moved, node_workloads, pods_by_workload
from carico_agent.node.publish.status import Status, WorkloadStatus
from carico_agent.node.publish.throttle import Summary

SIZES = {"cpu": 8.0, "memory": 1e9}


def workload(name: str, cpu: float = 0.1, **more: object) -> WorkloadStatus:
    cost = {"cpu": cpu, "memory": 0.05}
    given: dict[str, object] = {"pods": 1, "fits": 5.2, "limiting": "cpu", "arrivals": 0.2, "trusted": True}
    return WorkloadStatus(name, cost=cost, **(given | more))  # type: ignore[arg-type]


def status(*workloads: WorkloadStatus, **more: object) -> Status:
    room, next_cost = {"cpu": 0.65, "memory": 0.4}, {"cpu": 0.125, "memory": 0.06}
    given = {"pods_measured": True, "room": room, "cost_vector": next_cost, "sizes": SIZES, "pod_capacity": 5.2}
    return Status(workloads=workloads, slots=8.2, pods=3, **(given | more))  # type: ignore[arg-type]


def test_shares_become_cores_and_bytes() -> None:
    given = status(workload("shop/web"), usage={"cpu": 0.25, "memory": None})
    found = node_workloads(given, {"shop/web": 3, "shop/unlisted": 2})
    assert found is not None
    assert found.used == pytest.approx((2.0, nan, nan, nan), nan_ok=True)
    assert found.room[:2] == pytest.approx((5.2, 4e8)) and found.next[:2] == pytest.approx((1.0, 6e7))
    web = found.workloads["shop/web"]
    assert (web.cost[:2], web.fits, web.pods, found.other) == (pytest.approx((0.8, 5e7)), 5.2, 3, 2)


def test_pods_of_workloads_that_are_not_learned_or_are_daemons_are_counted_only() -> None:
    given = status(
        workload("new", trusted=False), workload("daemon", per_node=True, arrivals=0.0), workload("gone", arrivals=0.0)
    )
    found = node_workloads(given, {"new": 2, "daemon": 1})
    assert found is not None and list(found.workloads) == ["new"]  # "gone" neither runs nor arrives
    assert found.workloads["new"].pods == 2 and found.workloads["new"].cost[0] != found.workloads["new"].cost[0]
    assert found.other == 1


def test_those_that_arrive_or_run_max_are_listed() -> None:
    workloads = [workload(f"k{n}", arrivals=n / 100) for n in range(30)] + [workload("runs", arrivals=0.0)]
    found = node_workloads(status(*workloads), {"runs": 60, "k0": 1})
    assert found is not None and len(found.workloads) == MAX_WORKLOADS
    assert list(found.workloads)[:2] == ["runs", "k29"] and "k0" not in found.workloads and found.other == 1


def test_without_measured_pods_there_is_no_room_to_speak_of() -> None:
    assert node_workloads(status(workload("a"), pods_measured=False), {}) is None


def test_a_reservation_is_offered_to_nobody_else() -> None:
    seen = less_reserved(status(low=4.0, high=6.0, reserved=2))
    assert (seen.pod_capacity, seen.slots, seen.low, seen.high) == pytest.approx((3.2, 6.2, 2.0, 4.0))
    assert seen.room == pytest.approx({"cpu": 0.65 - 2 * 0.125, "memory": 0.4 - 2 * 0.06})
    all_of_it = less_reserved(status(reserved=50))
    assert (all_of_it.pod_capacity, all_of_it.slots) == (0.0, pytest.approx(3.0))
    assert less_reserved(status()) == status()


def test_the_patch_carries_it_and_takes_it_back() -> None:
    given = status(workload("shop/web"))
    found = node_workloads(given, {})
    body = patch(given, Summary(8, "measured"), Offer(8, 8), RESOURCE, 150.0, found)
    back = decode(body["metadata"]["annotations"][WORKLOADS])
    assert back is not None and back.workloads["shop/web"].cost[0] == pytest.approx(0.8)
    for summary, workloads in ((Summary(None, "stale"), found), (Summary(8, "measured"), None)):
        assert (
            patch(given, summary, Offer(0, 0), RESOURCE, 150.0, workloads)["metadata"]["annotations"][WORKLOADS] is None
        )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ([workload("a")], [workload("a")], None),
        ([workload("a")], [workload("a", 0.109)], None),  # less than a tenth
        ([workload("a")], [workload("a", 0.12)], "the cost of a"),
        ([workload("a")], [workload("a", 0.08)], "the cost of a"),
        ([workload("a", 0.001)], [workload("a", 0.002)], None),  # sleeps, and sleeps a little less
        ([workload("a")], [workload("a"), workload("b")], "the cost of b"),
        ([workload("a", trusted=False)], [workload("a")], "the cost of a"),
        ([workload("a"), workload("b")], [workload("a")], None),  # nobody waits for a workload that is gone
        ([], [workload("a", trusted=False)], None),
    ],
)
def test_what_is_worth_a_write(old: list[WorkloadStatus], new: list[WorkloadStatus], words: str | None) -> None:
    assert moved(node_workloads(status(*old), {}), node_workloads(status(*new), {})) == words


def test_room_that_becomes_known_is_worth_a_write() -> None:
    found = node_workloads(status(), {})
    assert (moved(None, found), moved(found, None), moved(None, None)) == ("room is known", "room is unknown", None)


def test_pods_are_counted_by_the_names_of_the_api_server() -> None:
    def pod(uid: str, workload: str) -> PodFacts:
        return PodFacts(uid, uid, "d", "a", "Running", workload, local_uid=uid)

    bound = [pod("1", "a"), pod("2", "a"), pod("3", "b"), pod("starting", "b")]
    assert pods_by_workload(bound, {"1": True, "2": False, "3": True, "unknown": True}) == {"a": 2, "b": 1}
