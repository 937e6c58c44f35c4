"""The taint of full nodes on a small server: when it is written and when it goes. On a real one: test_rebalance.py."""

from typing import Any

from carico_agent.extender.full_nodes import FullNodes, TaintTimes
from carico_agent.extender.node_marks import read_marks
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.node_taint import FULL
from carico_agent.lib.net.times import boottime_s
from tests.extender.team import extender_of
from tests.kube.small_server import SmallServer


class Nodes:
    """Stands where a client would: one node."""

    def __init__(self) -> None:
        self.tainted, self.writes = False, 0

    @property
    def node(self) -> Object:
        taints = [{"key": "other"}, *([{"key": FULL}] if self.tainted else [])]
        return {"metadata": {"name": "a", "resourceVersion": str(self.writes)}, "spec": {"taints": taints}}

    async def get(self, path: str, params: Object) -> Object:
        assert (path, params) == ("/api/v1/nodes", {"fieldSelector": "metadata.name=a"})
        return {"items": [self.node]}

    async def request(self, method: str, path: str, body: Object, headers: dict[str, str]) -> Object:
        assert (method, headers) == ("PATCH", {"Content-Type": "application/merge-patch+json"})
        assert (path, body["metadata"]["resourceVersion"]) == ("/api/v1/nodes/a", str(self.writes))
        keys = [one["key"] for one in body["spec"]["taints"]]
        self.tainted, self.writes = keys == ["other", FULL], self.writes + 1
        return self.node


class Scene:
    def __init__(self, leads: bool = True) -> None:
        self.server = Nodes()
        self.cluster = extender_of(SmallServer(), [])[1]
        client: Any = self.server
        self.full = FullNodes(client, self.cluster, lambda: leads, TaintTimes(after_s=60.0, until_s=30.0))
        self.full.marks.listed([read_marks({"metadata": {"name": "a"}})])
        self.start_s = boottime_s()

    async def at(self, seconds: float, slots: float, ttl_s: float = 1e9) -> bool:
        self.cluster.node_changed(False, PublishedNode("a", slots, 0.0, ttl_s, 64.0))
        await self.full.round(self.start_s + seconds)
        return self.server.tainted


async def test_a_node_is_tainted_when_it_has_been_full_for_long() -> None:
    scene = Scene()
    assert not await scene.at(0, 0.9)
    assert not await scene.at(59, 0.9)
    assert await scene.at(60, 0.9)
    assert await scene.at(61, 0.9)
    assert scene.server.writes == 1


async def test_a_number_that_moves_by_one_pod_does_not_make_it_flap() -> None:
    scene = Scene()
    for second in range(0, 300, 10):
        assert not await scene.at(second, 0.9 if second % 20 else 1.1)
    await scene.at(300, 0.5)
    assert await scene.at(360, 0.5)
    for second in range(370, 600, 10):
        assert await scene.at(second, 1.9 if second % 20 else 2.1)
    await scene.at(600, 2.1)
    assert await scene.at(629, 2.1)
    assert not await scene.at(630, 2.1)
    assert scene.server.writes == 2


async def test_a_number_that_is_no_longer_valid_takes_it_away_at_once() -> None:
    scene = Scene()
    await scene.at(0, 0.5)
    assert await scene.at(60, 0.5)
    assert not await scene.at(61, 0.5, ttl_s=10.0)
    assert not await scene.at(200, 0.5, ttl_s=10.0)


async def test_the_end_takes_all_away_that_is_there() -> None:
    scene = Scene()
    await scene.at(0, 0.5)
    assert await scene.at(60, 0.5)
    await scene.full.clear()
    assert not scene.server.tainted
    follower = Scene(leads=False)
    follower.full.marks.listed([read_marks({"metadata": {"name": "a"}, "spec": {"taints": [{"key": FULL}]}})])
    await follower.full.clear()
    assert follower.server.writes == 0
