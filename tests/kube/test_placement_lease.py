"""The placement Lease in thousands of orders of events: no binding ever exceeds what its node had published.

An agent lowers and raises its number all the time, extenders bind (or a plain scheduler does, and the API server asks
an extender), Pods end, watches lag, one extender is replaced by a fresh one. Who is next is drawn, so a seed is a scene
that can be seen again. The controls show that the same scenes do go wrong without the placement Lease.
"""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from carico_agent.kube.client import Object
from carico_agent.kube.errors import KubeError, Refused, Unreachable
from carico_agent.kube.names import RESOURCE
from carico_agent.kube.placement_lease import Claim, LeaseRecord, Offer, PlacementLeases, lease_record
from carico_agent.kube.pods import facts
from carico_agent.publish.board import StatusBoard
from carico_agent.publish.node_draft import NodeConfig
from carico_agent.publish.node_mirror import NodeFacts
from carico_agent.publish.node_publisher import NodePublisher
from carico_agent.publish.status import Status
from carico_agent.publish.throttle import ThrottleConfig
from carico_agent.schedule.cluster import Cluster
from carico_agent.schedule.extender import Extender, ExtenderConfig
from carico_agent.schedule.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.schedule.published import read_heartbeat, read_node
from tests.kube.small_server import SmallServer

STEPS = 60
LENIENT = PodCapacity(PodCapacitySettings(starting_ratio=1.0))


