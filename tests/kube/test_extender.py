"""The extender's answers, without HTTP: wire format, claims, restarts."""

import asyncio
import json
import time
from math import isnan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carico_agent.kube.client import Object
from carico_agent.kube.pods import PodFacts
from carico_agent.schedule import wire
from carico_agent.schedule.cluster import Cluster, Published, read_node
from carico_agent.schedule.extender import Extender, ExtenderConfig
from carico_agent.schedule.policy import PodCapacity, PodView
from tests.kube.small_server import Pause, SmallServer


def slow(pause_s: float) -> Pause:
    async def pause() -> None:
        await asyncio.sleep(pause_s)

    return pause


def replica(server: SmallServer, nodes: dict[str, float], **config: Any) -> tuple[Extender, Cluster]:
    client: Any = server
    cluster = Cluster(client)
    cluster._nodes_are([Published(name, slots, 0.0, 100.0, 64.0) for name, slots in nodes.items()])
    cluster._pods_are([])
    for watch in (cluster._nodes_watch, cluster._pods_watch):
        watch.synced.set()
        watch._lost_s = None
    return Extender(client, cluster, PodCapacity(starting_ratio=1.0), ExtenderConfig(**config)), cluster


def arguments(uid: str, *names: str) -> Object:
    return {"Pod": {"metadata": {"uid": uid, "name": uid, "namespace": "d"}}, "Nodes": None, "NodeNames": list(names)}


def filtered(extender: Extender, asked: Object) -> Any:
    said = extender.filter(asked)
    return json.loads(said) if isinstance(said, bytes) else said


def binding(uid: str, node: str) -> Object:
    return {"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": node}


