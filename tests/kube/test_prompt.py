"""A Pod that waits is bound as soon as a number rises, on the first try.

kube-scheduler (1.30 and newer) tries a waiting Pod again within a millisecond of a Node's event. Whoever is asked then,
filter, bind or the admission webhook, has to know the higher number already: a refused binding costs the Pod its
back-off, a refused filter up to five minutes.
"""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import pytest

from carico_agent.extender.second_look import LOOK_AGAIN_S
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.net.buckets import TokenBucket
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.webhook import Webhook
from tests.kube.fleet import FakeNode
from tests.kube.judge import number_of
from tests.kube.late_line import LateLine
from tests.kube.test_burst import extended

StartExtender = Callable[..., ExtenderProcess]

NODES, RISES = 2, 6
"""Each of the nodes rises so often, by one."""
SPARE = 6
"""So many more Pods per node wait. Without the resource, filter lets two Pods pass for one place; the one whose binding
is refused backs off. What is measured is how soon a place is taken, which any waiting Pod may do."""
NEVER_S = 1e6
PROMPT_S = 0.5
"""A Pod that was refused first waits for a second at least (podInitialBackoffSeconds)."""


@pytest.fixture
def webhook(cluster: Plane, tmp_path: Path) -> Iterator[Webhook]:
    webhook = Webhook(cluster, tmp_path)
    yield webhook
    webhook.stop()


class Rises:
    """When each node's number rose, and when a Pod was bound to it, as one client sees both."""

    def __init__(self, client: KubeClient, by: str) -> None:
        """`by`: "resource" or "places" of the annotation."""
        self._by, self._client = by, client
        self.rose_s: dict[str, list[float]] = {}
        self.bound_s: dict[str, list[float]] = {}
        self.numbers: dict[str, int] = {}
        self._seen: set[str] = set()

    def node(self, name: str, number: int | None) -> None:
        """None: it has not published any yet."""
        if number is None:
            return
        if number > self.numbers.get(name, number):
            self.rose_s.setdefault(name, []).append(time.monotonic())
        self.numbers[name] = number

    def pod(self, uid: str, node: str) -> None:
        if node and uid not in self._seen:
            self._seen.add(uid)
            self.bound_s.setdefault(node, []).append(time.monotonic())

    async def follow(self) -> None:
        async def nodes() -> None:
            async for line in self._lines("nodes"):
                self.node(line["object"]["metadata"]["name"], number_of(line["object"], self._by))

        async def pods() -> None:
            async for line in self._lines("pods"):
                self.pod(line["object"]["metadata"]["uid"], line["object"]["spec"].get("nodeName") or "")

        async with asyncio.TaskGroup() as group:
            group.create_task(nodes())
            group.create_task(pods())

    async def _lines(self, what: str) -> AsyncIterator[dict]:  # type: ignore[type-arg]
        """What is there, then what changes: the first change of a node that has published already is a rise."""
        start = await self._client.get(f"/api/v1/{what}")
        for item in start["items"]:
            yield {"type": "ADDED", "object": item}
        params = {"watch": "1", "resourceVersion": start["metadata"]["resourceVersion"], "timeoutSeconds": "600"}
        async for line in self._client.lines(f"/api/v1/{what}", params, lambda: None):
            yield line

    def __str__(self) -> str:
        began_s = min((all_s[0] for all_s in self.rose_s.values()), default=0.0)
        return "; ".join(
            f"{name} is {self.numbers.get(name)}, rose at {[round(one_s - began_s, 2) for one_s in all_s]}, "
            f"bound at {[round(one_s - began_s, 2) for one_s in self.bound_s.get(name, ())]}"
            for name, all_s in self.rose_s.items()
        )

    def waited_s(self) -> list[float]:
        """From each rise until the next binding to that node."""
        return [
            next((bound_s - rose_s for bound_s in self.bound_s.get(node, ()) if bound_s >= rose_s - 0.05), NEVER_S)
            for node, all_s in self.rose_s.items()
            for rose_s in all_s
        ]


@asynccontextmanager
async def full_nodes(plane: Plane, by: str) -> AsyncIterator[tuple[list[FakeNode], Rises]]:
    """Nodes with one place each, published and taken by a Pod that runs."""
    access = from_kubeconfig(plane.kubeconfig("agent-token"))
    nodes = [FakeNode(f"node-{number}", access, 1.4) for number in range(NODES)]
    client = KubeClient(from_kubeconfig(plane.kubeconfig("admin-token")), TokenBucket(per_s=100.0, burst=100))
    rises, tasks = Rises(client, by), []
    for node in nodes:
        await asyncio.to_thread(plane.admin.add_node, node.name)
        node.publish()
        tasks.append(asyncio.create_task(node.publisher.run()))
    tasks += [asyncio.create_task(rises.follow()), asyncio.create_task(_republish(nodes))]
    try:
        yield nodes, rises
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in nodes:
            await node.client.close()
        await client.close()