class Scene:
    """One node with its agent, and whoever binds Pods to it."""

    def __init__(self, seed: int, lease: bool = True) -> None:
        self.random = random.Random(seed)
        self.server = SmallServer(self.pause, self.random)
        self.server.lose = 0.02
        self.server.watchers.append(self.judge)
        self.tasks: list[asyncio.Task[None]] = []
        self.here: set[str] = set()
        self.places = self.amount = 0
        self.over: list[str] = []
        self.shut: list[str] = []
        self.by_extenders = False
        self.exact = True
        self.bindings = self.refused = 0
        self.board = StatusBoard(ttl_s=3600.0)
        client: Any = self.server
        config = NodeConfig("a", lease_namespace="carico" if lease else "", throttle=ThrottleConfig(hold_s=0.0))
        self.agent = NodePublisher(client, self.board, config)
        self.agent.mirror.pods_synced.set()
        self.agent.mirror.change_node(False, NodeFacts("a"))
        self.watch(lambda thing: self.agent_receives(thing))
        self.extenders = [self.extender(), self.extender()]

    async def pause(self) -> None:
        for _ in range(self.random.choice((0, 1, 1, 2, 5, 20))):
            await asyncio.sleep(0)

    def watch(self, receive: Callable[[Object], None], leases: bool = False) -> None:
        """Everything in order, later."""
        queue: asyncio.Queue[Object] = asyncio.Queue()
        (self.server.lease_watchers if leases else self.server.watchers).append(queue.put_nowait)

        async def deliver() -> None:
            while True:
                thing = await queue.get()
                await self.pause()
                receive(thing)

        self.tasks.append(asyncio.create_task(deliver()))

    def judge(self, thing: Object) -> None:
        """In the order of the server's own writes."""
        if "spec" not in thing:
            self.places = int(json.loads(thing["metadata"]["annotations"]["carico.dev/status"])["places"])
            self.amount = int(thing["status"]["allocatable"][RESOURCE])
            if self.exact and self.amount < len(self.here):
                self.over.append(f"{len(self.here)} Pods are here and hold one each, {self.amount} are published")
            return
        uid = thing["metadata"]["uid"]
        if thing["status"].get("phase") == "Succeeded":
            self.here.discard(uid)
        elif uid not in self.here:
            self.here.add(uid)
            self.bindings += 1
            if len(self.here) > self.amount or (self.by_extenders and len(self.here) > self.places):
                self.over.append(f"{uid}: {len(self.here)} Pods, {self.places} places, {self.amount} of the resource")

    def agent_receives(self, thing: Object) -> None:
        if "spec" in thing:
            pod = facts(thing, RESOURCE)
            self.agent.mirror.change_pod(pod.finished, pod)

    def extender(self) -> Extender:
        """A fresh one: it knows what a list shows, and sees what changes. Every second one watches no Leases."""
        client: Any = self.server
        watches = self.random.random() < 0.5
        cluster = Cluster(client, RESOURCE, "carico" if watches else "")
        if cluster.watches.leases is not None:
            cluster.heartbeats_listed([read_heartbeat(lease) for lease in self.server.leases.values()])
            self.watch(lambda lease: cluster.heartbeat_changed(False, read_heartbeat(lease)), leases=True)
            cluster.watches.leases.synced.set()
        cluster.nodes_listed([read_node(as_node(node), resource=RESOURCE) for node in self.server.nodes.values()])
        listed = [facts(pod, RESOURCE) for pod in self.server.pods.values()]
        cluster.pods_listed([pod for pod in listed if pod.node and not pod.finished])
        for watch in (cluster.watches.nodes, cluster.watches.pods):
            watch.synced.set()
            watch._lost_s = None

        def receive(thing: Object) -> None:
            if "spec" in thing:
                pod = facts(thing, RESOURCE)
                cluster.pod_changed(pod.finished, pod)
            else:
                cluster.node_changed(False, read_node(as_node(thing), resource=RESOURCE))

        self.watch(receive)
        return Extender(client, cluster, LENIENT, ExtenderConfig(resource=RESOURCE))

    # ---- who does what

    async def change_the_number(self) -> None:
        for _ in range(STEPS):
            report(self, self.random.randrange(1, 12) + 0.5)
            await publish(self)
            for _ in range(self.random.randrange(6)):
                await self.pause()

    async def bind_by_extender(self, number: int) -> None:
        for n in range(STEPS):
            self.pod(uid := f"{number}-{n}")
            extender = self.random.choice(self.extenders)
            result = await extender.bind({"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"})
            self.refused += bool(result["Error"])
            await self.pause()

    async def bind_as_a_plain_scheduler(self, number: int) -> None:
        """It believes its watch, and counts its own Pods at once, as kube-scheduler does."""
        for n in range(STEPS):
            self.pod(uid := f"{number}-{n}")
            await self.pause()
            if len(self.taken) < self.seen_amount:
                self.taken.add(uid)
                await self.pause()
                try:
                    await self.server.bind(uid, "a")
                except KubeError:
                    self.refused += 1
                    self.taken.discard(uid)
            await self.pause()

    def pod(self, uid: str) -> None:
        asks = {"resources": {"requests": {RESOURCE: "1"}}}
        self.server.pods[uid] = {
            "metadata": {"uid": uid, "name": uid},
            "spec": {"containers": [asks]},
            "status": {"phase": "Pending"},
        }

    async def end_pods(self) -> None:
        while True:
            await self.pause()
            await self.pause()
            if self.here and self.random.random() < 0.5:
                self.server.end(self.random.choice(sorted(self.here)))

    async def replace_extenders(self) -> None:
        while True:
            for _ in range(200):
                await self.pause()
            self.extenders[self.random.randrange(2)] = self.extender()

    async def play(self, *binders: Any) -> "Scene":
        background = [asyncio.create_task(self.end_pods()), asyncio.create_task(self.replace_extenders())]
        await asyncio.gather(self.change_the_number(), *binders)
        for task in background:
            task.cancel()
        await self.calm_down()
        for task in self.tasks:
            task.cancel()
        return self

    async def calm_down(self) -> None:
        """No more trouble, no more Pods, and room: whoever binds must find it."""
        self.server.lose = 0.0
        for uid in sorted(self.here):
            self.server.end(uid)
        report(self, 99.5)
        for _ in range(2):  # the first may still wait for Pods that never come
            await publish(self)
        for _ in range(300):
            await self.pause()
        for number, extender in enumerate(self.extenders):
            self.pod(uid := f"late-{number}")
            result = await extender.bind({"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"})
            if result["Error"]:
                self.shut.append(result["Error"])

    async def with_extenders(self) -> "Scene":
        self.by_extenders = True
        return await self.play(*(self.bind_by_extender(n) for n in range(4)))

    async def with_a_plain_scheduler(self, webhook: bool = True) -> "Scene":
        self.taken: set[str] = set()
        self.seen_amount = 0

        def receive(thing: Object) -> None:
            if "spec" not in thing:
                self.seen_amount = int(thing["status"]["allocatable"][RESOURCE])
            elif thing["status"].get("phase") == "Succeeded":
                self.taken.discard(thing["metadata"]["uid"])

        self.watch(receive)
        self.exact = webhook
        if webhook:
            self.server.webhook = lambda name, uid, node: self.random.choice(self.extenders).admit("d", name, uid, node)
        return await self.play(*(self.bind_as_a_plain_scheduler(n) for n in range(4)))


