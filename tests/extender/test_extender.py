"""The extender's answers, without HTTP: wire format, places, restarts."""

import asyncio
import json
import time
from math import isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender import wire
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender import Extender
from carico_agent.extender.node_rules import NO_SUCH_NODE
from carico_agent.extender.nodes import COLUMNS, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.extender.published import PublishedNode, SeenLease, read_lease, read_node
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.net.times import boottime_s, rfc3339
from tests.extender.team import LENIENT, extender_of
from tests.kube.small_server import Pause, SmallServer


def slow(pause_s: float) -> Pause:
    async def pause() -> None:
        await asyncio.sleep(pause_s)

    return pause


def replica(
    server: SmallServer, nodes: dict[str, float], policy: PodCapacity = LENIENT, **config: Any
) -> tuple[Extender, Cluster]:
    published = [PublishedNode(name, places, 0.0, 100.0, 64.0) for name, places in nodes.items()]
    return extender_of(server, published, policy, **config)


def arguments(uid: str, *names: str) -> Object:
    return {"Pod": {"metadata": {"uid": uid, "name": uid, "namespace": "d"}}, "Nodes": None, "NodeNames": list(names)}


def filtered(extender: Extender, asked: Object) -> Any:
    found = extender.candidates.filter(asked)
    return json.loads(found) if isinstance(found, bytes) else found


def binding(uid: str, node: str) -> Object:
    return {"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": node}


async def test_wire_format() -> None:
    extender, _ = replica(SmallServer(), {"a": 8, "b": 0.5, "c": 4})
    assert filtered(extender, arguments("u", "a", "b", "gone")) == {
        "NodeNames": ["a"],
        "Error": "",
        "FailedNodes": {"b": "no room: 0.5 places, 0 Pods", "gone": "unknown: no such node"},
    }
    assert (
        extender.candidates.prioritize(arguments("u", "a", "c")) == b'[{"Host":"a","Score":10},{"Host":"c","Score":5}]'
    )
    assert extender.candidates.prioritize(arguments("u")) == b"[]"
    odd = json.loads(extender.candidates.prioritize(arguments("u", "\\", "ü")))
    assert odd == [{"Host": "\\", "Score": 0}, {"Host": "ü", "Score": 0}]
    nodes = {"kind": "NodeList", "items": [{"metadata": {"name": name}} for name in "ab"]}
    answer = filtered(extender, {"Pod": {}, "Nodes": nodes, "NodeNames": None})
    assert answer["Nodes"] == {"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}


async def test_why_is_what_filter_would_say_of_all_nodes() -> None:
    extender, cluster = replica(SmallServer(), {"a": 8, "b": 0.5}, resource="carico.dev/pods")
    assert extender.candidates.why("u") is None  # nobody asked about it
    filtered(extender, arguments("u", "a"))
    places = len(cluster.ledger)
    assert extender.candidates.why("u") == {"a": None, "b": "no room: 0.5 places, 0 Pods"}
    assert len(cluster.ledger) == places
    cluster.nodes["a"].resource = 0
    asks = {"containers": [{"resources": {"requests": {"carico.dev/pods": "1"}}}]}
    assert (
        extender.candidates.why_pod({"metadata": {"uid": "v"}, "spec": asks})["a"]
        == "no room: 0 carico.dev/pods, 0 held"
    )


@pytest.mark.parametrize("ttl", ["NaN", "Infinity", "1" + "0" * 400, '"long"', "[" * 50_000], ids=range(5))
def test_a_damaged_status_closes_its_node_and_nothing_else(ttl: str) -> None:
    """It must not end the watch of all nodes either, and no number may be valid for ever."""
    notes = {"carico.dev/slots": "8", "carico.dev/status": f'{{"time":"2024-01-01T00:00:00Z","ttl_s":{ttl}}}'}
    assert isnan(read_node({"metadata": {"name": "a", "annotations": notes}}).places)


ODD = st.text(st.sampled_from('a"\\/\n\x00\x7fü€😀,:{}[]'), max_size=9) | st.text(max_size=9)
DNS = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)


def rows_of(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str | None, int]]]:
    whys = st.none() | st.sampled_from(["no room", ""]) | ODD
    return st.lists(st.tuples(names, whys, st.integers(0, 10)), unique_by=lambda row: row[0])


@given(st.tuples(rows_of(ODD), st.just(False)) | st.tuples(rows_of(DNS), st.just(True)))
def test_joined_answers_are_what_json_would_say(asked: tuple[list[tuple[str, str | None, int]], bool]) -> None:
    rows, plain = asked
    names, whys, scores = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    found = json.loads(wire.filter_result(names, whys, plain), object_pairs_hook=list)  # which keeps doubles
    assert [key for key, _ in found] == ["NodeNames", "FailedNodes", "Error"]
    assert found[0][1] == [name for name, why, _ in rows if why is None]
    assert sorted(map(tuple, found[1][1])) == sorted((name, why) for name, why, _ in rows if why is not None)
    expected = [{"Host": name, "Score": score} for name, _, score in rows]
    assert wire.host_priorities(names, scores, plain) == json.dumps(expected, separators=(",", ":")).encode()


