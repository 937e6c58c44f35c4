"""The node's number on its Node object: annotations for those who read them, an extended resource for everybody else.

One PATCH of nodes/status carries both (the API server accepts metadata there, as it does for the kubelet), so that the
agent needs no right to change a node's spec. The gate decides when; what it decides on is `slots`.

The extended resource is what an unmodified kube-scheduler filters by and reserves itself: it subtracts what bound Pods
ask for. So we publish

    Pod-Capacity + what those counted in it hold, its low side made whole, never below what all bound Pods hold.

Why "those counted in it" and not all holders: a Pod that is bound but has not started yet is not in Pod-Capacity. With
"all holders + Pod-Capacity" eight Pods bound to an empty node with eight places would make sixteen out of them.
Why never below: the kubelet refuses Pods at its next start if they hold more than the node has (OutOf<resource>).
Why a Pod that is gone from the API server but still counted here goes on holding: it is still in Pod-Capacity. Without
it the number dips by one at every end of a Pod, until the end is noticed here.

A lower number is written into the node's placement Lease first (kube/placement_lease.py): Pods that have claimed a
place by then will come, and the number does not fall below them.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import nan
from typing import Any

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import KubeError, Unreachable
from carico_agent.kube.health import Health
from carico_agent.kube.names import POD_CAPACITY, RESOURCE, SLOTS, STATUS
from carico_agent.kube.placement_lease import Offer, PlacementLeases
from carico_agent.kube.pods import UNFINISHED, PodFacts, facts, whole
from carico_agent.kube.watch import ResourceWatch
from carico_agent.net.times import rfc3339
from carico_agent.publish.board import Board
from carico_agent.publish.gate import Lowest, News, ThrottleConfig, WriteThrottle, steady
from carico_agent.publish.own_lease import OwnLease
from carico_agent.supervise.backoff import Backoff

PODS_WITHIN_S = 3.0
"""How long the first write waits for the Pods of this node [s]."""

Counted = Callable[[], Mapping[str, bool]]
"""UIDs of the Pods that run here → whether they are counted."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What is published where."""

    node: str
    resource: str = RESOURCE
    """Name of the extended resource; empty: annotations only."""
    lease_namespace: str = ""
    """Namespace of the placement Leases, where extenders claim places; empty: none."""
    gate: ThrottleConfig = field(default_factory=ThrottleConfig)

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Our node as the API server has it."""

    name: str
    capacity: str | None = None
    allocatable: str | None = None
    status: str | None = None
    uid: str = ""


class NodePublisher:
    """Keeps one Node object true. `run` is for the supervisor, `withdraw` for the end."""

    def __init__(
        self,
        client: KubeClient,
        board: Board,
        config: NodeConfig,
        counted: Counted = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._board, self._config, self._counted, self._clock = client, board, config, counted, clock
        self.health = Health(f"Kubernetes node {config.node}", "published")
        self.gate = WriteThrottle(config.gate)
        self.writes = 0
        self._backoff = Backoff(first_s=1.0, factor=2.0, most_s=60.0)
        self._failures, self._not_before_s = 0, 0.0
        self._was_well = True
        self._owed = False  # a write failed: it is tried again, whatever the gate says
        self._pods: dict[str, PodFacts] = {}
        self._leaving: dict[str, PodFacts] = {}  # gone from the API server, perhaps still counted here
        self._lowest = Lowest(config.gate.hold_s)
        leases = PlacementLeases(client, config.lease_namespace) if config.lease_namespace else None
        self._lease = OwnLease(leases, config.node, config.gate.ttl_s, clock)
        self._node: NodeFacts | None = None
        self._said: Offer | None = None
        self._awaited = 0  # Pods that were on their way when that was said
        self._said_status: str | None = None
        self._wrote_s = -float("inf")
        self._stir = asyncio.Event()
        self._watch_node = ResourceWatch(
            client,
            "/api/v1/nodes",
            self._pick_node,
            self._nodes_are,
            self._node_changed,
            self.health,
            f"metadata.name={config.node}",
        )
        here = f"spec.nodeName={config.node},{UNFINISHED}"
        self._watch_pods = ResourceWatch(
            client,
            "/api/v1/pods",
            lambda pod: facts(pod, config.resource),
            self._pods_are,
            self._pod_changed,
            self.health,
            here,
        )

    @property
    def condition(self) -> str:
        """For humans: published, or what is wrong."""
        return self.health.condition if self.writes or not self.health.well else "not published yet"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_node.run())
            group.create_task(self._watch_pods.run())
            group.create_task(self._write_for_ever())

    async def withdraw(self, deadline_s: float = 2.0) -> None:
        """The agent stops: nobody will correct the number, so what is not held is taken back. One try."""
        if self._said is None or self._said.resource is None or not self._watch_pods.synced.is_set():
            return
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._publish(News(None, "stopped"), Offer(0, self.held()))

    # ---- what the API server says

    def _pick_node(self, node: Object) -> NodeFacts:
        status, resource = node.get("status") or {}, self._config.resource
        annotations = node["metadata"].get("annotations") or {}
        capacity, allocatable = (status.get("capacity") or {}), (status.get("allocatable") or {})
        return NodeFacts(
            node["metadata"]["name"],
            capacity.get(resource),
            allocatable.get(resource),
            annotations.get(STATUS),
            node["metadata"].get("uid", ""),
        )

    def _nodes_are(self, nodes: list[NodeFacts]) -> None:
        self._node_changed(not nodes, nodes[0] if nodes else NodeFacts(self._config.node))

    def _node_changed(self, gone: bool, node: NodeFacts) -> None:
        if gone:
            self.health.bad(
                "node",
                KubeError(
                    f'nodes "{node.name}" not found on the API server; give the right name with --node or NODE_NAME'
                ),
            )
            self._said = None
            self.gate.forget()
        elif self._node is None:
            self.health.good("node")
            self._not_before_s = 0.0
        self._node = None if gone else node
        self._stir.set()

    def _pods_are(self, pods: list[PodFacts]) -> None:
        before, self._pods = self._pods, {pod.uid: pod for pod in pods}
        self._leaving |= {uid: pod for uid, pod in before.items() if uid not in self._pods}
        self._lease.pods_bound(self._pods)
        self._stir.set()

    def _pod_changed(self, gone: bool, pod: PodFacts) -> None:
        if gone or pod.finished:
            if (last := self._pods.pop(pod.uid, None)) is not None:
                self._leaving[pod.uid] = last
        else:
            self._pods[pod.uid] = pod
        self._lease.pods_bound([pod.uid])
        self._stir.set()

    # ---- what we say

    def held(self) -> int:
        """What all bound, unfinished Pods here ask for."""
        return sum(pod.holds for pod in self._pods.values())

    def resource(self, pod_capacity: float) -> int | None:
        """The extended resource to publish; None when Pods are not known (yet), because then nothing is safe."""
        if not self._config.resource or not self._watch_pods.synced.is_set():
            return None
        counted = self._counted()
        self._leaving = {uid: pod for uid, pod in self._leaving.items() if counted.get(pod.local_uid)}
        holders = (*self._pods.values(), *self._leaving.values())
        held_by_counted = sum(pod.holds for pod in holders if counted.get(pod.local_uid))
        low = self._lowest.of(self._clock(), pod_capacity + held_by_counted)
        said = None if self._said is None else self._said.resource
        return max(self.held(), steady(low, said, self._config.gate) or 0)

    def places(self, slots: int, pods: int) -> int | None:
        """Slots as the API server's Pods count: without Pods it does not know, with those we do not count."""
        if not self._watch_pods.synced.is_set():
            return None
        counted = self._counted()
        ours = [counted[pod.local_uid] for pod in self._pods.values() if pod.local_uid in counted]
        return max(0, slots - max(0, pods - sum(ours)) + ours.count(False))

    def _patch(self, news: News, offer: Offer) -> Object:
        """Annotations and resource, as one merge patch."""
        known = news.slots is not None
        status = self._board.status
        body: Object = {
            "metadata": {
                "annotations": {
                    POD_CAPACITY: f"{status['pod_capacity']:.2f}" if known else None,
                    SLOTS: str(news.slots) if known else None,
                    STATUS: self._status_text(news, offer),
                }
            }
        }
        if offer.resource is not None:
            amount = {self._config.resource: str(offer.resource)}
            body["status"] = {"capacity": amount, "allocatable": amount}
        return body

    def _status_text(self, news: News, offer: Offer) -> str:
        status, ttl_s = self._board.status, self._config.gate.ttl_s
        said: dict[str, Any] = {"v": 1, "mode": news.mode, "ttl_s": ttl_s, "seq": status.get("sequence", 0)}
        if news.slots is not None:
            said |= {key: status[key] for key in ("time", "low", "high", "limiting", "pods", "slots")}
            said["places"] = offer.places
        else:
            said["time"] = rfc3339(digits="seconds")
        return json.dumps(said, separators=(",", ":"))

    # ---- when we say it

    async def _write_for_ever(self) -> None:
        await self._watch_node.synced.wait()
        with suppress(TimeoutError):  # without the right to see Pods there are annotations at least
            await asyncio.wait_for(self._watch_pods.synced.wait(), PODS_WITHIN_S)
        while True:
            await self._next()
            self._stir.clear()
            now_s = self._clock()
            if now_s < self._not_before_s or self._node is None or not self._board.sequence:
                continue
            news, offer = self._news()
            if self._reason(now_s, news, offer.resource):
                await self._write(news, offer)

    async def _next(self) -> None:
        """Until something may have changed; at least once a second, so that a silent board is noticed."""
        waits = [asyncio.ensure_future(self._board.changed()), asyncio.ensure_future(self._stir.wait())]
        try:
            await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _news(self) -> tuple[News, Offer]:
        status = self._board.status
        fresh = self._board.fresh and status["slots"] is not None
        news = self.gate.news(status["slots"] if fresh else nan, status["mode"] if fresh else "stale")
        places = 0 if news.slots is None else self.places(news.slots, status["pods"])
        return news, Offer(places, self.resource(status["pod_capacity"] if fresh else nan))

    def _reason(self, now_s: float, news: News, resource: int | None) -> str | None:
        """Why to write now; None to hold it back."""
        well, before = self.health.well, self._was_well
        self._was_well = well
        if now_s - self._wrote_s < self._config.gate.min_interval_s:
            self._was_well = before and well  # the return of the server is still to be answered
            return None
        if not before and well:
            return "the API server is back"
        if self._awaited:
            return f"{self._awaited} Pods were on their way"
        if self._owed:  # also a server that is back but does not know our rights yet: 403 for a second or two
            return "the last write failed"
        return self.gate.reason(now_s, news) or self._foreign(resource)

    def _foreign(self, resource: int | None) -> str | None:
        """The server has not what we would say: more is held, a kubelet restarted, somebody wrote."""
        node = self._node
        if node is None:
            return None
        if self._said_status is not None and node.status != self._said_status:
            return "the annotations were changed"
        if resource is None:
            return None
        have = {None if amount is None else whole(amount) for amount in (node.capacity, node.allocatable)}
        return None if have == {resource} else f"{self._config.resource} is {have}, not {resource}"

    async def _write(self, news: News, offer: Offer) -> None:
        started_s = self._clock()
        try:
            await self._publish(news, offer)
        except Unreachable as error:
            self.health.bad("write", error)  # the client itself makes us wait
            self._owed = True
            return
        except KubeError as error:
            self.health.bad("write", error)
            self._owed = True
            self._failures += 1
            self._not_before_s = self._clock() + self._backoff.delay_s(self._failures)
            return
        self.health.good("write")
        self._failures, self._was_well, self._owed = 0, self.health.well, False
        self.writes += 1
        self.gate.wrote(started_s, news)
        self._wrote_s = started_s

    async def _publish(self, news: News, offer: Offer) -> None:
        """The Node object, and its placement Lease: a lower offer is written there first, a higher one after."""
        owner = self._owner()
        pods, holds = await self._lease.lower(offer, owner, self._pods)
        said = offer.raised(len(self._pods) + pods if pods else 0, self.held() + holds)
        body = self._patch(news, said)
        await self._client.patch(f"{self._config.path}/status", body)
        self._said, self._said_status, self._awaited = said, body["metadata"]["annotations"][STATUS], pods
        await self._lease.raise_(offer, owner)

    def _owner(self) -> list[Object]:
        """The placement Lease is deleted with its node."""
        node = self._node
        if node is None or not node.uid:
            return []
        return [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}]


