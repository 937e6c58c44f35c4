"""Writes the Node object and its placement Lease: when, again after a failure, and back at the end.

One PATCH of nodes/status carries annotations and the extended resource (the API server accepts metadata there, as it
does for the kubelet), so that the agent needs no right to change a node's spec. The WriteThrottle decides when.

A lower number is written into the node's placement Lease first (kube/placement_lease.py): Pods that have claimed a
place by then will come, and the published number does not fall below them. The Lease carries our heartbeats, too, but
only while the Node object has what we would write: a number that could not be corrected must expire.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, nan

from carico_agent.kube.client import KubeClient
from carico_agent.kube.errors import KubeError, Unreachable
from carico_agent.kube.health import Health
from carico_agent.kube.kinds import NodeKinds
from carico_agent.kube.names import RESOURCE, STATUS
from carico_agent.kube.placement_lease import Offer
from carico_agent.kube.pods import whole
from carico_agent.publish.board import StatusBoard
from carico_agent.publish.node_kinds import less_reserved, moved, node_kinds, pods_by_kind, room_less
from carico_agent.publish.node_mirror import NodeMirror
from carico_agent.publish.node_offer import HeldPods, amount, held_pods, patch, places
from carico_agent.publish.own_lease import OwnLease
from carico_agent.publish.pace import hold_s, pace_s
from carico_agent.publish.status import Status
from carico_agent.publish.throttle import Lowest, Summary, ThrottleConfig, WriteThrottle
from carico_agent.supervise.backoff import Backoff

PODS_WITHIN_S = 3.0
"""How long the first write waits for the Pods of this node [s]."""

RETRY_DELAYS = Backoff(first_s=1.0, factor=2.0, most_s=60.0)
"""After a refused write."""

KINDS_INTERVAL_S = 30.0
"""A kind that costs more or less than published is written after this long at the earliest [s]. Consumers subtract what
they assign themselves, so an old cost is off by a tenth for half a minute, and a node writes once more at most."""

OTHER_AGENT_S = 30.0
"""How often we look whether the other agent of this node's name is still there [s]."""

FOREIGN = "the annotations were changed"
"""By somebody else than this agent."""

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
    throttle: ThrottleConfig = field(default_factory=ThrottleConfig)

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"


