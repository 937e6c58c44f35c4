"""Writes the Node object and its placement Lease: when, again after a failure, and back at the end.

One PATCH of nodes/status carries annotations and the extended resource (the API server accepts metadata there, as it
does for the kubelet), so that the agent needs no right to change a node's spec. What is written is a Draft
(node_draft.py); the WriteThrottle (throttle.py), node_reasons.py and WriteRetries decide when.

Every number is written into the node's placement Lease first (kube/placement_lease.py). When it is lower, Pods that
were placed by then will come, and the published number does not fall below them. The Lease carries our heartbeats, too,
but only while the Node object has what we would write: a number that could not be corrected must expire.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.names import STATUS
from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.latest import LatestStatus, Wants
from carico_agent.node.publish.node_draft import Counted, Draft, NodeConfig, NodeDrafts
from carico_agent.node.publish.node_mirror import NodeMirror
from carico_agent.node.publish.node_offer import patch
from carico_agent.node.publish.node_reasons import FOREIGN, LastWrite, changed, fell, overwritten
from carico_agent.node.publish.own_lease import OwnLease
from carico_agent.node.publish.pace import pace_s
from carico_agent.node.publish.publication import NodeContent, NodeObjectState
from carico_agent.node.publish.throttle import WriteThrottle
from carico_agent.node.publish.write_retries import RETRY_DELAYS, WriteRetries

PODS_WITHIN_S = 3.0
"""How long the first write waits for the Pods of this node [s]."""

WAITS_S = 5.0
"""A lower number that waits for an extender for longer is reported [s]."""

OTHER_AGENT_S = 30.0
"""How often we look whether the other agent of this node's name is still there [s]."""


