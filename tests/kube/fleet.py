"""Ten nodes in one process: real NodePublishers over real HTTP, and a stand-in for what runs on the nodes.

The stand-in does a kubelet's work: it starts Pods that are bound, ends them after a while, and reports both.
What a node can take changes every second: it goes up and down by `swing` Pods, each node at another time, and jitters
by `wobble`. judge.py holds every binding against what the node had published at that moment.
"""

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any

from carico_agent.lib.kube.access import Access, from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import NodeConfig
from carico_agent.node.publish.node_publisher import NodePublisher
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.throttle import ThrottleConfig
from lab.support.control_plane import Plane

SWING_S = 8.0
"""Time from one peak of a node's number to the next [s]: a fall of 2 * swing takes half of it."""

QUICK = ThrottleConfig(min_interval_s=1.0, heartbeat_s=10.0, ttl_s=60.0)


class FakeNode:
    """What runs on one node, and its publisher."""

    def __init__(self, name: str, access: Access, slots: float) -> None:
        self.name, self.slots = name, slots
        self.running: set[str] = set()
        self.latest = LatestStatus(ttl_s=5.0)
        self.client = KubeClient(access, TokenBucket(per_s=20.0, burst=50))
        config = NodeConfig(name, lease_namespace="carico", throttle=QUICK)
        self.publisher = NodePublisher(self.client, self.latest, config, self.counted)

    def counted(self) -> dict[str, bool]:
        return dict.fromkeys(self.running, True)

    def publish(self) -> None:
        """One status, as an agent's latest would have it."""
        pods = len(self.running)
        capacity = max(0.0, self.slots - pods)
        self.latest.publish(
            Status(
                time=_now(),
                pod_capacity=capacity,
                slots=pods + capacity,
                pods=pods,
                mode="measured",
                low=capacity,
                high=capacity,
                limiting="cpu",
            )
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fleet:
    """All nodes; `async with` starts and ends them."""

    def __init__(
        self, plane: Plane, slots: float, swing: float = 0.0, wobble: float = 0.0, count: int = 10, work_s: float = 3.0
    ) -> None:
        self.plane, self.swing, self.wobble, self.work_s, self._slots = plane, swing, wobble, work_s, slots
        access = from_kubeconfig(plane.kubeconfig("agent-token"))
        self.admin = KubeClient(from_kubeconfig(plane.kubeconfig("admin-token")), TokenBucket(per_s=1000.0, burst=1000))
        self.nodes = {name: FakeNode(name, access, slots) for name in (f"node-{n:02d}" for n in range(count))}
        self._tasks: list[asyncio.Task[Any]] = []
        self._lives: set[asyncio.Task[None]] = set()
        self.finished = 0

    async def __aenter__(self) -> "Fleet":
        for name in self.nodes:
            await asyncio.to_thread(self.plane.admin.add_node, name)
        for node in self.nodes.values():
            node.publish()
            self._tasks.append(asyncio.create_task(node.publisher.run()))
        self._tasks += [asyncio.create_task(self._publish()), asyncio.create_task(self._kubelets())]
        async with asyncio.timeout(120):
            while not all(node.publisher.writer.writes for node in self.nodes.values()):
                await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in [*self._tasks, *self._lives]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._lives, return_exceptions=True)
        for node in self.nodes.values():
            await node.client.close()
        await self.admin.close()

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for number, node in enumerate(self.nodes.values()):
                phase = (time.monotonic() / SWING_S + number / len(self.nodes)) % 1.0
                trend = self.swing * (4 * abs(phase - 0.5) - 1)
                node.slots = max(1.0, self._slots + trend + random.uniform(-self.wobble, self.wobble))
                node.publish()

    async def _kubelets(self) -> None:
        """Start what is bound."""
        seen: set[str] = set()
        pending = {"fieldSelector": "status.phase=Pending"}
        while True:
            await asyncio.sleep(0.2)
            try:
                pods = await self.admin.get("/api/v1/namespaces/default/pods", pending)
            except KubeError:
                continue
            for pod in pods["items"]:
                node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
                if node in self.nodes and uid not in seen:
                    seen.add(uid)
                    life = asyncio.create_task(self._live(self.nodes[node], pod))
                    self._lives.add(life)
                    life.add_done_callback(self._lives.discard)

    async def _live(self, node: FakeNode, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        await asyncio.sleep(random.uniform(0.1, 1.0))
        node.running.add(uid)
        node.publish()
        await self._phase(name, "Running")
        if self.work_s:
            await asyncio.sleep(random.uniform(0.5, 1.5) * self.work_s)
            node.running.discard(uid)
            node.publish()
            await self._phase(name, "Succeeded")
            self.finished += 1

    async def _phase(self, name: str, phase: str) -> None:
        while True:
            try:
                await self.admin.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": phase}})
                return
            except KubeError:
                await asyncio.sleep(0.5)
