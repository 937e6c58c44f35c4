"""The API server's question about a binding, without HTTP."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender.extender import Extender
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import Offer, PlacementLeases
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.net.times import boottime_s
from tests.extender.team import extender_of, start
from tests.kube.small_server import SmallServer


def extender(server: SmallServer, amount: int | None, namespace: str = "", **config: Any) -> Extender:
    nodes = [PublishedNode("a", 8.0, 0.0, 100.0, 64.0, amount)]
    return extender_of(server, nodes, resource=RESOURCE, lease_namespace=namespace, **config)[0]


def asking(server: SmallServer, uid: str, places: int) -> None:
    asks = {"resources": {"requests": {RESOURCE: str(places)}}}
    server.pods[uid] = {"metadata": {"uid": uid, "name": uid}, "spec": {"containers": [asks]}, "status": {}}


def question(uid: str, **more: Any) -> Object:
    binding = {"kind": "Binding", "metadata": {"name": uid, "namespace": "d", "uid": uid}, "target": {"name": "a"}}
    request = {"uid": f"review of {uid}", "namespace": "d", "name": uid, "object": binding, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_a_place_is_held_for_who_is_let_in() -> None:
    server = SmallServer()
    one = extender(server, amount=3)
    for uid in "123":
        asking(server, uid, 1)
    asking(server, "two", 2)
    assert await one.webhook.review(question("1")) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "review of 1", "allowed": True},
    }
    assert (await one.webhook.review(question("2")))["response"]["allowed"]
    why = {"code": 409, "reason": "Conflict", "message": f"carico: a: no room: 3 {RESOURCE}, 2 held"}
    refused = (await one.webhook.review(question("two")))["response"]
    assert refused == {"uid": "review of two", "allowed": False, "status": why}
    assert (await one.webhook.review(question("2")))["response"]["allowed"]  # again: its own place does not count
    assert (await one.webhook.review(question("3")))["response"]["allowed"]
    assert one.webhook.refused == 1


async def test_a_waiting_pod_that_the_watch_has_shown_is_not_asked_about() -> None:
    server = SmallServer()
    one = extender(server, amount=3)
    for uid in ("listed", "new", "renamed"):
        asking(server, uid, 1)
        server.pods[uid]["metadata"]["namespace"] = "d"
    one.cluster.pods_listed([facts(server.pods["listed"], RESOURCE)])
    one.cluster.pod_changed(False, facts(server.pods["new"], RESOURCE))
    for uid in ("listed", "new"):
        assert (await one.webhook.review(question(uid)))["response"]["allowed"]
    assert "GET pods" not in server.requests
    # A review may name anything: the watch's word counts for a Pod of that name only.
    server.pods["other"] = server.pods["renamed"]
    one.cluster.pod_changed(False, facts(server.pods["renamed"], RESOURCE))
    asked = question("renamed")
    asked["request"]["object"]["metadata"]["name"] = "other"
    assert (await one.webhook.review(asked))["response"]["allowed"]
    assert server.requests.count("GET pods") == 1


async def test_a_pod_that_is_bound_or_gone_waits_no_more() -> None:
    server = SmallServer()
    cluster = extender(server, amount=3).cluster
    for uid in "12":
        asking(server, uid, 1)
        cluster.pod_changed(False, facts(server.pods[uid], RESOURCE))
    assert cluster.waiting("1") is not None and len(cluster.ledger) == 0
    cluster.pod_changed(True, facts(server.pods["1"], RESOURCE))
    await server.bind("2", "a")
    cluster.pod_changed(False, facts(server.pods["2"], RESOURCE))
    assert (cluster.waiting("1"), cluster.waiting("2"), cluster.bound_to("2")) == (None, None, "a")


async def test_who_asks_for_nothing_is_none_of_our_business() -> None:
    server = SmallServer()
    one = extender(server, amount=0)
    assert (await one.webhook.review(question("plain")))["response"]["allowed"]
    assert (await one.webhook.review(question("plain", dryRun=True)))["response"]["allowed"]
    assert server.leases == {}


async def test_what_our_own_bind_has_refused_stays_refused() -> None:
    """kube-scheduler with `ignorable: true` binds by itself then. Whatever the Pod asks for, until there is room."""
    server = SmallServer()
    nodes = [PublishedNode("a", 0.5, 0.0, 100.0, 64.0, 5)]
    one, cluster = extender_of(server, nodes, resource=RESOURCE)
    asking(server, "asks", 1)
    for uid in ("asks", "plain"):
        server.pods.setdefault(uid, {"metadata": {"uid": uid, "name": uid}, "spec": {}, "status": {}})
        binding = {"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"}
        assert "no room: 0.5 places" in (await one.binder.bind(binding))["Error"]
        refused = (await one.webhook.review(question(uid)))["response"]
        assert "no room: 0.5 places" in refused["status"]["message"]
    assert (await one.webhook.review(question("another")))["response"]["allowed"]
    cluster.node_changed(False, PublishedNode("a", 8.5, 0.0, 100.0, 64.0, 5))
    assert (await one.webhook.review(question("plain")))["response"]["allowed"]


async def test_a_dry_run_takes_no_place() -> None:
    server = SmallServer()
    asking(server, "1", 1)
    assert (await extender(server, amount=0).webhook.review(question("1", dryRun=True)))["response"]["allowed"]
    assert server.leases == {}


async def test_an_offer_that_nobody_renews_expires() -> None:
    server = SmallServer()
    leases = PlacementLeases(server, "carico")  # type: ignore[arg-type]
    for uid in "12":
        asking(server, uid, 1)
    await leases.offer("a", Offer(0, 0), 150.0, [])
    one = extender(server, 3, "carico")
    tasks = start(one)
    await asyncio.sleep(0.05)
    assert not (await one.webhook.review(question("1")))["response"]["allowed"]
    await leases.offer("a", Offer(0, 0), -1.0, [])
    assert (await one.webhook.review(question("2")))["response"]["allowed"]
    for task in tasks:
        task.cancel()


async def test_what_cannot_be_known_is_neither_allowed_nor_refused() -> None:
    """Then the webhook's failurePolicy decides; an extender in trouble must not stop a cluster that says Ignore."""
    server = SmallServer()
    asking(server, "1", 1)
    one = extender(server, amount=3)
    one.cluster.watches.pods._lost_s = boottime_s() - 20
    with pytest.raises(KubeError, match="watch of Pods is interrupted"):
        await one.webhook.review(question("1"))
    server.lose = 1.0
    with pytest.raises(KubeError, match="lost"):
        await one.webhook.review(question("2"))