def as_node(patched: Object) -> Object:
    return {**patched, "metadata": {**patched["metadata"], "name": "a"}}


@pytest.mark.parametrize("block", range(10))
async def test_extenders_never_exceed_a_changing_number(block: int) -> None:
    scenes = [await Scene(100 * block + seed).with_extenders() for seed in range(10)]
    assert [line for scene in scenes for line in scene.over + scene.shut] == []
    assert sum(scene.bindings for scene in scenes) > 100 < sum(scene.refused for scene in scenes)


@pytest.mark.parametrize("block", range(10))
async def test_a_plain_scheduler_never_exceeds_it_with_the_admission_webhook(block: int) -> None:
    scenes = [await Scene(100 * block + seed).with_a_plain_scheduler() for seed in range(10)]
    assert [line for scene in scenes for line in scene.over + scene.shut] == []
    assert sum(scene.bindings for scene in scenes) > 100 < sum(scene.refused for scene in scenes)


async def test_without_the_agents_lease_both_exceed_it() -> None:
    """The controls: an agent that lowers its number without the placement Lease, a scheduler nobody asks about."""
    extenders = [await Scene(seed, lease=False).with_extenders() for seed in range(10)]
    plain = [await Scene(seed).with_a_plain_scheduler(webhook=False) for seed in range(10)]
    assert all(sum(len(scene.over) for scene in scenes) > 10 for scenes in (extenders, plain))


async def test_a_number_does_not_fall_below_who_is_on_the_way() -> None:
    """Two have claimed; one comes, the other never does and is forgotten."""
    scene, now_s = Scene(0), 1000.0
    scene.server.lose = 0.0
    scene.agent.writer._clock = scene.agent.writer._lease._clock = lambda: now_s
    leases, client = PlacementLeases(scene.server, "carico"), scene.server  # type: ignore[arg-type]
    report(scene, 8.5)
    await publish(scene)
    found: LeaseRecord | None = await leases.read("a")
    assert found is not None and found.offered == Offer(8, 8)
    for uid in ("comes", "never"):
        found = await leases.claim("a", found, {**found.claims, uid: Claim(1.0, 1)})
        assert found is not None
    report(scene, 0.5)
    await publish(scene)
    assert (scene.places, scene.amount) == (2, 2)
    assert (await leases.read("a")).offered == Offer(0, 0)  # but nobody else gets in
    scene.pod("comes")
    await client.bind("comes", "a")
    scene.agent_receives(client.pods["comes"])
    now_s += 5.0
    assert reason(scene) == "2 Pods were on their way"
    await publish(scene)
    assert (scene.places, scene.amount) == (2, 2)
    now_s += 15.0
    await publish(scene)
    assert (scene.places, scene.amount) == (0, 1)  # one is here and holds one; there is no place for another
    now_s += 5.0
    assert reason(scene) == "the annotations were changed"  # no watch here
    for task in scene.tasks:
        task.cancel()


async def test_who_is_on_the_way_counts_also_after_a_write_that_failed() -> None:
    """The Lease is lowered, then the write of the Node is lost: the next one must not forget who had claimed."""
    scene = Scene(0)
    scene.server.lose = 0.0
    leases = PlacementLeases(scene.server, "carico")  # type: ignore[arg-type]
    report(scene, 8.5)
    await publish(scene)
    await leases.claim("a", await leases.read("a"), {uid: Claim(1.0, 1) for uid in ("one", "two")})
    stored = scene.server._store

    async def lose_nodes(where: dict[str, Object], name: str, body: Object) -> Object:
        if where is scene.server.nodes:
            raise Unreachable("the request was lost")
        return await stored(where, name, body)

    scene.server._store = lose_nodes  # type: ignore[method-assign]
    report(scene, 0.5)
    await publish(scene)
    scene.server._store = stored  # type: ignore[method-assign]
    await publish(scene)
    assert (scene.places, scene.amount) == (2, 2)
    for task in scene.tasks:
        task.cancel()


