"""Who may place Pods, and what an agent that lowers its number learns: term by term, in virtual time."""

import asyncio
import json
import re
from typing import Any

import pytest

from carico_agent.extender.extender import Extender
from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.placement import placed_pods
from carico_agent.extender.placement.replicas import LEADER_S
from carico_agent.extender.published import PublishedNode, read_lease
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable
from carico_agent.lib.kube.leader import LeaderLease, leader_record
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import LEADER_LEASE, Offer, PlacementLeases, lease_record
from tests.extender.team import extender_of, start
from tests.kube.small_server import SmallServer
from tests.virtual_time import run

BOUND_WITHIN_S = 15.0


def replica(server: SmallServer, *names: str) -> Extender:
    nodes = [PublishedNode(name, 8.0, 0.0, 1e9, 64.0, 8) for name in names or ("a",)]
    return extender_of(server, nodes, resource=RESOURCE, lease_namespace="carico", bound_within_s=BOUND_WITHIN_S)[0]


async def leader_and_another(server: SmallServer) -> tuple[Extender, Extender, list[asyncio.Task[None]]]:
    """Two extenders; the first leads, and has these tasks."""
    first, second = replica(server), replica(server)
    tasks = start(first)
    await asyncio.sleep(1.0)
    start(second)
    return first, second, tasks


def add_pod(server: SmallServer, uid: str) -> None:
    asks = {"resources": {"requests": {RESOURCE: "1"}}}
    server.pods[uid] = {"metadata": {"uid": uid, "name": uid, "namespace": "d"}, "spec": {"containers": [asks]}}


async def admit(extender: Extender, server: SmallServer, uid: str, node: str = "a") -> str | None:
    add_pod(server, uid)
    return await extender.webhook.admit("d", uid, uid, node)


def leases_of(server: SmallServer) -> PlacementLeases:
    return PlacementLeases(server, "carico")  # type: ignore[arg-type]


async def leading(*names: str) -> tuple[SmallServer, Extender]:
    """A server, and an extender that leads there."""
    server = SmallServer()
    extender = replica(server, *names)
    start(extender)
    await asyncio.sleep(1.0)
    return server, extender


def why_not(extender: Extender) -> str | None:
    assert extender.replicas is not None
    return extender.replicas.placed.why_not()


def test_the_first_leader_places_at_once_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        extender = replica(server)
        with pytest.raises(KubeError, match="no extender leads yet"):
            await admit(extender, server, "early")
        start(extender)
        await asyncio.sleep(1.0)
        server.requests.clear()
        assert [await admit(extender, server, f"p{n}") for n in range(8)] == [None] * 8
        assert "no room: 8" in str(await admit(extender, server, "p8"))
        assert [request for request in server.requests if "GET pods" not in request] == []

    run(scene(), monkeypatch)


def test_a_lower_offer_is_acknowledged_with_those_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        extender, leases = replica(server, "a", "b"), leases_of(server)
        start(extender)
        await asyncio.sleep(1.0)
        await admit(extender, server, "old")
        await asyncio.sleep(BOUND_WITHIN_S)
        await admit(extender, server, "new")
        await admit(extender, server, "elsewhere", "b")
        await leases.offer("a", Offer(1, 1), 1e9, [], token="t")
        await asyncio.sleep(0.5)
        seen = (await leases.read("a")).acknowledged
        assert (seen.token, seen.term, seen.placed.keys()) == ("t", 1, {"new"})
        assert seen.leader == leader_record(server.leases[LEADER_LEASE]).holder
        assert seen.placed["new"].pod == "d/new"
        assert "no room: 1" in str(await admit(extender, server, "later"))
        writes = server.requests.count("PATCH leases")
        await leases.offer("a", Offer(2, 2), 1e9, [])  # nobody waits for an answer to this
        await asyncio.sleep(0.5)
        assert server.requests.count("PATCH leases") == writes + 1

    run(scene(), monkeypatch)


