"""Filter's second look, waking kube-scheduler, gangs and warnings, without a control plane. On a real one:
tests/kube/test_prompt.py, test_gangs.py, test_ignorable.py."""

import asyncio
import json
import time

import pytest

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender import Extender
from carico_agent.extender.published import PublishedNode
from carico_agent.extender.second_look import BUDGET_S, LOOK_AGAIN_S
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pods import facts
from tests.extender.team import extender_of
from tests.kube.small_server import SmallServer


def node(places: float) -> PublishedNode:
    return PublishedNode("a", places, 0.0, 1e9, 64.0, cpu=32.0)


def pod(uid: str, gang: str = "", on: str = "") -> Object:
    spec = {"schedulingGroup": {"podGroupName": gang}} if gang else {}
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "d"},
        "spec": {**spec, **({"nodeName": on} if on else {}), "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }


async def passes(extender: Extender, one: Object) -> bool:
    found = await extender.second_look.filter({"Pod": one, "NodeNames": ["a"]})
    answer = json.loads(found) if isinstance(found, bytes) else found
    return bool(answer["NodeNames"] == ["a"])


def show(cluster: Cluster, one: Object) -> None:
    cluster.pod_changed(False, facts(one))


async def test_news_that_come_soon_are_waited_for() -> None:
    extender, cluster = extender_of(SmallServer(), [node(0.5)])
    asyncio.get_running_loop().call_later(LOOK_AGAIN_S / 5, cluster.node_changed, False, node(8.0))
    assert await passes(extender, pod("u"))


async def test_a_node_that_only_kube_scheduler_knows_yet_is_waited_for() -> None:
    """It is new, and our own watch is behind."""
    server = SmallServer()
    extender, cluster = extender_of(server, [])
    show(cluster, pod("late"))
    assert not await passes(extender, pod("late"))
    asyncio.get_running_loop().call_later(LOOK_AGAIN_S / 5, cluster.node_changed, False, node(8.0))
    assert await passes(extender, pod("u"))
    await extender.wake.round(time.monotonic() + 2.0)
    assert (extender.wake.wakes, server.requests) == (1, ["PATCH nodes"])  # for the one that came before


async def test_many_pods_do_not_multiply_the_wait() -> None:
    extender, _ = extender_of(SmallServer(), [node(0.5)])
    began_s = time.monotonic()
    assert not any([await passes(extender, pod(f"u{n}")) for n in range(100)])
    assert time.monotonic() - began_s < 2 * BUDGET_S + 0.5  # not 100 times LOOK_AGAIN_S, which is 5 s
    assert extender.second_look.waited_s < 2 * BUDGET_S


async def test_kube_scheduler_is_told_once_that_there_is_room() -> None:
    server = SmallServer()
    extender, cluster = extender_of(server, [node(0.5)])
    show(cluster, pod("u"))
    assert not await passes(extender, pod("u"))
    cluster.node_changed(False, node(8.0))
    now_s = time.monotonic()
    await extender.wake.round(now_s)
    assert extender.wake.wakes == 0  # it has had no time to ask by itself
    for after_s in (2.0, 3.0):
        await extender.wake.round(now_s + after_s)
    assert (extender.wake.wakes, server.requests) == (1, ["PATCH nodes"])
    await extender.wake.round(now_s + 20.0)
    assert extender.wake.wakes == 2  # it did not help
    show(cluster, pod("u", on="a"))
    await extender.wake.round(now_s + 400.0)
    assert extender.wake.wakes == 2  # it waits no longer


async def test_a_gang_that_does_not_fit_holds_nothing() -> None:
    extender, cluster = extender_of(SmallServer(), [node(3.5)])
    assert [await passes(extender, pod(f"u{n}", "four")) for n in range(4)] == [True, True, True, False]
    assert len(cluster.ledger) == 0
    cluster.node_changed(False, node(4.5))
    assert all([await passes(extender, pod(f"u{n}", "four")) for n in range(4)])
    assert await passes(extender, pod("u0", "four"))  # asked again: its own place is not in its way
    assert not await passes(extender, pod("other"))
    result = await extender.binder.bind({"PodName": "u0", "PodNamespace": "d", "PodUID": "u0", "Node": "a"})
    assert result == {"Error": ""}
    await passes(extender, pod("u9", "four"))  # refused: the places of those that are not bound are free again
    assert len(cluster.ledger) == 1


async def test_the_event_of_a_refused_gang_says_how_many_members_had_room() -> None:
    extender, _ = extender_of(SmallServer(), [node(2.5)])
    assert [await passes(extender, pod(f"u{n}", "three")) for n in range(2)] == [True, True]
    answer = await extender.second_look.filter({"Pod": pod("u2", "three"), "NodeNames": ["a"]})
    assert isinstance(answer, bytes)
    reason = json.loads(answer)["FailedNodes"]["a"]
    assert reason.startswith("no room: 2.5 places, 2 Pods; 2 other members of gang d/three had room")
    assert await passes(extender, pod("alone"))


async def test_the_name_of_a_gang_is_not_repeated_without_bounds() -> None:
    """An annotation may have 256 kB; with 1000 nodes the answer had 250 MB, and the extender 1 GB."""
    names = [f"n{n}" for n in range(50)]
    nodes = [PublishedNode(name, 1.5 if name == "n0" else 0.5, 0.0, 1e9, 64.0, cpu=32.0) for name in names]
    extender, _ = extender_of(SmallServer(), nodes)
    for uid in ("u1", "u2"):
        one = pod(uid)
        one["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g" * 250_000}
        answer = await extender.second_look.filter({"Pod": one, "NodeNames": names})
    assert isinstance(answer, bytes)
    assert len(answer) < 10_000


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
        {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    ],
    ids=["Coscheduling", "Coscheduling before 2022", "Kueue", "Volcano"],
)
async def test_members_are_known_by_their_controllers_marks(meta: Object) -> None:
    extender, cluster = extender_of(SmallServer(), [node(2.5)])
    members = [pod(f"u{n}") for n in range(3)]
    for one in members:
        one["metadata"] |= meta
    assert [await passes(extender, one) for one in members] == [True, True, False]
    assert len(cluster.ledger) == 0


async def test_a_refused_pod_that_is_bound_all_the_same_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    extender, cluster = extender_of(SmallServer(), [node(1.5)])
    for uid in ("one", "two", "three"):
        show(cluster, pod(uid))
    asked = [{"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"} for uid in ("one", "two", "three")]
    errors = [(await extender.binder.bind(one))["Error"] for one in asked]
    assert [bool(error) for error in errors] == [False, True, True]
    assert extender.warnings.texts() == []
    for uid in ("one", "two", "three"):
        show(cluster, pod(uid, on="a"))
    assert extender.warnings.overruled.count == 2
    assert "d/two on a" in extender.warnings.texts()[0]
    assert len([record for record in caplog.records if "ignorable" in record.message]) == 1