async def test_made_up_claims_do_not_raise_the_number() -> None:
    """Fifty claims in the Lease of a node that offers 4: it never publishes more than it did before, and Pods that are
    bound elsewhere do not count at all."""
    scene, now_s = Scene(0), 1000.0
    scene.server.lose = 0.0
    scene.agent.writer._clock = scene.agent.writer._lease._clock = lambda: now_s
    leases = PlacementLeases(scene.server, "carico")  # type: ignore[arg-type]
    report(scene, 4.5)
    await publish(scene)
    await leases.claim("a", await leases.read("a"), {f"u{n}": Claim(1.0, 1) for n in range(50)})
    report(scene, 3.5)
    await publish(scene)
    assert (scene.places, scene.amount) == (4, 4)
    for uid in ("one", "two"):
        scene.pod(uid)
    scene.server.pods["two"]["spec"]["nodeName"] = "b"
    claims = {uid: Claim(2.0, 1, f"d/{uid}") for uid in ("one", "two")}
    await leases.claim("a", await leases.read("a"), claims)
    now_s += 5.0
    report(scene, 0.5)
    await publish(scene)
    assert (scene.places, scene.amount) == (1, 1)  # "one" waits and may come, "two" runs on b
    for task in scene.tasks:
        task.cancel()


def report(scene: Scene, slots: float) -> None:
    scene.board.publish(
        Status(
            time="2999-01-01T00:00:00.000Z",
            pod_capacity=slots,
            slots=slots,
            mode="measured",
            low=0.0,
            limiting="cpu",
        )
    )


async def publish(scene: Scene) -> None:
    """As the agent does when there is a reason."""
    writer = scene.agent.writer
    writer.observe()
    await writer.write(writer.draft())


def reason(scene: Scene) -> str | None:
    writer = scene.agent.writer
    writer.observe()
    return writer.reason(writer.draft())


async def test_without_the_right_to_write_leases_the_number_is_published(caplog: pytest.LogCaptureFixture) -> None:
    scene, now_s, asked = Scene(0), 1000.0, []
    scene.server.lose = 0.0
    scene.agent.writer._clock = scene.agent.writer._lease._clock = lambda: now_s

    async def refuse(path: str, body: Object) -> Object:
        if "leases" in path:
            asked.append(now_s)
            raise Refused(403, "missing right: x")
        return await SmallServer.patch(scene.server, path, body)

    scene.server.patch = refuse  # type: ignore[method-assign]
    for slots in range(8, 1, -1):
        report(scene, slots + 0.5)
        with caplog.at_level("INFO"):
            await publish(scene)
        assert scene.amount == slots
        now_s += 5.0 + slots % 2
    assert 2 <= len(asked) <= 4  # soon again, then rarely
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert scene.agent.health.well
    for task in scene.tasks:
        task.cancel()


async def test_without_the_namespace_a_claim_says_so() -> None:
    server = SmallServer()

    async def refuse(path: str, body: Object) -> Object:
        raise Refused(404, 'namespaces "carico" not found on the API server')

    server.post = refuse  # type: ignore[method-assign]
    with pytest.raises(Refused, match='namespaces "carico" not found'):
        await PlacementLeases(server, "carico").claim("a", LeaseRecord(), {"u": Claim(1.0)})  # type: ignore[arg-type]


MALFORMED = (
    "",
    "{",
    "[]",
    "7",
    '{"u":1}',
    '{"u":[1]}',
    '{"u":[1,1e999]}',
    '{"u":[1e999,1]}',
    '{"u":[1,-1]}',
    '{"u":["x",1]}',
    "[" * 100_000,
    f'{{"u":[1,{"9" * 5000}]}}',
    '{"time":"x"}',
    '{"time":"2024-01-01T00:00:00Z","ttl_s":1e999,"places":-1,"resource":2}',
    '{"time":"2024-01-01T00:00:00Z","ttl_s":9,"places":"8","resource":2}',
)


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_annotations_count_as_none(text: str) -> None:
    notes = {"carico.dev/claims": text, "carico.dev/offer": text}
    read = lease_record({"metadata": {"resourceVersion": "7", "annotations": notes}})
    assert (read.version, read.offered, read.claims) == ("7", Offer(), {})