async def _republish(nodes: list[FakeNode]) -> None:
    """What an agent does every second; Pods that are bound run at once."""
    while True:
        await asyncio.sleep(0.25)
        for node in nodes:
            node.running = set(node.publisher.mirror.pods)
            node.publish()


async def raise_step_by_step(plane: Plane, places: int) -> Rises:
    """More Pods than places; then each number rises by one, again and again."""
    async with full_nodes(plane, "resource" if places else "places") as (nodes, rises):
        for number in range(NODES * (RISES + SPARE)):
            await asyncio.to_thread(plane.admin.add_pod, f"waits-{number:02d}", places)

        def pods() -> list[int]:
            return [len(node.publisher.mirror.pods) for node in nodes]

        await until(
            lambda: pods() == [1] * NODES and list(rises.numbers.values()) == [1] * NODES,
            say=lambda: f"{pods()} Pods on the nodes, numbers {rises.numbers}; one each is expected",
        )
        for step in range(2, 2 + RISES):
            for node in nodes:
                await asyncio.sleep(0.4)
                node.slots += 1
            await until(
                lambda step=step: pods() == [step] * NODES,  # type: ignore[misc]
                say=lambda step=step: f"{pods()} Pods on the nodes, {step} each are expected; {rises}",  # type: ignore[misc]
            )
        await until(
            lambda: len(rises.waited_s()) == NODES * RISES and max(rises.waited_s()) < NEVER_S,
            say=lambda: f"{NODES * RISES} rises are expected, each with a binding: {rises}",
        )
        return rises


async def until(
    done: Callable[[], bool], timeout_s: float = 60.0, say: Callable[[], object] = lambda: "it never came true"
) -> None:
    """`say`: what is the case when the time is up."""
    try:
        async with asyncio.timeout(timeout_s):
            while not done():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"after {timeout_s} s: {say()}")


def check(name: str, rises: Rises, refused: float) -> None:
    waited_s = sorted(rises.waited_s())
    late = [round(one, 2) for one in waited_s if one > PROMPT_S]
    print(f"{name}: {len(waited_s)} rises, median {median(waited_s):.3f} s, late {late}, {refused:.0f} refused")
    assert len(waited_s) == NODES * RISES
    assert (late, refused) == ([], 0)


def counted(extender: ExtenderProcess, name: str) -> float:
    rows = dict(line.rsplit(" ", 1) for line in extender.metrics().splitlines())
    return float(rows[f"carico_extender_{name}"])


class Published(KubeClient):
    """An API server with a node that had published 1 before the client asked; then it publishes 2."""

    def __init__(self) -> None:
        pass

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Object:
        items = [self._node(1)] if path.endswith("nodes") else []
        return {"metadata": {"resourceVersion": "7"}, "items": items}

    async def lines(
        self, path: str, params: Mapping[str, str], opened: Callable[[], None]
    ) -> AsyncGenerator[Object, None]:
        if path.endswith("nodes"):
            yield {"type": "MODIFIED", "object": self._node(2)}

    def _node(self, places: int) -> Object:
        return {"metadata": {"name": "a"}, "status": {"allocatable": {RESOURCE: str(places)}}}


async def test_the_first_rise_counts_of_a_node_that_published_before_the_watch() -> None:
    """Else one rise of all is missing now and then, and a test waits for it until its time is up."""
    rises = Rises(Published(), "resource")
    await rises.follow()
    assert len(rises.rose_s["a"]) == 1


async def test_the_extender_binds_right_after_a_rise(cluster: Plane, start_extender: StartExtender) -> None:
    extender = start_extender()
    cluster.start_scheduler(extended(extender))
    rises = await raise_step_by_step(cluster, places=1)
    check("resource and extender", rises, counted(extender, "refused_binds_total"))


async def test_the_extender_alone_binds_right_after_a_rise(cluster: Plane, start_extender: StartExtender) -> None:
    extender = start_extender()
    cluster.start_scheduler(extended(extender))
    rises = await raise_step_by_step(cluster, places=0)
    print(
        f"{counted(extender, 'refused_binds_total'):.0f} refused: filter holds no place, two Pods may pass it at once"
    )
    check("extender alone", rises, 0.0)


async def test_the_webhook_admits_right_after_a_rise(cluster: Plane, webhook: Webhook) -> None:
    cluster.start_scheduler()
    rises = await raise_step_by_step(cluster, places=1)
    check("resource and webhook", rises, webhook.counted("refused_admissions_total"))


