"""Our own node's placement Lease (kube/placement_lease.py): what the node offers, and that its agent is alive.

Every write of it is a heartbeat. It is written when the offer changes, and once in `heartbeat_s` while nothing does.
What it contains, and how that changes: publication.py. This file sends the requests.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from math import inf

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.leader import SeenLeader
from carico_agent.lib.kube.placement_lease import (
    Offer,
    PlacedExpiry,
    PlacedPod,
    PlacedTimes,
    PlacementLeases,
    max_under_way_s,
    placed_times,
)
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.node.publish.publication import LeaseContent, LeaseEvent

log = logging.getLogger(__name__)

RETRY_DELAYS = Backoff(first_s=5.0, factor=4.0, max_s=600.0)
"""Without the namespace of the Leases, or the right to write ours, we try again after this long. Soon at first: an API
server that has just started refuses everybody for a second or two."""

LOOK_AFTER_S = (0.05, 0.15, 0.4)
"""When we look for an acknowledgement after each write or try [s]. It takes two requests of the leader's; the next try
is made with the next status, a second later."""

EXPIRES_RATIO = 0.9
"""A lower offer that is older than this part of its time is asked for again before it is published."""

MAX_REMEMBERED = 1000
"""Pods seen bound here since the last write; they no longer keep the number up."""

MAX_ASKED = 8
"""Pods on their way of which we ask where they are, per write."""


class OwnLease:
    """Keeps the Lease's offer at or below what the Node object publishes. `leases` None: this cluster has none.
    `identity`: this agent, the same after a restart."""

    def __init__(
        self,
        leases: PlacementLeases | None,
        node: str,
        ttl_s: float,
        clock: Callable[[], float],
        identity: str = "",
    ) -> None:
        self._leases, self._node, self._ttl_s, self._clock = leases, node, ttl_s, clock
        self._identity = identity
        self._content = LeaseContent()
        self._leader = SeenLeader()
        self._expiry = PlacedExpiry(PlacedTimes().bound_within_s)
        self._placed: dict[str, PlacedPod] = {}  # by the last acknowledgement
        self._seen_bound: dict[str, None] = {}
        self._refusals, self._retry_at_s, self._logged = 0, 0.0, ""
        self._written_s = -inf
        self._named = False  # whether the Lease, as we wrote it, names us its holder
        self.writes = 0

    @property
    def waits(self) -> str:
        """The extender that has not acknowledged a lower offer yet; empty: none."""
        return f"extender {self._leader.last.holder or 'that led last'}" if self._content.waits else ""

    @property
    def written(self) -> bool:
        """Whether the Lease can be written, and so carries our heartbeats."""
        return self._content.known

    def due(self, heartbeat_s: float) -> bool:
        """Whether it is time for a heartbeat."""
        return self._content.known and self._clock() - self._written_s >= heartbeat_s

    def forget(self) -> None:
        """The node is another one now: its Lease went with the old one."""
        self._happens(LeaseEvent.REPLACED)

    async def other_agent(self) -> str:
        """Another living agent that publishes for this node; empty: none, as far as we may know."""
        if self._leases is None:
            return ""
        try:
            record = await self._leases.read(self._node)
        except Refused as refused:
            if refused.status != 403:  # without the right to read it, this cannot be known
                raise
            return ""
        is_other = record.holder not in ("", self._identity)
        return record.holder if is_other and record.renewed_s + record.ttl_s > time.time() else ""

    def leave(self) -> None:
        """What is written from now on names no holder: another agent need not wait."""
        self._identity = ""

    async def written_without_us(self, owner: list[Object]) -> None:
        """An offer that did not change was not written again: then the Lease still names us."""
        if self._named:
            await self.renew(owner)

    def pods_bound(self, uids: Iterable[str]) -> None:
        """These Pods are bound to this node by the watch: they are no longer on the way."""
        if self._leases is not None:
            self._seen_bound.update(dict.fromkeys(uids))
            while len(self._seen_bound) > MAX_REMEMBERED:
                del self._seen_bound[next(iter(self._seen_bound))]

    async def agree_on(
        self, offer: Offer, owner: list[Object], here: Container[str], published: Offer | None
    ) -> tuple[int, int] | None:
        """Before `offer`, higher or lower, is published over what is `published`, or may be (None: not known): agree on
        it with the extender that leads, so that from now on no Pod is placed beyond it. Returns how many Pods were
        placed before and are not `here` yet, and what they hold; None: that is not known yet, so it must not be
        published.
        Nothing is offered while the Lease's content is unknown.

        A lower offer whose Node could not be written then is not written here again: that would be a heartbeat for a
        number that is not corrected.
        """
        if published is not None and published.least(offer) == published:
            self._happens(LeaseEvent.RISES_AGAIN)  # the Pods that were placed were limited by what is published
        else:
            expires = self._clock() - self._written_s >= EXPIRES_RATIO * self._ttl_s  # then others believe the Node
            if self._content.must_ask(offer) or expires:
                await self._write(self._content.ask(offer, secrets.token_hex(8)), owner)
            if self._content.waits and not await self._acknowledged():
                return None
        valid = self._expiry.valid(self._placed, self._clock())
        on_the_way = {uid: one for uid, one in valid.items() if uid not in self._seen_bound and uid not in here}
        on_the_way = await self._without_bound_elsewhere(on_the_way)
        return len(on_the_way), sum(one.holds for one in on_the_way.values())

    async def _acknowledged(self) -> bool:
        """Whether the lower offer may be published: a leader has seen it, or no extender places Pods any more."""
        assert self._leases is not None
        if not self._leader.last.holder and await self._nobody_places():
            return True
        for wait_s in LOOK_AFTER_S:
            await asyncio.sleep(wait_s)
            seen = (await self._leases.read(self._node)).acknowledged
            if seen.token != self._content.token:
                continue
            if await self._nobody_places():
                return True
            leads = self._leader.now.holder, self._leader.now.term
            if self._leader.now.version and leads == (seen.leader, seen.term):  # read after: it still leads
                self._take(seen.placed)
                return True
            self._happens(LeaseEvent.FORMER_LEADER)
            return False
        return await self._nobody_places()

    async def _nobody_places(self) -> bool:
        """Read the leader's Lease; True if it has not changed for so long that nothing is under way."""
        assert self._leases is not None
        found, now_s = await self._leases.leader(), self._clock()
        self._leader.see(found, now_s)
        leader = self._leader.last  # one whose Lease was deleted may still place Pods
        if now_s - self._leader.since_s < max_under_way_s(leader):
            return False
        self._take({})
        return True

    def _take(self, placed: dict[str, PlacedPod]) -> None:
        self._placed = placed
        self._happens(LeaseEvent.ACKNOWLEDGED)
        self._expiry.valid_s = placed_times(self._leader.last).bound_within_s
        self._seen_bound = {uid: None for uid in self._seen_bound if uid in placed}

    async def _without_bound_elsewhere(self, on_the_way: dict[str, PlacedPod]) -> dict[str, PlacedPod]:
        """A Pod that runs on another node does not come here. Seldom asked: only when a number falls while a Pod is on
        the way."""
        assert self._leases is not None or not on_the_way
        kept = dict(on_the_way)
        for uid, one in list(on_the_way.items())[:MAX_ASKED]:
            with suppress(KubeError):  # not known: it may come
                if self._leases is not None and await self._leases.node_of(uid, one) not in ("", self._node):
                    del kept[uid]
        return kept

    async def announce(self, offer: Offer, owner: list[Object]) -> str:
        """Before `offer` is published, and after it was agreed on: an extender that sees the Node object with the id
        that this returns may give all of it away. Empty: the Lease offers that without a condition, or cannot be
        written."""
        if self._content.must_announce(offer):
            await self._write(self._content.announces(offer, secrets.token_hex(4)), owner)
        return self._content.rise.id

    def announced(self) -> None:
        """The Node object carries that id, for sure."""
        self._happens(LeaseEvent.NODE_WRITTEN)

    async def renew(self, owner: list[Object]) -> None:
        """A heartbeat: the same offer again."""
        if self._content.known:
            await self._write(self._content.after(LeaseEvent.REPEATS), owner)

    def _happens(self, event: LeaseEvent) -> None:
        self._content = self._content.after(event)

    async def _write(self, content: LeaseContent, owner: list[Object]) -> None:
        """Make it the Lease's content. A write whose answer is lost leaves the content unknown."""
        if self._leases is None or self._clock() < self._retry_at_s:
            return
        self._happens(LeaseEvent.SENDS)
        offer, token, rise = content.offered, content.token, content.rise
        try:
            await self._leases.offer(self._node, offer, self._ttl_s, owner, self._identity, token, rise)
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            self._refused(refused)
            return
        self._content, self._refusals, self._written_s = content, 0, self._clock()
        self._named = bool(self._identity)
        self.writes += 1

    def _refused(self, why: KubeError) -> None:
        self._refusals += 1
        self._retry_at_s = self._clock() + RETRY_DELAYS.delay_s(self._refusals)
        if self._refusals > 1 and str(why) != self._logged:
            self._logged = str(why)
            log.info(
                "the placement Lease cannot be written, so bindings in flight are unknown when the number falls: %s",
                why,
            )