def test_an_acknowledgement_that_is_lost_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server, extender = await leading()
        assert extender.replicas is not None
        acknowledge, lost = PlacementLeases.acknowledge, iter((True, True))

        async def lose(*arguments: Any) -> None:
            if next(lost, False):
                raise Unreachable("lost")
            await acknowledge(*arguments)

        monkeypatch.setattr(PlacementLeases, "acknowledge", lose)
        await leases_of(server).offer("a", Offer(1, 1), 1e9, [], token="t")
        await asyncio.sleep(3.0)
        assert lease_record(server.leases["a"]).acknowledged.token == "t"
        assert extender.replicas.placed.acknowledged == 1

    run(scene(), monkeypatch)


def test_after_a_killed_leader_nobody_is_placed_until_its_pods_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        first = replica(server)
        tasks = start(first)
        await asyncio.sleep(1.0)
        await admit(first, server, "p")
        for task in tasks:
            task.cancel()
        second = replica(server)
        start(second)
        assert await _places_after(second) == pytest.approx(LEADER_S + BOUND_WITHIN_S, abs=3.0)
        assert "leads" in str(why_not(first))

    run(scene(), monkeypatch)


def test_after_a_released_lease_only_what_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(idle_s: float) -> float:
        server = SmallServer()
        first = replica(server)
        tasks = start(first)
        await asyncio.sleep(1.0)
        await admit(first, server, "p")
        await asyncio.sleep(idle_s)
        for task in tasks:
            task.cancel()
        assert first.replicas is not None
        await first.replicas.leader.release()
        second = replica(server)
        start(second)
        return await _places_after(second)

    assert run(scene(idle_s=5.0), monkeypatch) == pytest.approx(BOUND_WITHIN_S - 5.0, abs=1.0)
    assert run(scene(idle_s=60.0), monkeypatch) < 1.0


def test_two_leaders_that_stop_one_after_the_other_lose_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one has placed nobody, and knows that Pods of the first may be under way."""

    async def scene() -> float:
        server = SmallServer()
        for number in range(2):
            one = replica(server)
            tasks = start(one)
            await asyncio.sleep(1.0)
            if number == 0:
                await admit(one, server, "p")
            for task in tasks:
                task.cancel()
            assert one.replicas is not None
            await one.replicas.leader.release()
        third = replica(server)
        start(third)
        return await _places_after(third)

    assert run(scene(), monkeypatch) == pytest.approx(BOUND_WITHIN_S - 1.0, abs=1.0)


def test_after_a_deleted_lease_the_next_leader_waits_and_the_last_one_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        first, second, tasks = await leader_and_another(server)
        await asyncio.sleep(5.0)
        await admit(first, server, "p")
        lease = server.leases.pop(LEADER_LEASE)
        for cluster in (first.cluster, second.cluster):
            cluster.lease_changed(True, read_lease(lease))
        with pytest.raises(KubeError, match=r"no extender leads yet|does not know all offers yet"):
            await admit(first, server, "q")
        for task in tasks:
            task.cancel()
        assert await _places_after(second) == pytest.approx(LEADER_S + BOUND_WITHIN_S, abs=3.0)

    run(scene(), monkeypatch)


def test_one_node_that_cannot_be_answered_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_pods, "AT_ONCE", 1)

    async def scene() -> None:
        server, _ = await leading("a", "b")
        acknowledge = PlacementLeases.acknowledge

        async def refuse_a(leases: PlacementLeases, node: str, seen: Any) -> None:
            if node == "a":
                raise Refused(422, "too large")
            await acknowledge(leases, node, seen)

        monkeypatch.setattr(PlacementLeases, "acknowledge", refuse_a)
        for node in "ab":
            await leases_of(server).offer(node, Offer(1, 1), 1e9, [], token="t")
        await asyncio.sleep(5.0)
        assert [lease_record(server.leases[node]).acknowledged.token for node in "ab"] == ["", "t"]

    run(scene(), monkeypatch)


def test_what_an_extender_that_is_gone_has_asked_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server, extender = await leading()
        dead = {"questions.carico.dev/dead": '{"1":["admit","d","p","p","a"]}'}
        add_pod(server, "p")
        meta = {"name": "carico-extender-questions", "annotations": dead}
        await server.post("/apis/coordination.k8s.io/v1/namespaces/carico/leases", {"metadata": meta, "spec": {}})
        await asyncio.sleep(1.0)
        assert len(extender.cluster.ledger) == 1
        path = "/apis/coordination.k8s.io/v1/namespaces/carico/leases/carico-extender-questions"
        await asyncio.sleep(20.0)
        await server.patch(path, {"metadata": {"annotations": {"questions.carico.dev/other": "{}"}}})  # somebody writes
        await asyncio.sleep(1.0)
        assert "questions.carico.dev/dead" not in server.leases["carico-extender-questions"]["metadata"]["annotations"]

    run(scene(), monkeypatch)


def test_a_long_host_name_makes_a_valid_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    host = "control-plane-0.a-rather-long-name-of-a-cluster.eu-central-1.example.org"
    monkeypatch.setattr("carico_agent.extender.placement.replicas.gethostname", lambda: host)
    extender = replica(SmallServer())
    assert extender.replicas is not None
    identity = extender.replicas.leader.identity
    assert len(identity) <= 63 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", identity)


def test_the_lower_of_lease_and_node_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that registers its node again sets the resource to 0; the Lease still offers what the agent wrote."""

    async def scene() -> None:
        server, extender = await leading()
        await leases_of(server).offer("a", Offer(8, 8), 1e9, [])
        extender.cluster.node_changed(False, PublishedNode("a", 8.0, 0.0, 1e9, 64.0, 0))
        assert "no room: 0" in str(await admit(extender, server, "p"))

    run(scene(), monkeypatch)