async def test_the_resource_alone_is_used_right_after_a_rise(cluster: Plane) -> None:
    cluster.start_scheduler()
    check("resource", await raise_step_by_step(cluster, places=1), 0.0)


@pytest.mark.parametrize(("late_s", "max_s"), [(0.02, PROMPT_S), (0.3, 5.0)])
async def test_an_extender_whose_watch_is_behind(cluster: Plane, tmp_path: Path, late_s: float, max_s: float) -> None:
    """kube-scheduler sees a rise before the extender does, asks, and no further event comes. Somewhat late: filter
    looks again before it refuses. Very late: the extender tells kube-scheduler to ask again."""
    line = LateLine(cluster.port, late_s)
    extender = ExtenderProcess(tmp_path, line.kubeconfig(cluster.kubeconfig("extender-token"))).ready()
    try:
        cluster.start_scheduler(extended(extender))
        waited_s = (await raise_step_by_step(cluster, places=0)).waited_s()
        wakes, looked_s = (counted(extender, name) for name in ("wakes_total", "second_look_seconds_total"))
        refused = counted(extender, "refused_binds_total")
        print(f"{late_s} s late: {sorted(round(one, 2) for one in waited_s)}; {wakes:.0f} wakes, {refused:.0f} refused")
        assert max(waited_s) < max_s
        assert wakes if late_s > LOOK_AGAIN_S else looked_s
    finally:
        extender.stop(signal.SIGKILL)
        line.stop()


async def test_a_workload_that_has_been_profiled_is_asked_about_again(
    cluster: Plane, start_extender: StartExtender
) -> None:
    """Two Pods of a workload of which nothing is known count for two places each (one core, four places). When it has
    run for 12 s the third one fits. No object changes then, so kube-scheduler has no reason to ask."""
    extender = start_extender()
    cluster.start_scheduler(extended(extender))
    node = FakeNode("small", from_kubeconfig(cluster.kubeconfig("agent-token")), 4.4)
    await asyncio.to_thread(cluster.admin.add_node, node.name, 1)
    node.publish()
    tasks = [asyncio.create_task(node.publisher.run()), asyncio.create_task(_republish([node]))]
    try:
        for number in range(3):
            await asyncio.to_thread(cluster.admin.add_pod, f"alike-{number}", 0)
        await until(lambda: len(node.publisher.mirror.pods) == 2)
        for pod in await asyncio.to_thread(cluster.admin.pods):
            if pod["spec"].get("nodeName"):
                await asyncio.to_thread(cluster.admin.phase, pod["metadata"]["name"], "Running")
        began_s = time.monotonic()
        await until(lambda: len(node.publisher.mirror.pods) == 3, 40.0)
        print(f"bound {time.monotonic() - began_s:.1f} s after the first two ran")
        assert counted(extender, "wakes_total") == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await node.client.close()


@pytest.mark.parametrize("places", [0, 1], ids=["extender alone", "resource"])
async def test_two_hundred_waiting_pods_do_not_hold_up_the_scheduler(
    cluster: Plane, start_extender: StartExtender, places: int
) -> None:
    """A Node is written every second. With the resource kube-scheduler knows that none of them fits, and asks nobody.
    Without, it asks about each of them every time: the extender says so, and all of filter's second looks together take
    little time."""
    extender = start_extender()
    cluster.start_scheduler(extended(extender))
    async with full_nodes(cluster, "places") as (nodes, _):
        for number in range(200):
            await asyncio.to_thread(cluster.admin.add_pod, f"waits-{number:03d}", places)
        await until(lambda: all(len(node.publisher.mirror.pods) == 1 for node in nodes))
        await asyncio.sleep(3.0)
        looked_s, asked = (counted(extender, name) for name in ("second_look_seconds_total", "filter_seconds_count"))
        began_s = time.monotonic()
        for _ in range(10):
            await asyncio.sleep(1.0)
            notes = {"metadata": {"annotations": {"example.com/note": f"{time.monotonic()}"}}}
            await asyncio.to_thread(cluster.admin.merge, f"/api/v1/nodes/{nodes[0].name}", notes)
        took_s = time.monotonic() - began_s
        share = (counted(extender, "second_look_seconds_total") - looked_s) / took_s
        per_s = (counted(extender, "filter_seconds_count") - asked) / took_s
        print(f"{per_s:.0f} questions a second, filter waited for {share:.1%} of the time")
        assert share < 0.08
        assert (per_s > 50, "do not ask for carico.dev/pods" in extender.log.read_text()) == (not places, not places)
        assert (counted(extender, "asked_without_resource_total") > 0) == (not places)