NAME, UID = st.sampled_from("abc"), st.sampled_from("12345")
CHANGES = st.one_of(
    st.tuples(st.just("node"), NAME, st.booleans(), st.sampled_from([nan, 0.5, 4.0, 40.0]), st.floats(0, 200)),
    st.tuples(st.just("pod"), NAME, st.booleans(), UID, st.sampled_from(["Pending", "Running", "Succeeded"])),
    st.tuples(st.just("assume"), NAME, st.booleans(), UID),
    st.tuples(st.just("expire"), st.floats(0, 100)),
)


@given(st.lists(CHANGES, max_size=30))
def test_the_table_has_what_the_nodes_have(changes: list[Any]) -> None:
    """Whatever happened."""
    extender, cluster = replica(SmallServer(), {"a": 8.0, "b": 4.0})
    for what, *how in changes:
        if what == "node":
            name, gone, places, age_s = how
            cluster.node_changed(gone, PublishedNode(name, places, age_s, 100.0, 2.0))
        elif what == "pod":
            name, gone, uid, phase = how
            cluster.pod_changed(gone, PodFacts(uid, uid, "d", name, phase, f"workload-{uid}"))
        elif what == "assume":
            name, taken, uid = how
            cluster.assume(PendingPod(uid), name, boottime_s() + 10.0) if taken else cluster.release(uid)
        else:
            cluster.expire(boottime_s() + how[0])
        nodes = cluster.table.of(list(cluster.nodes))
        for column in COLUMNS:
            views = [float(getattr(view, column)) for view in cluster.nodes.values()]
            assert repr(getattr(nodes, column).tolist()) == repr(views)
    gone = [name for name in "abc" if name not in cluster.nodes]
    failed = filtered(extender, arguments("u", *"abc"))["FailedNodes"]
    assert [name for name, why in failed.items() if why == NO_SUCH_NODE] == gone


async def test_nothing_is_answered_before_everything_is_known() -> None:
    extender, cluster = replica(SmallServer(), {"a": 8})
    cluster.watches.pods.synced.clear()
    assert "not known yet" in filtered(extender, arguments("u", "a"))["Error"]


async def test_binds_stop_at_the_places() -> None:
    server = SmallServer()
    extender, _ = replica(server, {"a": 3})
    answers = await asyncio.gather(*(extender.binder.bind(binding(f"u{n}", "a")) for n in range(10)))
    assert len(server.bound) == 3
    refused = [answer["Error"] for answer in answers if answer["Error"]]
    assert len(refused) == 7 == extender.binder.refused
    assert refused[0] == "carico extender: a: no room: 3 places, 3 Pods"


async def test_without_placement_leases_replicas_overfill() -> None:
    """The control: this is what the placement Lease and its leader are for (placement/test_placed_pods.py)."""
    server = SmallServer()
    server.pause = slow(0.0005)
    replicas = [replica(server, {"a": 7})[0] for _ in range(2)]
    await asyncio.gather(*(replicas[n % 2].binder.bind(binding(f"u{n}", "a")) for n in range(40)))
    assert len(server.bound) == 14


async def test_a_binding_that_was_refused_frees_its_place_and_a_lost_one_does_not() -> None:
    server = SmallServer()
    extender, cluster = replica(server, {"a": 1})
    server.pods["u"] = {"metadata": {"uid": "u", "name": "u"}, "spec": {}, "status": {}}
    errors = iter([Refused(504, "timeout"), Refused(409, "already assigned"), Refused(404, "not found")])

    async def fail(uid: str, node: str) -> None:
        raise next(errors)

    server.bind = fail  # type: ignore[method-assign]
    for why in ("timeout", "already assigned"):
        assert why in (await extender.binder.bind(binding("u", "a")))["Error"]
        assert cluster.nodes["a"].assigned == 1  # this try or the one before may be made all the same
    assert "not found" in (await extender.binder.bind(binding("u", "a")))["Error"]
    assert cluster.nodes["a"].assigned == 0


async def test_a_pod_does_not_stand_in_its_own_way() -> None:
    server = SmallServer()
    extender, _ = replica(server, {"a": 1}, bind_s=0.05)
    server.pause = slow(0.1)
    assert "did not answer within" in (await extender.binder.bind(binding("u", "a")))["Error"]
    server.pause = slow(0.0)
    assert (await extender.binder.bind(binding("u", "a")))["Error"] == ""