KEYS = st.sampled_from(["apiVersion", "kind", "request", "object", "uid", "metadata", "target", "name", "dryRun", "x"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
)


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "request"]), anything))
async def test_what_is_no_review_of_a_binding_is_refused(asked: Object) -> None:
    with pytest.raises(ValueError, match="an AdmissionReview of a Binding is expected"):
        await extender(SmallServer(), amount=3).webhook.review(asked)


@given(anything, anything, anything, anything)
async def test_odd_parts_do_no_harm(meta: Any, name: Any, target: Any, namespace: Any) -> None:
    asked = question("1")
    asked["request"] |= {
        "namespace": namespace,
        "name": name,
        "object": {"kind": "Binding", "metadata": meta, "target": {"name": target}},
    }
    try:
        answer = await extender(SmallServer(), amount=3).webhook.review(asked)
    except (ValueError, KubeError):
        return
    assert answer["response"]["uid"] == "review of 1"


@pytest.mark.parametrize("part", ["namespace", "name", "node"])
@pytest.mark.parametrize("text", ["../x", "a/b", "", "A", "a b", "a?x=1", "-a", "a" * 254])
async def test_names_that_are_none_do_not_become_addresses(part: str, text: str) -> None:
    asked = question("1")
    binding = asked["request"]["object"]
    where = {"namespace": asked["request"], "name": binding["metadata"], "node": binding["target"]}[part]
    where["name" if part == "node" else part] = text
    if part == "name":
        asked["request"]["name"] = text
    with pytest.raises(ValueError, match="an AdmissionReview of a Binding is expected"):
        await extender(SmallServer(), amount=3).webhook.review(asked)


async def test_pods_that_run_elsewhere_get_no_place() -> None:
    """Fifty reviews of Pods that run on node b, for node a which offers 4: whoever can connect may send them."""
    server = SmallServer()
    one = extender(server, amount=4)
    for number in range(50):
        asking(server, uid := f"p{number}", 1)
        server.pods[uid]["spec"]["nodeName"] = "b"
        if number % 2:  # shown by the watch, and asked about before: no request is needed to know
            one.cluster.pod_changed(False, facts(server.pods[uid], RESOURCE))
            one.candidates.filter({"Pod": server.pods[uid], "NodeNames": ["a"]})
    answers = [(await one.webhook.review(question(f"p{number}")))["response"] for number in range(50)]
    assert [answer["allowed"] for answer in answers] == [False] * 50
    assert answers[0]["status"]["message"] == "carico: a: the Pod is bound to b already"
    assert server.leases == {}


async def test_admissions_are_limited_per_node_and_second() -> None:
    server = SmallServer()
    one = extender(server, amount=1000, admissions_per_s=10.0)
    for number in range(30):
        asking(server, f"p{number}", 1)
    answers = [(await one.webhook.review(question(f"p{number}")))["response"] for number in range(30)]
    assert 10 <= sum(answer["allowed"] for answer in answers) < 30
    assert "too many Pods at once" in next(a for a in answers if not a["allowed"])["status"]["message"]


async def test_one_pod_cannot_close_all_nodes() -> None:
    """200 reviews of one waiting Pod, each for another node: whoever reaches the webhook may send them. Before, every
    node was full for `bound_within_s`."""
    server = SmallServer()
    nodes = [PublishedNode(f"n{number}", 1.0, 0.0, 100.0, 64.0, 1) for number in range(200)]
    one = extender_of(server, nodes, resource=RESOURCE, lease_namespace="carico")[0]
    tasks = start(one)
    await asyncio.sleep(0.05)
    asking(server, "evil", 1)
    answers = []
    for node in nodes:
        asked = question("evil")
        asked["request"]["object"]["target"]["name"] = node.name
        answers.append((await one.webhook.review(asked))["response"])
    assert sum(answer["allowed"] for answer in answers) == 3
    assert "may be on its way to 3 other nodes" in answers[-1]["status"]["message"]
    good = 0
    for number, node in enumerate(nodes):
        asking(server, uid := f"good{number}", 1)
        asked = question(uid)
        asked["request"]["object"]["target"]["name"] = node.name
        good += (await one.webhook.review(asked))["response"]["allowed"]
    assert good == 197
    again = question("evil")
    again["request"]["object"]["target"]["name"] = nodes[0].name
    assert (await one.webhook.review(again))["response"]["allowed"]  # a node that it is on its way to
    for task in tasks:
        task.cancel()
