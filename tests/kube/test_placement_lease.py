"""The placement Lease in thousands of orders of events: no binding ever exceeds what its node had published.

An agent lowers and raises its number all the time, extenders bind (or a plain scheduler does, and the API server asks
an extender), Pods end, watches lag, answers get lost, extenders are cut off from the API server, and killed and
replaced, the leader too. Who is next is drawn, so a seed is a scene that can be seen again; minutes pass at once
(tests/virtual_time.py). The controls show that the same scenes do go wrong without the placement Lease.
"""

import asyncio
import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender import Extender
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.placement.placement import Placement
from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.extender.published import PublishedNode, read_lease, read_node
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable
from carico_agent.lib.kube.leader import leader_record
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import (
    LEADER_LEASE,
    Acknowledgement,
    Offer,
    PlacedPod,
    PlacementLeases,
    lease_record,
)
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import NodeConfig
from carico_agent.node.publish.node_mirror import NodeFacts
from carico_agent.node.publish.node_publisher import NodePublisher
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.throttle import ThrottleConfig
from tests.kube.small_server import SmallServer
from tests.virtual_time import run

SCENES = int(os.environ.get("CARICO_SCENES", "2"))
"""Per block; `make fuzz` plays more."""
SCENE_S = 240.0
"""How long a scene lasts [s]: some leaders."""
LENIENT = PodCapacity(PodCapacitySettings(starting_ratio=1.0))


class Line:
    """One process's way to the API server: requests, and watches that show everything in order, later."""

    def __init__(self, scene: "Scene") -> None:
        self._scene = scene
        self.open = asyncio.Event()
        self.open.set()
        self.tasks: list[asyncio.Task[None]] = []

    def __getattr__(self, verb: str) -> Any:
        request = getattr(self._scene.server, verb)

        async def send(*arguments: Any) -> Object:
            if not self.open.is_set():
                await asyncio.sleep(1.0)
                raise Unreachable("cut off")
            answer: Object = await request(*arguments)
            if not self.open.is_set():
                raise Unreachable("cut off before the answer came")
            return answer

        return send

    def watch(self, receive: Callable[[Object], None], leases: bool = False) -> None:
        queue: asyncio.Queue[Object] = asyncio.Queue()
        server = self._scene.server
        (server.lease_watchers if leases else server.watchers).append(queue.put_nowait)

        async def deliver() -> None:
            while True:
                things = [await queue.get()]
                await asyncio.sleep(self._scene.drawn_s(0.05, 3.0))
                await self.open.wait()
                while not queue.empty():
                    things.append(queue.get_nowait())
                for thing in things:
                    receive(thing)

        self.start(deliver())

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work))

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