async def test_assumptions_end() -> None:
    _, cluster = replica(SmallServer(), {"a": 3})
    now_s = boottime_s()
    cluster.assume(PendingPod("u"), "a", now_s + 30)
    cluster.expire(now_s + 29)
    assert cluster.nodes["a"].assigned == 1
    cluster.expire(now_s + 31)
    assert cluster.nodes["a"].assigned == 0


async def test_no_binding_while_blind() -> None:
    server = SmallServer()
    extender, cluster = replica(server, {"a": 3})
    cluster.watches.pods._lost_s = boottime_s() - 20
    assert "watch of Pods is interrupted" in (await extender.binder.bind(binding("u", "a")))["Error"]
    assert filtered(extender, arguments("u", "a"))["NodeNames"] == ["a"]


async def test_unknown_nodes_may_be_left_to_others() -> None:
    extender, cluster = replica(SmallServer(), {}, PodCapacity(PodCapacitySettings(open_when_unknown=True)))
    cluster.node_changed(False, PublishedNode("plain"))
    assert filtered(extender, arguments("u", "plain"))["NodeNames"] == ["plain"]
    assert json.loads(extender.candidates.prioritize(arguments("u", "plain"))) == [{"Host": "plain", "Score": 0}]
    assert (await extender.binder.bind(binding("u", "plain")))["Error"] == ""


def test_annotations_that_are_malformed_are_no_capacity() -> None:
    def places(number: str, status: str | None) -> float:
        notes = {"carico.dev/slots": number, "carico.dev/status": status}
        return read_node({"metadata": {"name": "a", "annotations": notes}}).places

    good = '{"time":"2024-01-01T00:00:00Z","ttl_s":150}'
    assert places("8", good) == 8
    for number in ("x", "inf", "nan"):
        assert isnan(places(number, good)), number
    for status in ("{", "[]", "{}", '{"time":"x"}', None):
        assert isnan(places("8", status)), status


def test_a_number_is_as_young_as_its_agents_heartbeat() -> None:
    client: Any = SmallServer()
    cluster = Cluster(client, lease_namespace="carico")
    now_s = time.time()
    stale = PodCapacity()

    def lease(age_s: float) -> Object:
        spec = {"renewTime": rfc3339(now_s - age_s, "microseconds"), "leaseDurationSeconds": 150, "holderIdentity": "x"}
        return {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": spec}

    def refusal() -> str | None:
        return stale.refusal(cluster.nodes["a"], PendingPod("u"), boottime_s())

    cluster.leases_listed([read_lease(lease(500.0), now_s)])  # before the node is known
    cluster.nodes_listed([PublishedNode("a", 8.0, 400.0, 150.0, 64.0)])
    assert str(refusal()).startswith("stale")
    cluster.lease_changed(False, read_lease(lease(10.0), now_s))
    assert refusal() is None
    cluster.node_changed(False, PublishedNode("a", 6.0, 300.0, 150.0, 64.0))
    assert refusal() is None
    cluster.lease_changed(True, SeenLease("a"))
    assert str(refusal()).startswith("stale")
    cluster.node_changed(False, PublishedNode("a", 6.0, 3.0, 150.0, 64.0))  # an agent without a Lease
    assert refusal() is None
    assert not cluster.synced


def pods_prefer(preference: Object) -> Object:
    names = [f"n{number}" for number in range(30)]
    return {"Pod": {"metadata": {"uid": "u"}, "spec": preference}, "Nodes": None, "NodeNames": names}


async def test_the_best_nodes_go_on_to_be_scored() -> None:
    nodes = {f"n{number}": float(number) for number in range(30)}
    extender, _ = replica(SmallServer(), nodes, max_nodes=5)
    found = filtered(extender, pods_prefer({}))
    assert found["FailedNodes"] == {"n0": "no room: 0 places, 0 Pods"}
    assert len(found["NodeNames"]) == 5
    scores = {one["Host"]: one["Score"] for one in json.loads(extender.candidates.prioritize(pods_prefer({})))}
    worst = min(scores[name] for name in found["NodeNames"])
    assert worst >= sorted(scores.values())[-5]
    everybody, _ = replica(SmallServer(), nodes, max_nodes=0)
    assert len(filtered(everybody, pods_prefer({}))["NodeNames"]) == 29


@pytest.mark.parametrize(
    "preference",
    [
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
    ],
    ids=["spread", "affinity"],
)
async def test_a_pod_with_preferences_is_scored_on_all_nodes(preference: Object) -> None:
    extender, _ = replica(SmallServer(), {f"n{number}": 8.0 for number in range(30)}, max_nodes=5)
    assert len(filtered(extender, pods_prefer(preference))["NodeNames"]) == 30


async def test_equal_nodes_take_turns() -> None:
    extender, _ = replica(SmallServer(), {f"n{number}": 8.0 for number in range(30)}, max_nodes=5)
    seen = {name for _ in range(50) for name in filtered(extender, pods_prefer({}))["NodeNames"]}
    assert len(seen) == 30
