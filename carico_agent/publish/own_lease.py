"""Our own node's placement Lease (kube/placement_lease.py): what the node offers, and that its agent is alive.

Every write of it is a heartbeat. It is written when the offer changes, and once in `heartbeat_s` while nothing does.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from math import inf

from carico_agent.kube.client import Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.kube.placement_lease import Claim, ClaimExpiry, Offer, PlacementLeases
from carico_agent.supervise.backoff import Backoff

log = logging.getLogger(__name__)

CLAIM_VALID_S = 15.0
"""How long a claim keeps the published number up after we first read it [s]. A binding takes 4 s at most."""

RETRY_DELAYS = Backoff(first_s=5.0, factor=4.0, most_s=600.0)
"""Without the namespace of the Leases, or the right to write ours, we try again after this long. Soon at first: an API
server that has just started refuses everybody for a second or two."""

MOST_REMEMBERED = 1000
"""Pods seen bound here since the last write; their claims no longer keep the number up."""

MOST_ASKED = 8
"""Pods on their way of which we ask where they are, per write."""

NOTHING = Offer(0, 0)


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
        self._offered: Offer | None = None  # None: what the Lease offers is not known
        self._expiry = ClaimExpiry(CLAIM_VALID_S)
        self._seen_bound: dict[str, None] = {}
        self._unpublished: dict[str, Claim] = {}  # claims at the last lowering, until that is published
        self._refusals, self._retry_at_s, self._logged = 0, 0.0, ""
        self._written_s = -inf
        self._named = False  # whether the Lease, as we wrote it, names us its holder
        self.writes = 0

    @property
    def written(self) -> bool:
        """Whether the Lease can be written, and so carries our heartbeats."""
        return self._offered is not None

    def due(self, heartbeat_s: float) -> bool:
        """Whether it is time for a heartbeat."""
        return self._offered is not None and self._clock() - self._written_s >= heartbeat_s

    def forget(self) -> None:
        """The node is another one now: its Lease went with the old one."""
        self._offered = None

    async def other_agent(self) -> str:
        """Who else is alive and publishes for this node; empty: nobody, as far as we may know."""
        if self._leases is None:
            return ""
        try:
            record = await self._leases.read(self._node)
        except Refused as refused:
            if refused.status != 403:  # without the right to read it, nobody can know
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
        """These Pods are bound to this node by the watch: their claims are settled."""
        if self._leases is not None:
            self._seen_bound.update(dict.fromkeys(uids))
            while len(self._seen_bound) > MOST_REMEMBERED:
                del self._seen_bound[next(iter(self._seen_bound))]

    async def lower(
        self, offer: Offer, owner: list[Object], here: Container[str], awaited: bool = False
    ) -> tuple[int, int]:
        """Before `offer` is published: from now on nobody can claim more than it. Returns how many claimed Pods are
        being bound and are not `here` yet, and what they hold. Nothing is offered while the Lease's content is unknown.

        An offer that is nowhere lower than the last one needs no write here: whoever has claimed was limited by that
        one. Except when some were `awaited`: whether they are still on their way only the Lease says. A lower offer
        that could not be published then is tried again with the claims of that time: to write the Lease again would
        be a heartbeat for a number that is not corrected.
        """
        if self._offered is not None and self._offered.least(offer) == self._offered and not awaited:
            if not (claims := self._unpublished):
                return 0, 0
        else:
            claims = await self._write(NOTHING if self._offered is None else self._offered.least(offer), owner)
            self._unpublished = claims
        valid = self._expiry.valid(claims, self._clock())
        in_flight = {uid: claim for uid, claim in valid.items() if uid not in self._seen_bound and uid not in here}
        self._seen_bound = {uid: None for uid in self._seen_bound if uid in claims}
        in_flight = await self._without_bound_elsewhere(in_flight)
        return len(in_flight), sum(claim.holds for claim in in_flight.values())

    async def _without_bound_elsewhere(self, claims: dict[str, Claim]) -> dict[str, Claim]:
        """A Pod that runs on another node does not come here, whatever was claimed for it. Seldom asked: only when a
        number falls while somebody is on the way."""
        assert self._leases is not None or not claims
        kept = dict(claims)
        for uid, claim in list(claims.items())[:MOST_ASKED]:
            with suppress(KubeError):  # not known: it may come
                if self._leases is not None and await self._leases.node_of(uid, claim) not in ("", self._node):
                    del kept[uid]
        return kept

    async def raise_(self, offer: Offer, owner: list[Object]) -> None:
        """After `offer` has been published: all of it may be claimed."""
        self._unpublished = {}
        if self._offered is not None and self._offered != offer:
            await self._write(offer, owner)

    async def renew(self, owner: list[Object]) -> None:
        """A heartbeat: the same offer again."""
        if self._offered is not None:
            await self._write(self._offered, owner)

    async def _write(self, offer: Offer, owner: list[Object]) -> dict[str, Claim]:
        """Write the offer, and read the claims. A write whose response is lost leaves the content unknown."""
        if self._leases is None or self._clock() < self._retry_at_s:
            return {}
        self._offered = None
        try:
            record = await self._leases.offer(self._node, offer, self._ttl_s, owner, self._identity)
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            self._refused(refused)
            return {}
        self._offered, self._refusals, self._written_s = offer, 0, self._clock()
        self._named = bool(self._identity)
        self.writes += 1
        return record.claims

    def _refused(self, why: KubeError) -> None:
        self._refusals += 1
        self._retry_at_s = self._clock() + RETRY_DELAYS.delay_s(self._refusals)
        if self._refusals > 1 and str(why) != self._logged:
            self._logged = str(why)
            log.info("no placement Lease: bindings in flight are not known when the number is lowered: %s", why)