async def _places_after(extender: Extender) -> float:
    began_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(120.0):
        while why_not(extender) is not None:
            await asyncio.sleep(0.1)
    return asyncio.get_running_loop().time() - began_s


def test_a_leader_that_came_too_late_to_renew_begins_a_new_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents may have published lower numbers by then, because nobody placed: it must see them first."""

    async def scene() -> None:
        server = SmallServer()
        client: Any = server
        lease = LeaderLease(client, "carico", LEADER_LEASE, "x", LEADER_S)
        now_s = asyncio.get_running_loop().time
        assert await lease.hold(now_s())
        await asyncio.sleep(LEADER_S / 2)
        assert (await lease.hold(now_s()), lease.leads, lease.term) == (True, True, 1)
        await asyncio.sleep(LEADER_S + 1.0)
        assert not lease.leads
        assert (await lease.hold(now_s()), lease.leads, lease.term) == (True, True, 2)
        assert leader_record(server.leases[LEADER_LEASE]).term == 2

    run(scene(), monkeypatch)


def test_a_leader_places_nobody_before_its_watch_has_shown_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        extender = replica(server)
        (show,) = server.lease_watchers
        kept: list[Any] = []
        server.lease_watchers[:] = [kept.append]
        start(extender)
        await asyncio.sleep(5.0)
        assert why_not(extender) == "this extender leads and does not know all offers yet"
        with pytest.raises(KubeError, match="does not know all offers yet"):
            await admit(extender, server, "p")
        for lease in kept:
            show(lease)
        assert await admit(extender, server, "p") is None

    run(scene(), monkeypatch)


def test_a_leader_whose_watch_hangs_gives_up_until_it_shows_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see no lower offer, and agents would wait for it for ever."""

    async def scene() -> None:
        server = SmallServer()
        extender = replica(server)
        start(extender)
        await asyncio.sleep(30.0)
        assert why_not(extender) is None
        shown, server.lease_watchers[:] = list(server.lease_watchers), []
        await asyncio.sleep(30.0)
        assert why_not(extender) is not None
        last = server.leases[LEADER_LEASE]["metadata"]["resourceVersion"]
        await asyncio.sleep(60.0)
        assert server.leases[LEADER_LEASE]["metadata"]["resourceVersion"] == last  # so agents and others go on
        server.lease_watchers += shown
        await leases_of(server).offer("a", Offer(3, 3), 1e9, [])
        await asyncio.sleep(60.0)
        assert why_not(extender) is None

    run(scene(), monkeypatch)


