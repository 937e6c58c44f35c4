"""Ten nodes in one process: real NodePublishers over real HTTP, and a stand-in for what runs on the nodes.

The stand-in does a kubelet's work: it starts Pods that are bound, ends them after a while, and tells the API server.
What a node can take changes every second. A recorder follows nodes and Pods in the order of etcd's revisions, so that
afterwards every binding can be held against what the node had published at that moment.
"""

import asyncio
import json
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from carico_agent.kube.access import Access, from_kubeconfig
from carico_agent.kube.budget import Budget
from carico_agent.kube.client import Client, Object
from carico_agent.kube.errors import KubeError
from carico_agent.publish.board import Board
from carico_agent.publish.gate import GateConfig
from carico_agent.publish.node import RESOURCE, NodeConfig, NodePublisher
from tests.kube.plane import Plane

GRACE_S = 2.0
QUICK = GateConfig(min_interval_s=1.0, heartbeat_s=10.0, ttl_s=60.0)


class FakeNode:
    """What runs on one node, and its publisher."""

    def __init__(self, name: str, access: Access, slots: float) -> None:
        self.name, self.slots = name, slots
        self.running: set[str] = set()
        self.board = Board(ttl_s=5.0)
        self.client = Client(access, Budget(per_s=20.0, burst=50))
        self.publisher = NodePublisher(self.client, self.board, NodeConfig(name, gate=QUICK), self.counted)

    def counted(self) -> dict[str, bool]:
        return dict.fromkeys(self.running, True)

    def tell(self) -> None:
        """One status, as an agent's board would have it."""
        pods = len(self.running)
        capacity = max(0.0, self.slots - pods)
        self.board.publish({
            "time": _now(), "pod_capacity": capacity, "slots": pods + capacity, "pods": pods, "mode": "measured",
            "low": capacity, "high": capacity, "limiting": "cpu"})  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fleet:
    """All nodes; `async with` starts and ends them."""

    def __init__(self, plane: Plane, count: int = 10, slots: float = 8.0, wobble: float = 0.0,
                 work_s: float = 3.0) -> None:  # fmt: skip
        self.plane, self.wobble, self.work_s, self._slots = plane, wobble, work_s, slots
        access = from_kubeconfig(plane.kubeconfig("agent-token"))
        self.admin = Client(from_kubeconfig(plane.kubeconfig("admin-token")), Budget(per_s=1000.0, burst=1000))
        self.nodes = {name: FakeNode(name, access, slots) for name in (f"node-{n:02d}" for n in range(count))}
        self._tasks: list[asyncio.Task[Any]] = []
        self._lives: set[asyncio.Task[None]] = set()
        self.finished = 0

    async def __aenter__(self) -> "Fleet":
        for name in self.nodes:
            await asyncio.to_thread(self.plane.admin.add_node, name)
        for node in self.nodes.values():
            node.tell()
            self._tasks.append(asyncio.create_task(node.publisher.run()))
        self._tasks += [asyncio.create_task(self._tell()), asyncio.create_task(self._kubelets())]
        while not all(node.publisher.writes for node in self.nodes.values()):
            await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in [*self._tasks, *self._lives]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._lives, return_exceptions=True)
        for node in self.nodes.values():
            await node.client.close()
        await self.admin.close()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for node in self.nodes.values():
                node.slots = max(1.0, self._slots + random.uniform(-self.wobble, self.wobble))
                node.tell()

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
        node.tell()
        await self._phase(name, "Running")
        if self.work_s:
            await asyncio.sleep(random.uniform(0.5, 1.5) * self.work_s)
            node.running.discard(uid)
            node.tell()
            await self._phase(name, "Succeeded")
            self.finished += 1

    async def _phase(self, name: str, phase: str) -> None:
        while True:
            try:
                await self.admin.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": phase}})
                return
            except KubeError:
                await asyncio.sleep(0.5)


@dataclass
class Verdict:
    """What the recorder found."""

    bindings: int = 0
    most: dict[str, int] = field(default_factory=dict)
    over_now: list[str] = field(default_factory=list)
    """Bindings beyond what the node had published in that very revision."""
    over_lately: list[str] = field(default_factory=list)
    """Bindings beyond that, and beyond the number before it even where that was replaced within GRACE_S only.

    kube-scheduler decides on its own copy of the node, binds some milliseconds later, and then others write in between:
    a binding may be right by the number that was true when it was decided."""

    def add(self, node: str, count: int, published: list[tuple[int, float]], heard_s: float) -> None:
        self.bindings += 1
        self.most[node] = max(count, self.most.get(node, 0))
        numbers = [number for number, _ in published]
        replaced = bool(published) and heard_s - published[-1][1] <= GRACE_S
        what = f"{node}: {count} Pods, published {numbers[-3:]}"
        if count > max(numbers[-1:], default=0):
            self.over_now.append(what)
        if count > max(numbers[-2:] if replaced else numbers[-1:], default=0):
            self.over_lately.append(what)


class Recorder:
    """Follows nodes and Pods from an empty cluster on, and judges."""

    def __init__(self, plane: Plane) -> None:
        self._client = Client(from_kubeconfig(plane.kubeconfig("admin-token")), Budget(per_s=100.0, burst=100))
        self.events: list[tuple[int, str, bool, Object, float]] = []

    async def __aenter__(self) -> "Recorder":
        self._tasks = []
        for kind in ("nodes", "pods"):
            start = await self._client.get(f"/api/v1/{kind}")
            self._tasks.append(asyncio.create_task(self._follow(kind, start["metadata"]["resourceVersion"])))
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.sleep(1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _follow(self, kind: str, version: str) -> None:
        while True:
            params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300"}
            async for line in self._client.lines(f"/api/v1/{kind}", params, lambda: None):
                thing = line["object"]
                version = thing["metadata"]["resourceVersion"]
                self.events.append((int(version), kind, line["type"] == "DELETED", thing, time.monotonic()))

    def judge(self, by: str) -> Verdict:
        """Hold every binding against `by`: "resource" (holders only) or "places" (all Pods)."""
        verdict = Verdict()
        published: dict[str, list[tuple[int, float]]] = defaultdict(list)
        held: dict[str, set[str]] = defaultdict(set)
        for _, kind, gone, thing, heard_s in sorted(self.events, key=lambda event: event[0]):
            if kind == "nodes":
                said, so_far = _published(thing, by), published[thing["metadata"]["name"]]
                if said is not None and (not so_far or so_far[-1][0] != said):
                    so_far.append((said, heard_s))
                continue
            node, uid = thing["spec"].get("nodeName"), thing["metadata"]["uid"]
            if not node:
                continue
            if gone or thing["status"].get("phase") in ("Succeeded", "Failed"):
                held[node].discard(uid)
            elif uid not in held[node]:
                held[node].add(uid)
                verdict.add(node, len(held[node]), published[node], heard_s)
        return verdict


def _published(node: Object, by: str) -> int | None:
    if by == "resource":
        amount = node["status"]["allocatable"].get(RESOURCE)
        return None if amount is None else int(amount)
    text = (node["metadata"].get("annotations") or {}).get("carico.dev/status")
    places = json.loads(text).get("places") if text else None
    slots = (node["metadata"].get("annotations") or {}).get("carico.dev/slots")
    return int(places) if places is not None else None if slots is None else int(slots)