def removal(resource: str) -> Object:
    """The patch that takes everything of ours off a node."""
    gone = {resource: None}
    return {
        "metadata": {"annotations": dict.fromkeys((POD_CAPACITY, SLOTS, STATUS))},
        "status": {"capacity": gone, "allocatable": gone},
    }


async def remove(client: KubeClient, node: str, resource: str = RESOURCE, lease_namespace: str = "") -> int:
    """Take carico's traces off `node`; returns how much of the resource bound Pods still hold."""
    pods = await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node},{UNFINISHED}"})
    held = sum(facts(pod, resource).holds for pod in pods.get("items") or ())
    patch = removal(resource)
    if held:  # the kubelet would refuse those Pods at its next start
        amount = {resource: str(held)}
        patch = {**patch, "status": {"capacity": amount, "allocatable": amount}}
    await client.patch(f"/api/v1/nodes/{node}/status", patch)
    if lease_namespace:
        await PlacementLeases(client, lease_namespace).remove(node)
    return held


async def marked(client: KubeClient, resource: str = RESOURCE) -> list[str]:
    """Nodes that carry something of ours."""
    nodes = (await client.get("/api/v1/nodes")).get("items") or ()
    return [node["metadata"]["name"] for node in nodes if _is_marked(node, resource)]


def _is_marked(node: Object, resource: str) -> bool:
    annotations, status = node["metadata"].get("annotations") or {}, node.get("status") or {}
    return (
        not annotations.keys().isdisjoint((POD_CAPACITY, SLOTS, STATUS))
        or resource in (status.get("capacity") or {})
        or resource in (status.get("allocatable") or {})
    )
