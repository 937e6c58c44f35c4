"""The extender's answers, without HTTP: wire format, claims, restarts."""

import asyncio
import json
import time
from collections.abc import Callable
from math import isnan, nan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carico_agent.kube.client import Object
from carico_agent.kube.errors import Refused
from carico_agent.kube.pods import PodFacts
from carico_agent.schedule import wire
from carico_agent.schedule.cluster import Cluster, Published, read_node
from carico_agent.schedule.extender import NO_SUCH_NODE, Extender, ExtenderConfig
from carico_agent.schedule.policy import COLUMNS, PodCapacity


class Server:
    """An API server's Leases with their versions, and Bindings. Several clients may share it."""

    def __init__(self) -> None:
        self.leases: dict[str, Object] = {}
        self.bound: list[tuple[str, str]] = []
        self.version = 0
        self.slow_s = 0.0
        self.nodes: list[Object] = []
        self.asked: list[str] = []
        self.on_claim: Callable[[], None] = lambda: None

    def _store(self, body: Object) -> Object:
        self.version += 1
        self.on_claim()
        kept: Object = json.loads(json.dumps(body))
        kept["metadata"]["resourceVersion"] = str(self.version)
        self.leases[kept["metadata"]["name"]] = kept
        return kept

    async def get(self, path: str, params: Object | None = None) -> Object:
        await asyncio.sleep(self.slow_s)
        if params is not None:
            name = params["fieldSelector"].removeprefix("metadata.name=")
            self.asked.append(name)
            return {"items": [node for node in self.nodes if node["metadata"]["name"] == name]}
        if (name := path.rpartition("/")[2]) not in self.leases:
            raise Refused(404, "not found")
        return self.leases[name]

    async def put(self, path: str, body: Object) -> Object:
        await asyncio.sleep(self.slow_s)
        if self.leases[body["metadata"]["name"]]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Refused(409, "conflict")
        return self._store(body)

    async def post(self, path: str, body: Object) -> Object:
        await asyncio.sleep(self.slow_s)
        if path.endswith("/binding"):
            self.bound.append((body["metadata"]["uid"], body["target"]["name"]))
            return {}
        if body["metadata"]["name"] in self.leases:
            raise Refused(409, "exists")
        return self._store(body)


def replica(server: Server, nodes: dict[str, float], **config: Any) -> tuple[Extender, Cluster]:
    client: Any = server
    cluster = Cluster(client)
    cluster._nodes_are([Published(name, slots, 0.0, 100.0, 64.0) for name, slots in nodes.items()])
    cluster._pods_are([])
    for watch in (cluster._nodes_watch, cluster._pods_watch):
        watch.synced.set()
        watch._lost_s, watch._heard_s = None, time.monotonic() + 60.0
    return Extender(client, cluster, PodCapacity(starting_ratio=1.0), ExtenderConfig(**config)), cluster


def arguments(uid: str, *names: str) -> Object:
    return {"Pod": {"metadata": {"uid": uid, "name": uid, "namespace": "d"}}, "Nodes": None, "NodeNames": list(names)}


def filtered(extender: Extender, asked: Object) -> Any:
    said = extender.filter(asked)
    return json.loads(said) if isinstance(said, bytes) else said


def binding(uid: str, node: str) -> Object:
    return {"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": node}


async def test_wire_format() -> None:
    extender, _ = replica(Server(), {"a": 8, "b": 0.5, "c": 4})
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


ODD = st.text(st.sampled_from('a"\\/\n\x00\x7fü€😀,:{}[]'), max_size=9) | st.text(max_size=9)
DNS = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)


def rows_of(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str | None, int]]]:
    whys = st.none() | st.sampled_from(["no room", ""]) | ODD
    return st.lists(st.tuples(names, whys, st.integers(0, 10)), unique_by=lambda row: row[0])


@given(st.tuples(rows_of(ODD), st.just(False)) | st.tuples(rows_of(DNS), st.just(True)))
def test_joined_answers_are_what_json_would_say(asked: tuple[list[tuple[str, str | None, int]], bool]) -> None:
    rows, plain = asked
    names, whys, scores = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    said = json.loads(wire.filter_result(names, whys, plain), object_pairs_hook=list)  # which keeps what is said twice
    assert [key for key, _ in said] == ["NodeNames", "FailedNodes", "Error"]
    assert said[0][1] == [name for name, why, _ in rows if why is None]
    assert sorted(map(tuple, said[1][1])) == sorted((name, why) for name, why, _ in rows if why is not None)
    book = [{"Host": name, "Score": score} for name, _, score in rows]
    assert wire.host_priorities(names, scores, plain) == json.dumps(book, separators=(",", ":")).encode()


NAME, UID = st.sampled_from("abc"), st.sampled_from("12345")
CHANGES = st.one_of(
    st.tuples(st.just("node"), NAME, st.booleans(), st.sampled_from([nan, 0.5, 4.0, 40.0]), st.floats(0, 200)),
    st.tuples(st.just("pod"), NAME, st.booleans(), UID, st.sampled_from(["Pending", "Running", "Succeeded"])),
    st.tuples(st.just("assume"), NAME, st.booleans(), UID),
    st.tuples(st.just("house"), st.floats(0, 100)),
)


