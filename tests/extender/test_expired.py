"""The extended resource of a killed agent's node: lowered to what is held, once, and never by mistake."""

import time
from typing import Any

import pytest

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.expired import CALM_S, ExpiredNodes
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import Offer, PlacementLeases
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.net.times import boottime_s, rfc3339
from tests.kube.small_server import SmallServer


class Server(SmallServer):
    clock_skew_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Object] = []

    async def post(self, path: str, body: Object) -> Object:
        if path.endswith("/events"):
            self.events.append(body)
            return body
        return await super().post(path, body)


async def silent_node(server: Server, age_s: float, leads: bool = True) -> ExpiredNodes:
    """Node a offers 8, one Pod there holds 2, and its agent's last heartbeat is so old."""
    client: Any = server
    cluster = Cluster(client, RESOURCE)
    cluster.nodes_listed([PublishedNode("a", 8.0, age_s, 150.0, 64.0, 8)])
    held: Object = {"containers": [{"resources": {"requests": {RESOURCE: "2"}}}], "nodeName": "a"}
    pod = {"metadata": {"uid": "u", "name": "u"}, "spec": held, "status": {"phase": "Running"}}
    cluster.pods_listed([facts(pod, RESOURCE)])
    for watch in (cluster.watches.nodes, cluster.watches.pods):
        watch.synced.set()
        watch._lost_s = None
    await PlacementLeases(client, "carico").offer("a", Offer(8, 8), 150.0, [], "agent")
    server.leases["a"]["spec"]["renewTime"] = rfc3339(time.time() - age_s, "microseconds")
    return ExpiredNodes(client, cluster, RESOURCE, "carico", lambda: leads)


async def rounds(expired: ExpiredNodes, count: int = 3) -> None:
    for number in range(count):
        await expired.round(boottime_s() + CALM_S + 5.0 * number)


async def test_what_nobody_holds_is_taken_back_and_logged_once() -> None:
    server = Server()
    await rounds(await silent_node(server, 200.0))
    assert server.nodes["a"]["status"] == {"capacity": {RESOURCE: "2"}, "allocatable": {RESOURCE: "2"}}
    (event,) = server.events
    assert (event["reason"], event["involvedObject"]["name"]) == ("CaricoAgentSilent", "a")
    assert event["message"] == f"no heartbeat of carico's agent: {RESOURCE} lowered from 8 to 2"


async def test_a_living_node_is_left_alone() -> None:
    server = Server()
    await rounds(await silent_node(server, 30.0))
    assert server.nodes == {}


async def test_a_heartbeat_that_the_watch_has_not_shown_counts() -> None:
    server = Server()
    expired = await silent_node(server, 200.0)
    server.leases["a"]["spec"]["renewTime"] = rfc3339(digits="microseconds")
    await rounds(expired)
    assert server.nodes == {}


@pytest.mark.parametrize("wrong", ["watch", "clock", "calm"])
async def test_nothing_is_done_while_our_own_view_may_be_wrong(wrong: str) -> None:
    server = Server()
    expired = await silent_node(server, 200.0)
    if wrong == "calm":
        await expired.round(boottime_s() + 1.0)
    else:
        server.clock_skew_s = 200.0 if wrong == "clock" else 0.0
        expired._cluster.watches.nodes._lost_s = boottime_s() - 10.0 if wrong == "watch" else None
        await rounds(expired)
    assert server.nodes == {}


async def test_only_the_leader_does_it() -> None:
    server = Server()
    await rounds(await silent_node(server, 200.0, leads=False))
    assert server.nodes == {}


async def test_one_of_two_leads() -> None:
    server = Server()
    client: Any = server
    first, second = (LeaderLease(client, "carico", "carico-extender", name) for name in ("1", "2"))
    assert [await first.hold(0.0), await second.hold(0.0), await first.hold(10.0)] == [True, False, True]
    assert not await second.hold(40.0), "renewed at 10, and the second sees that only now"
    assert [await second.hold(71.0), await first.hold(72.0)] == [True, False]