async def test_wire_format() -> None:
    extender, _ = replica(SmallServer(), {"a": 8, "b": 0.5, "c": 4})
    assert filtered(extender, arguments("u", "a", "b", "gone")) == {
        "NodeNames": ["a"], "Error": "",
        "FailedNodes": {"b": "no room: 0.5 slots, 0 Pods", "gone": "unknown: no such node"},
    }  # fmt: skip
    assert extender.prioritize(arguments("u", "a", "c")) == b'[{"Host":"a","Score":10},{"Host":"c","Score":5}]'
    assert extender.prioritize(arguments("u")) == b"[]"
    odd = json.loads(extender.prioritize(arguments("u", "\\", "ü")))
    assert odd == [{"Host": "\\", "Score": 0}, {"Host": "ü", "Score": 0}]
    nodes = {"kind": "NodeList", "items": [{"metadata": {"name": name}} for name in "ab"]}
    answer = filtered(extender, {"Pod": {}, "Nodes": nodes, "NodeNames": None})
    assert answer["Nodes"] == {"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}


@given(st.lists(st.tuples(st.text(max_size=9), st.none() | st.text(max_size=9), st.integers(0, 10))))
def test_joined_answers_are_what_json_would_say(rows: list[tuple[str, str | None, int]]) -> None:
    rows = list({name: (name, why, score) for name, why, score in rows}.values())
    names, whys, scores = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    assert json.loads(wire.filter_result(names, whys)) == {
        "NodeNames": [name for name, why, _ in rows if why is None], "Error": "",
        "FailedNodes": {name: why for name, why, _ in rows if why is not None}}  # fmt: skip
    assert json.loads(wire.host_priorities(names, scores)) == [
        {"Host": name, "Score": score} for name, _, score in rows]  # fmt: skip


async def test_nothing_is_answered_before_everything_is_known() -> None:
    extender, cluster = replica(SmallServer(), {"a": 8})
    cluster._pods_watch.synced.clear()
    assert "not known yet" in filtered(extender, arguments("u", "a"))["Error"]


async def test_binds_stop_at_the_slots() -> None:
    server = SmallServer()
    extender, _ = replica(server, {"a": 3})
    answers = await asyncio.gather(*(extender.bind(binding(f"u{n}", "a")) for n in range(10)))
    assert len(server.bound) == 3
    refused = [answer["Error"] for answer in answers if answer["Error"]]
    assert len(refused) == 7 == extender.refused_binds
    assert refused[0] == "carico extender: a: no room: 3 slots, 3 Pods"


async def test_replicas_agree_through_the_book() -> None:
    """Neither sees the other's bindings: only the book tells."""
    server = SmallServer()
    server.pause = slow(0.0005)
    replicas = [replica(server, {"a": 7, "b": 5})[0] for _ in range(3)]
    pods = [binding(f"u{n}", "ab"[n % 2]) for n in range(60)]
    await asyncio.gather(*(replicas[n % 3].bind(pod) for n, pod in enumerate(pods)))
    assert sorted(node for _, node in server.bound) == ["a"] * 7 + ["b"] * 5
    assert sum(one.conflicts for one in replicas) > 0


async def test_without_a_book_replicas_overfill() -> None:
    """The control: this is what the book is for."""
    server = SmallServer()
    server.pause = slow(0.0005)
    replicas = [replica(server, {"a": 7}, book_namespace="")[0] for _ in range(2)]
    await asyncio.gather(*(replicas[n % 2].bind(binding(f"u{n}", "a")) for n in range(40)))
    assert len(server.bound) == 14


async def test_a_restarted_extender_knows_what_is_on_its_way() -> None:
    server = SmallServer()
    first, _ = replica(server, {"a": 3})
    await first.bind(binding("u1", "a"))
    second, cluster = replica(server, {"a": 3})  # its list was made before u1 was bound
    for n in range(5):
        await second.bind(binding(f"v{n}", "a"))
    assert len(server.bound) == 3
    cluster._pod_changed(False, PodFacts("u1", "u1", "d", "a", "Running", ""))  # the watch catches up: counted once
    assert cluster.nodes["a"].assigned == 3
    cluster._pod_changed(True, PodFacts("u1", "u1", "d", "a", "Succeeded", ""))
    assert not (await second.bind(binding("v9", "a")))["Error"]  # an ended Pod's claim does not come back


async def test_a_pod_does_not_stand_in_its_own_way() -> None:
    server = SmallServer()
    extender, _ = replica(server, {"a": 1}, bind_s=0.05)
    server.pause = slow(0.1)
    assert "did not answer within" in (await extender.bind(binding("u", "a")))["Error"]
    server.pause = slow(0.0)
    assert (await extender.bind(binding("u", "a")))["Error"] == ""


async def test_assumptions_end() -> None:
    _, cluster = replica(SmallServer(), {"a": 3})
    now_s = time.monotonic()
    cluster.assume(PodView("u"), "a", now_s + 30)
    cluster.keep_house(now_s + 29)
    assert cluster.nodes["a"].assigned == 1
    cluster.keep_house(now_s + 31)
    assert cluster.nodes["a"].assigned == 0


async def test_no_binding_while_blind() -> None:
    server = SmallServer()
    extender, cluster = replica(server, {"a": 3})
    cluster._pods_watch._lost_s = time.monotonic() - 20
    assert "watch of Pods is interrupted" in (await extender.bind(binding("u", "a")))["Error"]
    assert filtered(extender, arguments("u", "a"))["NodeNames"] == ["a"]


async def test_unknown_nodes_may_be_left_to_others() -> None:
    extender, cluster = replica(SmallServer(), {}, open_when_unknown=True)
    cluster._node_changed(False, Published("plain"))
    assert filtered(extender, arguments("u", "plain"))["NodeNames"] == ["plain"]
    assert json.loads(extender.prioritize(arguments("u", "plain"))) == [{"Host": "plain", "Score": 0}]
    assert (await extender.bind(binding("u", "plain")))["Error"] == ""


def test_annotations_of_strangers_are_no_capacity() -> None:
    def slots(number: str, status: str | None) -> float:
        notes = {"carico.dev/slots": number, "carico.dev/status": status}
        return read_node({"metadata": {"name": "a", "annotations": notes}}).slots

    good = '{"time":"2024-01-01T00:00:00Z","ttl_s":150}'
    assert slots("8", good) == 8
    for number, status in (("x", good), ("8", "{"), ("8", "[]"), ("8", "{}"), ("8", '{"time":"x"}'), ("8", None)):
        assert isnan(slots(number, status)), (number, status)