@given(st.lists(CHANGES, max_size=30))
def test_many_at_once_and_one_by_one_are_told_the_same(changes: list[Any]) -> None:
    """Whatever happened, the columns say what the views say."""
    extender, cluster = replica(Server(), {"a": 8.0, "b": 4.0})
    for what, *how in changes:
        if what == "node":
            name, gone, slots, age_s = how
            cluster._node_changed(gone, Published(name, slots, age_s, 100.0, 2.0))
        elif what == "pod":
            name, gone, uid, phase = how
            cluster._pod_changed(gone, PodFacts(uid, uid, "d", name, phase, f"kind-{uid}"))
        elif what == "assume":
            name, taken, uid = how
            cluster.assume(uid, name, "", time.monotonic() + 10.0) if taken else cluster.unassume(uid)
        else:
            cluster.keep_house(time.monotonic() + how[0])
        nodes = cluster.table.of(list(cluster.nodes))
        assert [id(view) for view in nodes] == [id(view) for view in cluster.nodes.values()]
        for column in COLUMNS:
            views = [float(getattr(view, column)) for view in cluster.nodes.values()]
            assert repr(getattr(nodes, column).tolist()) == repr(views)
    gone = [name for name in "abc" if name not in cluster.nodes]
    failed = filtered(extender, arguments("u", *"abc"))["FailedNodes"]
    assert [name for name, why in failed.items() if why == NO_SUCH_NODE] == gone


async def test_nothing_is_answered_before_everything_is_known() -> None:
    extender, cluster = replica(Server(), {"a": 8})
    cluster._pods_watch.synced.clear()
    assert "not known yet" in filtered(extender, arguments("u", "a"))["Error"]


async def test_binds_stop_at_the_slots() -> None:
    server = Server()
    extender, _ = replica(server, {"a": 3})
    answers = await asyncio.gather(*(extender.bind(binding(f"u{n}", "a")) for n in range(10)))
    assert len(server.bound) == 3
    refused = [answer["Error"] for answer in answers if answer["Error"]]
    assert len(refused) == 7 == extender.refused_binds
    assert refused[0] == "carico extender: a: no room: 3 slots, 3 Pods"


async def test_the_number_falls_while_a_claim_is_written() -> None:
    """The last look is after the claim; the place that was claimed in vain is free for others at once."""
    server = Server()
    extender, cluster = replica(server, {"a": 1, "b": 1})
    server.on_claim = lambda: cluster._node_changed(False, Published("a", 0.0, 0.0, 100.0, 64.0))
    assert "no room: 0 slots" in (await extender.bind(binding("u", "a")))["Error"]
    assert server.bound == []
    server.on_claim = lambda: None
    cluster._node_changed(False, Published("a", 1.0, 0.0, 100.0, 64.0))
    assert (await extender.bind(binding("v", "a")))["Error"] == ""
    assert list(json.loads(server.leases["a"]["metadata"]["annotations"]["carico.dev/claims"])) == ["v"]
    assert server.asked == []  # the watch was lively


async def test_a_silent_watch_is_not_relied_on() -> None:
    server = Server()
    extender, cluster = replica(server, {"a": 3, "b": 0})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for name, places in (("a", 0), ("b", 3)):
        said = json.dumps({"time": now, "ttl_s": 100, "places": places})
        notes = {"carico.dev/slots": str(places), "carico.dev/status": said}
        server.nodes.append({"metadata": {"name": name, "annotations": notes}})
    cluster._nodes_watch._heard_s = time.monotonic() - 2.0
    assert "no room: 0 slots" in (await extender.bind(binding("u", "a")))["Error"]
    assert server.asked == ["a"]
    server.nodes.clear()
    assert "published no capacity" in (await extender.bind(binding("u", "a")))["Error"]
    assert server.bound == []


async def test_replicas_agree_through_claims() -> None:
    """Neither sees the other's bindings: only the claims tell."""
    server = Server()
    server.slow_s = 0.001
    replicas = [replica(server, {"a": 7, "b": 5})[0] for _ in range(3)]
    pods = [binding(f"u{n}", "ab"[n % 2]) for n in range(60)]
    await asyncio.gather(*(replicas[n % 3].bind(pod) for n, pod in enumerate(pods)))
    assert sorted(node for _, node in server.bound) == ["a"] * 7 + ["b"] * 5
    assert sum(one.claims.conflicts for one in replicas if one.claims) > 0


async def test_without_claims_replicas_overfill() -> None:
    """The control: this is what the claims are for."""
    server = Server()
    server.slow_s = 0.001
    replicas = [replica(server, {"a": 7}, claim_namespace="")[0] for _ in range(2)]
    await asyncio.gather(*(replicas[n % 2].bind(binding(f"u{n}", "a")) for n in range(40)))
    assert len(server.bound) == 14


async def test_a_restarted_extender_knows_what_is_on_its_way() -> None:
    server = Server()
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
    server = Server()
    extender, _ = replica(server, {"a": 1}, bind_s=0.05)
    server.slow_s = 0.2
    assert "did not answer within" in (await extender.bind(binding("u", "a")))["Error"]
    server.slow_s = 0.0
    assert (await extender.bind(binding("u", "a")))["Error"] == ""


async def test_assumptions_end() -> None:
    _, cluster = replica(Server(), {"a": 3})
    now_s = time.monotonic()
    cluster.assume("u", "a", "", now_s + 30)
    cluster.keep_house(now_s + 29)
    assert cluster.nodes["a"].assigned == 1
    cluster.keep_house(now_s + 31)
    assert cluster.nodes["a"].assigned == 0


async def test_no_binding_while_blind() -> None:
    server = Server()
    extender, cluster = replica(server, {"a": 3})
    cluster._pods_watch._lost_s = time.monotonic() - 20
    assert "watch of Pods is interrupted" in (await extender.bind(binding("u", "a")))["Error"]
    assert filtered(extender, arguments("u", "a"))["NodeNames"] == ["a"]


async def test_unknown_nodes_may_be_left_to_others() -> None:
    extender, cluster = replica(Server(), {}, open_when_unknown=True)
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