def test_who_was_placed_here_and_then_elsewhere_counts_in_both_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding that got no answer may be made all the same."""

    async def scene() -> None:
        server, extender = await leading("a", "b")
        for number in range(8):
            assert await admit(extender, server, f"p{number}") is None
        assert await admit(extender, server, "p0", "b") is None
        assert "no room: 8" in str(await admit(extender, server, "p8"))
        await asyncio.sleep(BOUND_WITHIN_S + 1.0)
        extender.cluster.expire(asyncio.get_running_loop().time())
        assert await admit(extender, server, "p9") is None

    run(scene(), monkeypatch)


def test_so_many_on_the_way_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_pods, "MAX_ON_THE_WAY", 3)

    async def scene() -> None:
        server, extender = await leading()
        found = [await admit(extender, server, f"p{number}") for number in range(4)]
        assert found == [None, None, None, "3 Pods are on their way here already"]
        assert await admit(extender, server, "p1") is None  # it is one of them

    run(scene(), monkeypatch)


def test_extenders_that_do_not_lead_ask_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, and what they may bind is exact, though none sees the others' bindings."""

    async def scene() -> None:
        server = SmallServer()
        replicas = [replica(server, "a", "b") for _ in range(3)]
        for one in replicas:
            start(one)
        await asyncio.sleep(3.0)
        server.requests.clear()
        found = await asyncio.gather(
            *(admit(replicas[n % 3], server, f"p{n}", "ab"[n % 2]) for n in range(60)), return_exceptions=True
        )
        assert found.count(None) == 16
        assert {str(why) for why in found} == {"None", f"no room: 8 {RESOURCE}, 8 held"}
        assert server.requests.count("PATCH leases") + server.requests.count("POST leases") < 20  # they share writes
        await asyncio.sleep(1.0)
        asks = json.dumps(server.leases["carico-extender-questions"]["metadata"]["annotations"])
        assert "questions.carico.dev" not in asks  # nobody asks any more

    run(scene(), monkeypatch)


def test_a_question_to_a_leader_that_is_gone_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server = SmallServer()
        _, second, tasks = await leader_and_another(server)
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(KubeError, match="did not answer within"):
            await admit(second, server, "p")
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(4.0, abs=0.5)

    run(scene(), monkeypatch)


def test_odd_questions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server, extender = await leading()
        for text in ("", "{", "[]", "7", '{"1":7}', '{"1":["bind","d","../p","u","a"]}', "[" * 100_000):
            notes = {"questions.carico.dev/x": text, "carico.dev/answers": text}
            assert extender.replicas.questions is not None
            extender.replicas.questions.seen({"metadata": {"annotations": notes}})
        await asyncio.sleep(1.0)
        assert "carico-extender-questions" not in server.leases
        assert why_not(extender) is None

    run(scene(), monkeypatch)


def test_who_was_placed_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of nodes that are gone, or that nobody asks about again."""

    async def scene() -> None:
        extender = replica(SmallServer())
        assert extender.replicas is not None
        extender.replicas.placed.add("a", PendingPod("u"))
        extender.replicas.placed.expire()
        assert extender.replicas.placed.on_the_way("a").keys() == {"u"}
        await asyncio.sleep(BOUND_WITHIN_S)
        extender.replicas.placed.expire()
        assert extender.replicas.placed._recent == {}

    run(scene(), monkeypatch)