@dataclass(frozen=True, slots=True)
class LastWrite:
    """What the API server took from us last."""

    offer: Offer
    wanted: Offer
    """The same without Pods that were being bound."""
    annotation: str
    """carico.dev/status, to notice that somebody else wrote it."""
    in_flight: int
    """Pods that were being bound at that moment."""
    kinds: NodeKinds | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What would be written now."""

    summary: Summary
    offer: Offer
    status: Status
    kinds: NodeKinds | None = None


class NodeWriter:
    """Keeps one Node object true while `run` runs."""

    def __init__(
        self,
        client: KubeClient,
        board: StatusBoard,
        mirror: NodeMirror,
        lease: OwnLease,
        config: NodeConfig,
        health: Health,
        counted: Counted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._board, self._mirror, self._lease = client, board, mirror, lease
        self._config, self._health, self._counted, self._clock = config, health, counted, clock
        self._throttle = WriteThrottle(config.throttle)
        self._lowest = Lowest(config.throttle.hold_s)  # of the extended resource
        self._lowest_slots = Lowest(0.0)
        self._held = HeldPods()
        self._published: LastWrite | None = None
        self._wrote_s = -inf
        self._incarnation = 0
        self._was_well, self._server_returned = True, False
        self._failures = 0
        self._retry_pending = False  # a write failed: it is tried again, whatever the throttle says
        self.retry_at_s = -inf
        self.writes = 0

    async def run(self) -> None:
        await self._mirror.node_synced.wait()
        with suppress(TimeoutError):  # without the right to see Pods there are annotations at least
            await asyncio.wait_for(self._mirror.pods_synced.wait(), PODS_WITHIN_S)
        await self._until_alone()
        while True:
            await self._next()
            self._mirror.wakeup.clear()
            self.observe()
            if self._clock() < self.retry_at_s or self._mirror.node is None or not self._board.sequence:
                continue
            draft = self.draft()
            if why := self.reason(draft):
                if why == FOREIGN:
                    await self._until_alone()
                await self.write(draft)
            elif self.renewal_due():
                await self.renew()

    async def _until_alone(self) -> None:
        """Wait while another living agent publishes for this node: two would correct each other for ever."""
        while True:
            try:
                other = await self._lease.other_agent()
            except KubeError as error:
                self._health.bad("lease", error)
                await asyncio.sleep(RETRY_DELAYS.first_s)
                continue
            self._health.good("lease")
            if not other:
                self._health.good("agent")
                return
            self._health.bad("agent", OtherAgent(self._config.node, other))
            await asyncio.sleep(OTHER_AGENT_S)

    def size(self, nodes: int) -> None:
        """The cluster has so many nodes: the more, the less often this one may write."""
        least_s = self._config.throttle.min_interval_s
        self._throttle.pace_s = pace_s(nodes, least_s)
        self._lowest_slots.hold_s = hold_s(self._throttle.pace_s, least_s)
        self._lowest.hold_s = max(self._config.throttle.hold_s, self._lowest_slots.hold_s)

    async def _next(self) -> None:
        """Until something may have changed; at least once a second, so that a silent board is noticed."""
        waits = [asyncio.ensure_future(self._board.changed()), asyncio.ensure_future(self._mirror.wakeup.wait())]
        try:
            await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # ---- what, and when

    def observe(self) -> None:
        """Take note of what has happened: our node went or came, the server is back, the number moved."""
        if self._incarnation != self._mirror.incarnation:
            self._incarnation, self._published, self.retry_at_s = self._mirror.incarnation, None, -inf
            self._throttle.forget()
            self._lease.forget()
        config = self._config.throttle
        self._throttle.repeat_s = config.refresh_s if self._lease.written else config.heartbeat_s
        self._server_returned |= self._health.well and not self._was_well
        self._server_returned &= self._health.well
        self._was_well = self._health.well
        counted = self._counted()
        self._mirror.drop_ended(counted)
        self._held = held_pods(self._mirror.pods.values(), self._mirror.ended.values(), counted)
        status = self._status()
        slots = nan if status is None or status.slots is None else status.slots
        self._lowest_slots.add(self._clock(), slots)
        if self._mirror.pods_synced.is_set():
            capacity = nan if status is None or status.pod_capacity is None else status.pod_capacity
            self._lowest.add(self._clock(), capacity + self._held.counted_holds)

    def _status(self) -> Status | None:
        """The newest valid one, without what local reservations hold."""
        status = self._board.valid
        return None if status is None else less_reserved(status)

    def draft(self) -> Draft:
        """What would be written now, as of the last `observe`."""
        status = self._status()
        if status is None or status.slots is None:
            return Draft(self._throttle.summary(nan, "stale"), Offer(0, self._amount()), self._board.status)
        low = self._lowest_slots.value
        summary = self._throttle.summary(low, status.mode, status.work.total_s)
        amount = self._amount()
        if not self._mirror.pods_synced.is_set():
            return Draft(summary, Offer(None, amount), status)
        # the room that goes with the published number, not what there is at this moment
        lower = replace(status, room=room_less(status, status.slots - low))
        kinds = node_kinds(lower, pods_by_kind(self._mirror.pods.values(), self._counted()))
        return Draft(summary, Offer(places(summary.slots or 0, status.pods, self._held), amount), status, kinds)

    def _amount(self) -> int | None:
        """Of the extended resource; None when Pods are not known (yet), because then nothing is safe."""
        if not self._config.resource or not self._mirror.pods_synced.is_set():
            return None
        before = None if self._published is None else self._published.offer.resource
        return amount(self._lowest.value, self._held, before, self._config.throttle)

    def reason(self, draft: Draft) -> str | None:
        """Why to write now; None to hold it back. A fall waits for nothing."""
        published, now_s, config = self._published, self._clock(), self._config.throttle
        since_s = now_s - self._wrote_s
        if since_s < config.fall_interval_s:
            return None
        if why := self._throttle.reason(now_s, draft.summary) or self._fell(draft.offer.resource):
            return why
        if since_s < config.min_interval_s:
            return None
        if self._server_returned:
            return "the API server is back"
        if published is not None and published.in_flight:
            return f"{published.in_flight} Pods were on their way"
        if self._retry_pending:  # also a server that is back but does not know our rights yet: 403 for a second or two
            return "the last write failed"
        return self._overwritten(draft.offer.resource) or self._worth(draft)

    def _fell(self, resource: int | None) -> str | None:
        published = self._published
        if resource is None or published is None or published.wanted.resource is None:
            return None
        before = published.wanted.resource
        return f"{self._config.resource} {before} -> {resource}" if resource < before else None

    def _overwritten(self, resource: int | None) -> str | None:
        """The server has not what we wrote: a kubelet restarted, somebody else wrote; or more is held than that."""
        node, published = self._mirror.node, self._published
        if node is None:
            return None
        if published is not None and node.status != published.annotation:
            return FOREIGN
        if resource is None:
            return None
        wrote = resource if published is None or published.offer.resource is None else published.offer.resource
        have = {None if quantity is None else whole(quantity) for quantity in (node.capacity, node.allocatable)}
        if have != {wrote}:
            return f"{self._config.resource} is {have}, not {wrote}"
        return f"{self._held.holds} {self._config.resource} are held" if self._held.holds > wrote else None

    def _worth(self, draft: Draft) -> str | None:
        """What has changed so much that it is worth a write, if one is allowed now."""
        published, resource = self._published, draft.offer.resource
        if published is None or not self._throttle.may_write(self._clock()):
            return None
        if resource is not None and resource != published.offer.resource:
            return f"{self._config.resource} {published.offer.resource} -> {resource}"
        return moved(published.kinds, draft.kinds) if self._clock() - self._wrote_s >= KINDS_INTERVAL_S else None

    def renewal_due(self) -> bool:
        """Whether the Lease needs a heartbeat, and deserves one: the Node object has what we would write."""
        well = self._published is not None and not self._retry_pending
        return well and self._lease.due(self._config.throttle.heartbeat_s)

    # ---- writing

    async def write(self, draft: Draft) -> None:
        """One try; a failure is remembered and tried again later."""
        started_s = self._clock()
        try:
            await self._put(draft)
        except KubeError as error:
            self._failed(error)
            return
        self._health.good("write")
        self._failures, self._retry_pending, self._server_returned = 0, False, False
        self._was_well = self._health.well
        self.writes += 1
        self._throttle.wrote(started_s, draft.summary)
        self._wrote_s = started_s

    async def renew(self) -> None:
        """One heartbeat in the Lease. After a failure the Node object is written again, and the Lease with it."""
        node = self._mirror.node
        try:
            await self._lease.renew([] if node is None else node.owner_references())
        except KubeError as error:
            self._failed(error)

    def _failed(self, error: KubeError) -> None:
        self._health.bad("write", error)
        self._retry_pending = True
        if not isinstance(error, Unreachable):  # for that one the client itself makes us wait
            self._failures += 1
            self.retry_at_s = self._clock() + RETRY_DELAYS.delay_s(self._failures)

    async def _put(self, draft: Draft) -> None:
        """The Node object, and its placement Lease: a lower offer is written there first, a higher one after."""
        node, pods = self._mirror.node, self._mirror.pods
        owner = [] if node is None else node.owner_references()
        awaited = self._published is not None and self._published.in_flight > 0
        in_flight, holds = await self._lease.lower(draft.offer, owner, pods, awaited)
        offer = draft.offer.raised(len(pods) + in_flight if in_flight else 0, self._mirror.held() + holds)
        if self._published is not None:  # whoever claimed was limited by what we offered: claims beyond are made up
            offer = offer.at_most(self._published.offer).raised(0, self._mirror.held())
            offer = offer.raised(draft.offer.places or 0, draft.offer.resource or 0)
        resource, ttl_s = self._config.resource, self._config.throttle.ttl_s
        body = patch(draft.status, draft.summary, offer, resource, ttl_s, draft.kinds)
        await self._client.patch(f"{self._config.path}/status", body)
        annotation = body["metadata"]["annotations"][STATUS]
        self._published = LastWrite(offer, draft.offer, annotation, in_flight, draft.kinds)
        await self._lease.raise_(draft.offer, owner)

    async def withdraw(self, deadline_s: float = 2.0) -> None:
        """The agent stops: nobody will correct the number, so what is not held is taken back, and the Lease names no
        holder: another agent need not wait. One try."""
        published, node = self._published, self._mirror.node
        self._lease.leave()
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(deadline_s):
                if published is not None and published.offer.resource is not None and self._mirror.pods_synced.is_set():
                    await self._put(Draft(Summary(None, "stopped"), Offer(0, self._mirror.held()), self._board.status))
                await self._lease.written_without_us([] if node is None else node.owner_references())


class OtherAgent(KubeError):
    """Another agent publishes for our node."""

    def __init__(self, node: str, other: str) -> None:
        super().__init__(
            f'another agent ({other}) publishes for node "{node}"; stop one of them, or give this one the right name '
            "with --node or NODE_NAME"
        )