class NodeWriter:
    """Keeps one Node object true while `run` runs."""

    def __init__(
        self,
        client: KubeClient,
        latest: LatestStatus,
        mirror: NodeMirror,
        lease: OwnLease,
        config: NodeConfig,
        health: Health,
        counted: Counted,
        clock: Callable[[], float] = boottime_s,
    ) -> None:
        self._client, self._latest, self._mirror, self._lease = client, latest, mirror, lease
        self._config, self._health, self._clock = config, health, clock
        self._throttle = WriteThrottle(config.throttle)
        self._drafts = NodeDrafts(latest, mirror, config, self._throttle, counted)
        self.retries = WriteRetries(health)
        self._content = NodeContent()
        self._wrote_s = -inf
        self._waits_since_s = inf
        self._incarnation = 0
        self.writes = 0

    async def run(self) -> None:
        await self._mirror.node_synced.wait()
        with suppress(TimeoutError):  # without the right to see Pods there are annotations at least
            await asyncio.wait_for(self._mirror.pods_synced.wait(), PODS_WITHIN_S)
        await self._until_alone()
        self._latest.follow(self._mirror.wakeup, Wants.WHEN_MOVED)
        try:
            await self._run()
        finally:
            self._latest.unfollow(self._mirror.wakeup)

    async def _run(self) -> None:
        while True:
            await self._next()
            self._mirror.wakeup.clear()
            self.observe()
            if self._clock() < self.retries.at_s or self._mirror.node is None or not self._latest.sequence:
                continue
            draft = self.draft()
            if why := self.reason(draft):
                if why == FOREIGN:
                    await self._until_alone()
                await self.write(draft)
            elif self.renewal_due():
                await self.renew()

    async def _until_alone(self) -> None:
        """Wait while another living agent publishes for this node: two would correct each other without end."""
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
        self._throttle.pace_s = pace_s(nodes, self._config.throttle.min_interval_s)
        self._drafts.slow_to(self._throttle.pace_s)

    async def _next(self) -> None:
        """Until something may have changed; at least once a second, so that a status that is not renewed is noticed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._mirror.wakeup.wait()

    # ---- what, and when

    def observe(self) -> None:
        """Take note of what has happened: our node went or came, the server is back, the number moved."""
        if self._incarnation != self._mirror.incarnation:
            self._incarnation, self._content = self._mirror.incarnation, NodeContent()
            self.retries.at_once()
            self._throttle.forget()
            self._lease.forget()
        config = self._config.throttle
        self._throttle.repeat_s = config.refresh_s if self._lease.written else config.heartbeat_s
        self.retries.observe()
        self._drafts.observe(self._clock())

    def draft(self) -> Draft:
        """What would be written now, as of the last `observe`."""
        last = self._content.last
        return self._drafts.draft(None if last is None else last.offer.resource)

    def reason(self, draft: Draft) -> str | None:
        """Why to write now; None to hold it back. A fall waits for nothing."""
        last, now_s, config, resource = self._content.last, self._clock(), self._config.throttle, self._config.resource
        since_s = now_s - self._wrote_s
        if since_s < config.fall_interval_s:
            return None
        if why := self._throttle.reason(now_s, draft.summary) or fell(draft, last, resource):
            return why
        if since_s < config.min_interval_s:
            return None
        if last is not None and last.in_flight:
            return f"{last.in_flight} Pods were on their way"
        if self._lease.waits:
            return "the Lease offers less than the Node"
        if why := self.retries.reason or overwritten(draft, last, self._mirror.node, self._drafts.held, resource):
            return why
        return changed(draft, last, since_s, resource) if self._throttle.may_write(now_s) else None

    def renewal_due(self) -> bool:
        """Whether the Lease needs a heartbeat, and deserves one: the Node object has what we would write."""
        well = self._content.state is NodeObjectState.WRITTEN and not self.retries.pending
        return well and self._lease.due(self._config.throttle.heartbeat_s)

    # ---- writing

    async def write(self, draft: Draft) -> None:
        """One try; a failure is remembered and tried again later."""
        started_s = self._clock()
        try:
            if not await self._put(draft):
                self._waits(started_s)
                return
        except KubeError as error:
            self.retries.failed(self._clock(), error)
            return
        self._waits(None)
        self.retries.succeeded()
        self.writes += 1
        self._throttle.wrote(started_s, draft.summary)
        self._wrote_s = started_s

    async def renew(self) -> None:
        """One heartbeat in the Lease. After a failure the Node object is written again, and the Lease with it."""
        try:
            await self._lease.renew(self._owner())
        except KubeError as error:
            self.retries.failed(self._clock(), error)

    def _waits(self, now_s: float | None) -> None:
        """A lower number waits for the leading extender; None: no longer."""
        if now_s is None:
            self._waits_since_s = inf
            self._health.good("extender")
            return
        self._waits_since_s = min(self._waits_since_s, now_s)
        if now_s - self._waits_since_s > WAITS_S:
            self._health.bad("extender", NotAcknowledged(self._lease.waits))

    async def _put(self, draft: Draft) -> bool:
        """The placement Lease, and then the Node object. False: a lower offer must not be published yet."""
        owner, workloads = self._owner(), draft.workloads
        published = self._content.published
        placed = await self._lease.agree_on(draft.offer, owner, self._mirror.pods, published)
        if placed is None:
            return False
        in_flight, holds = placed
        offer = draft.offer.raised(len(self._mirror.pods) + in_flight if in_flight else 0, self._mirror.held() + holds)
        if published is not None:  # the Pods that were placed were limited by what we offered
            offer = offer.at_most(published).raised(0, self._mirror.held())
            offer = offer.raised(draft.offer.places or 0, draft.offer.resource or 0)
        resource, ttl_s = self._config.resource, self._config.throttle.ttl_s
        rise = await self._lease.announce(draft.offer, owner)
        body = patch(draft.status, draft.summary, offer, resource, ttl_s, workloads, rise)
        self._content = self._content.sends(offer)
        await self._client.patch(f"{self._config.path}/status", body)
        annotation = body["metadata"]["annotations"][STATUS]
        self._content = self._content.answered(LastWrite(offer, draft.offer, annotation, in_flight, workloads))
        self._lease.announced()
        return True

    async def withdraw(self, deadline_s: float = 2.0) -> None:
        """The agent stops and corrects no number any more: what is not held is taken back, and the Lease names no
        holder: another agent need not wait. One try."""
        last = self._content.last
        self._lease.leave()
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(deadline_s):
                if last is not None and last.offer.resource is not None and self._mirror.pods_synced.is_set():
                    while not await self._put(self._drafts.withdrawal()):
                        pass  # each try waits for the extender
                await self._lease.written_without_us(self._owner())

    def _owner(self) -> list[Object]:
        node = self._mirror.node
        return [] if node is None else node.owner_references()


class OtherAgent(KubeError):
    """Another agent publishes for our node."""

    def __init__(self, node: str, other: str) -> None:
        super().__init__(
            f'another agent ({other}) publishes for node "{node}"; stop one of them, or give this one the right name '
            "with --node or NODE_NAME"
        )


class NotAcknowledged(KubeError):
    """A lower number waits for the leading extender."""

    def __init__(self, leader: str) -> None:
        super().__init__(
            f"the lower number waits: {leader} has not acknowledged it. It is published when that extender "
            "answers, or when its Lease has expired"
        )