class Scene:
    """One node with its agent, and whoever binds Pods to it."""

    def __init__(self, seed: int, lease: bool = True) -> None:
        self.random = random.Random(seed)
        self.server = SmallServer(self.pause, self.random)
        self.server.lose = 0.02
        self.server.watchers.append(self.judge)
        self.here: set[str] = set()
        self.places = self.amount = 0
        self.over: list[str] = []
        self.shut: list[str] = []
        self.by_extenders = False
        self.exact = True
        self.bindings = self.refused = self.falls = 0
        self.latest = LatestStatus(ttl_s=1e9)
        client: Any = self.server
        config = NodeConfig("a", lease_namespace="carico" if lease else "", throttle=ThrottleConfig(hold_s=0.0))
        self.agent = NodePublisher(client, self.latest, config, clock=lambda: boottime_s())
        self.agent.mirror.pods_synced.set()
        self.agent.mirror.change_node(False, NodeFacts("a"))
        self.agents_line = Line(self)
        self.agents_line.watch(lambda thing: self.agent_receives(thing))
        self.lines: list[Line] = []
        self.extenders: list[Extender] = []
        for _ in range(2):
            self.add_extender()

    def drawn_s(self, usual: float, seldom: float) -> float:
        """Mostly short, now and then long."""
        return self.random.uniform(0.0, seldom if self.random.random() < 0.02 else usual)

    async def pause(self) -> None:
        await asyncio.sleep(self.drawn_s(0.02, 1.0))

    def judge(self, thing: Object) -> None:
        """In the order of the server's own writes."""
        if "spec" not in thing:
            places = int(json.loads(thing["metadata"]["annotations"]["carico.dev/status"])["places"])
            self.falls += places < self.places
            self.places = places
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

    def add_extender(self, at: int | None = None) -> None:
        """A fresh one: it knows what a list shows, and sees what changes."""
        line: Any = Line(self)
        config = ExtenderConfig(resource=RESOURCE)
        placement = Placement(line, config)
        cluster = Cluster(line, RESOURCE, "carico", placement)
        extender = Extender(line, cluster, LENIENT, config, placement)
        cluster.leases_listed([read_lease(lease) for lease in self.server.leases.values()])
        line.watch(lambda lease: cluster.lease_changed(False, read_lease(lease)), leases=True)
        cluster.nodes_listed([read_node(as_node(node), resource=RESOURCE) for node in self.server.nodes.values()])
        cluster.pods_listed(
            [pod for pod in (facts(pod, RESOURCE) for pod in self.server.pods.values()) if not pod.finished]
        )
        assert cluster.watches.leases is not None and extender.replicas is not None
        for watch in (cluster.watches.nodes, cluster.watches.pods, cluster.watches.leases):
            watch.synced.set()
            watch._lost_s = None

        def receive(thing: Object) -> None:
            if "spec" in thing:
                pod = facts(thing, RESOURCE)
                cluster.pod_changed(pod.finished, pod)
            else:
                cluster.node_changed(False, read_node(as_node(thing), resource=RESOURCE))

        line.watch(receive)
        for work in extender.replica_tasks().values():
            line.start(work())
        line.start(extender.expire_loop())
        if at is None:
            self.lines.append(line)
            self.extenders.append(extender)
        else:
            self.lines[at].end()
            self.lines[at], self.extenders[at] = line, extender

    # ---- who does what

    async def change_the_number(self) -> None:
        end_s = boottime_s() + SCENE_S
        while boottime_s() < end_s:
            report(self, self.random.randrange(1, 12) + 0.5)
            for _ in range(self.random.randrange(1, 3)):
                await publish(self)
                await asyncio.sleep(self.random.uniform(0.0, 2.0))

    async def bind_by_extender(self, number: int) -> None:
        for n in range(10_000):
            self.pod(uid := f"{number}-{n}")
            extender = self.random.choice(self.extenders)
            result = await extender.binder.bind({"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"})
            self.refused += bool(result["Error"])
            await asyncio.sleep(self.random.uniform(0.0, 1.0))

    async def bind_as_a_plain_scheduler(self, number: int) -> None:
        """It believes its watch, and counts its own Pods at once, as kube-scheduler does."""
        for n in range(10_000):
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
            await asyncio.sleep(self.random.uniform(0.0, 1.0))

    def pod(self, uid: str) -> None:
        asks = {"resources": {"requests": {RESOURCE: "1"}}}
        self.server.pods[uid] = {
            "metadata": {"uid": uid, "name": uid, "namespace": "d"},
            "spec": {"containers": [asks]},
            "status": {"phase": "Pending"},
        }

    async def end_pods(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            if self.here and self.random.random() < 0.7:
                self.server.end(self.random.choice(sorted(self.here)))

    async def disturb(self) -> None:
        """Kill an extender, or cut it off for a while: it may lead, and not notice."""
        while True:
            await asyncio.sleep(self.random.uniform(5.0, 80.0))
            at = self.random.randrange(2)
            if self.random.random() < 0.5:
                self.add_extender(at)
                continue
            line, watches = self.lines[at], self.extenders[at].cluster.watches
            line.open.clear()
            watches.pods._lost_s = boottime_s()
            await asyncio.sleep(self.random.uniform(1.0, 40.0))
            line.open.set()
            await asyncio.sleep(4.0)  # what was missed has arrived
            watches.pods._lost_s = None

    async def play(self, *binders: Any) -> "Scene":
        background = [asyncio.create_task(work) for work in (self.end_pods(), self.disturb(), *binders)]
        await self.change_the_number()
        for task in background:
            task.cancel()
        ended = await asyncio.gather(*background, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended  # none has failed meanwhile
        await self.calm_down()
        for line in (self.agents_line, *self.lines):
            line.end()
        return self

    async def calm_down(self) -> None:
        """No more trouble, no more Pods, and room: whoever binds must find it."""
        self.server.lose = 0.0
        for line, extender in zip(self.lines, self.extenders, strict=True):
            line.open.set()
            extender.cluster.watches.pods._lost_s = None
        for uid in sorted(self.here):
            self.server.end(uid)
        report(self, 99.5)
        for _ in range(3):  # the first may still wait for Pods that never come, or for a leader
            await asyncio.sleep(30.0)
            await publish(self)
        await asyncio.sleep(5.0)
        for number, extender in enumerate(self.extenders):
            self.pod(uid := f"late-{number}")
            result = await extender.binder.bind({"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"})
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

        self.agents_line.watch(receive)
        self.exact = webhook
        if webhook:
            self.server.webhook = lambda name, uid, node: self.random.choice(self.extenders).webhook.admit(
                "d", name, uid, node
            )
        return await self.play(*(self.bind_as_a_plain_scheduler(n) for n in range(4)))


async def by_extenders(seed: int, lease: bool = True) -> Scene:
    return await Scene(seed, lease).with_extenders()


async def by_a_plain_scheduler(seed: int, webhook: bool = True) -> Scene:
    return await Scene(seed).with_a_plain_scheduler(webhook)


def as_node(patched: Object) -> Object:
    return {**patched, "metadata": {**patched["metadata"], "name": "a"}}


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_extenders_never_exceed_a_changing_number(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = [run(by_extenders(100 * block + seed), monkeypatch) for seed in range(SCENES)]
    assert [line for scene in scenes for line in scene.over + scene.shut] == []
    assert min(sum(getattr(scene, what) for scene in scenes) for what in ("bindings", "refused", "falls")) > 20 * SCENES


@pytest.mark.parametrize("block", range(10))
def test_a_plain_scheduler_never_exceeds_it_with_the_admission_webhook(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = [run(by_a_plain_scheduler(100 * block + seed), monkeypatch) for seed in range(SCENES)]
    assert [line for scene in scenes for line in scene.over + scene.shut] == []
    assert min(sum(getattr(scene, what) for scene in scenes) for what in ("bindings", "refused", "falls")) > 20 * SCENES


@pytest.mark.long
def test_without_the_agents_lease_both_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls: an agent that lowers its number without the placement Lease, a scheduler nobody asks about."""
    extenders = [run(by_extenders(seed, lease=False), monkeypatch) for seed in range(3)]
    plain = [run(by_a_plain_scheduler(seed, webhook=False), monkeypatch) for seed in range(8)]
    assert all(sum(len(scene.over) for scene in scenes) > 10 for scenes in (extenders, plain))


def report(scene: Scene, slots: float) -> None:
    scene.latest.publish(
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


def test_a_number_does_not_fall_below_who_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two were placed; one comes, the other never does and is forgotten."""

    async def play() -> None:
        scene = Scene(0)
        scene.server.lose = 0.0
        report(scene, 8.5)
        await asyncio.sleep(5.0)
        await publish(scene)
        await asyncio.sleep(5.0)
        scene.server.webhook = lambda name, uid, node: scene.extenders[0].webhook.admit("d", name, uid, node)
        scene.pod("never")
        assert await scene.extenders[1].webhook.admit("d", "never", "never", "a") is None
        scene.pod("comes")
        await scene.server.bind("comes", "a")
        report(scene, 0.5)
        await publish(scene)
        assert (scene.places, scene.amount) == (2, 2)
        assert lease_record(scene.server.leases["a"]).offered == Offer(0, 0)  # but nobody else gets in
        await asyncio.sleep(6.0)
        await publish(scene)
        assert (scene.places, scene.amount) == (2, 2)
        await asyncio.sleep(15.0)
        await publish(scene)
        assert (scene.places, scene.amount) == (0, 1)  # one is here and holds one; there is no place for another

    run(play(), monkeypatch)


async def acknowledged(scene: Scene, placed: dict[str, PlacedPod]) -> None:
    """As somebody who leads and has placed these would."""
    leases = PlacementLeases(scene.server, "carico")  # type: ignore[arg-type]
    leader = leader_record(scene.server.leases[LEADER_LEASE])
    token = (await leases.read("a")).token
    await leases.acknowledge("a", Acknowledgement(token, leader.holder, leader.term, placed))


async def alone(slots: float) -> Scene:
    """An agent has published this, and the extenders are gone; their Lease is held by somebody who lives for ever."""
    scene = Scene(0)
    scene.server.lose = 0.0
    report(scene, slots)
    await publish(scene)
    for line in scene.lines:
        line.end()
    spec = {"holderIdentity": "x", "leaseTransitions": 7, "leaseDurationSeconds": 10**9}
    scene.server.leases[LEADER_LEASE] = {"metadata": {"name": LEADER_LEASE, "resourceVersion": "99999"}, "spec": spec}
    return scene


def test_who_is_on_the_way_counts_also_after_a_write_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is lowered, then the write of the Node is lost: the next one must not forget who was placed."""

    async def play() -> None:
        scene = await alone(8.5)
        stored = scene.server._store

        async def lose_nodes(where: dict[str, Object], name: str, body: Object) -> Object:
            if where is scene.server.nodes:
                raise Unreachable("the request was lost")
            return await stored(where, name, body)

        scene.server._store = lose_nodes  # type: ignore[method-assign]
        report(scene, 0.5)
        await publish(scene)
        await acknowledged(scene, {uid: PlacedPod(1.0, 1) for uid in ("one", "two")})
        await publish(scene)
        scene.server._store = stored  # type: ignore[method-assign]
        await publish(scene)
        assert (scene.places, scene.amount) == (2, 2)

    run(play(), monkeypatch)


def test_made_up_placements_do_not_raise_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty in the Lease of a node that offers 4: it never publishes more than it did before, and Pods that are bound
    elsewhere do not count at all."""

    async def play() -> None:
        scene = await alone(4.5)
        report(scene, 3.5)
        await publish(scene)
        await acknowledged(scene, {f"u{n}": PlacedPod(1.0, 1) for n in range(50)})
        await publish(scene)
        assert (scene.places, scene.amount) == (4, 4)
        for uid in ("one", "two"):
            scene.pod(uid)
        scene.server.pods["two"]["spec"]["nodeName"] = "b"
        report(scene, 0.5)
        await publish(scene)
        await acknowledged(scene, {uid: PlacedPod(2.0, 1, f"d/{uid}") for uid in ("one", "two")})
        await publish(scene)
        assert (scene.places, scene.amount) == (1, 1)  # "one" waits and may come, "two" runs on b

    run(play(), monkeypatch)


def test_a_raised_lease_does_not_hold_for_a_leader_whose_view_of_the_node_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number fell from 8 to 2 and rises to 8 again. The leader sees the raised Lease, and the Node of before."""

    async def play() -> None:
        scene = Scene(0)
        scene.server.lose = 0.0
        for slots in (8.5, 2.5):
            await asyncio.sleep(5.0)
            report(scene, slots)
            await publish(scene)
        assert (scene.places, scene.amount) == (2, 2)
        before = json.loads(scene.server.nodes["a"]["metadata"]["annotations"]["carico.dev/status"]).get("rise", "")
        lose_node_writes(scene, arrive=False)
        report(scene, 8.5)
        await publish(scene)
        await asyncio.sleep(5.0)
        assert lease_record(scene.server.leases["a"]).rise.offer == Offer(8, 8)
        for extender in scene.extenders:
            extender.cluster.node_changed(False, PublishedNode("a", 8.0, 0.0, 1e9, 64.0, 8, rise=before or "of the 8"))
        binder, errors = scene.extenders[0].binder, []
        for uid in ("one", "two", "three"):
            scene.pod(uid)
            asked = {"PodName": uid, "PodNamespace": "d", "PodUID": uid, "Node": "a"}
            errors.append((await binder.bind(asked))["Error"])
        assert errors[:2] == ["", ""]
        assert "no room: 2 places" in errors[2]
        assert scene.over == []

    run(play(), monkeypatch)


def lose_node_writes(scene: Scene, arrive: bool) -> None:
    """From now on no write of a Node is answered; `arrive`: though it is made."""
    stored = scene.server._store

    async def store(where: dict[str, Object], name: str, body: Object) -> Object:
        if where is not scene.server.nodes:
            return await stored(where, name, body)
        if arrive:
            await stored(where, name, body)
        raise Unreachable("the answer was lost")

    scene.server._store = store  # type: ignore[method-assign]


def test_a_rise_that_got_no_answer_may_be_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Node says 8 and the agent does not know. A lower number than that, though higher than 2, is agreed on first,
    and does not fall below the six who were placed meanwhile."""

    async def play() -> None:
        scene = await alone(2.5)
        stored = scene.server._store
        lose_node_writes(scene, arrive=True)
        report(scene, 8.5)
        await publish(scene)
        scene.server._store = stored  # type: ignore[method-assign]
        assert (scene.places, scene.amount) == (8, 8)
        report(scene, 4.5)
        await publish(scene)
        assert (scene.places, scene.amount) == (8, 8)
        await acknowledged(scene, {f"u{n}": PlacedPod(1.0, 1) for n in range(6)})
        await publish(scene)
        assert (scene.places, scene.amount) == (6, 6)

    run(play(), monkeypatch)


def test_a_number_that_waits_for_an_extender_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        scene = await alone(8.5)
        report(scene, 3.5)
        for _ in range(8):
            await publish(scene)
            await asyncio.sleep(1.0)
        assert (scene.places, scene.amount) == (8, 8)
        assert "the lower number waits: extender x has not acknowledged it" in scene.agent.health.condition
        await acknowledged(scene, {})
        await publish(scene)
        assert (scene.places, scene.amount, scene.agent.health.condition) == (3, 3, "published")

    run(play(), monkeypatch)


def test_without_the_right_to_write_leases_the_number_is_published(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene, asked = Scene(0), []
        scene.server.lose = 0.0
        for line in scene.lines:
            line.end()

        async def refuse(path: str, body: Object) -> Object:
            if "leases" in path:
                asked.append(path)
                raise Refused(403, "missing right: x")
            return await SmallServer.patch(scene.server, path, body)

        scene.server.patch = refuse  # type: ignore[method-assign]
        for slots in range(8, 1, -1):
            report(scene, slots + 0.5)
            await publish(scene)
            assert scene.amount == slots
            await asyncio.sleep(5.0 + slots % 2)
        assert 2 <= len(asked) <= 4  # soon again, then rarely
        assert scene.agent.health.well

    with caplog.at_level("INFO"):
        run(play(), monkeypatch)
    assert [record.levelname for record in caplog.records] == ["INFO"]
