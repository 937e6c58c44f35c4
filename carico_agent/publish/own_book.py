"""Our node's book (kube/book.py), written with every write of the Node object."""

import logging
from collections.abc import Callable, Container, Iterable

from carico_agent.kube.book import Beliefs, Books, Claim, Offer
from carico_agent.kube.client import Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.supervise.backoff import Backoff

log = logging.getLogger(__name__)

BELIEVED_S = 15.0
"""How long a claim holds the number up after we first read of it [s]. A binding takes 4 s at most."""

RETRY_DELAYS = Backoff(first_s=5.0, factor=4.0, most_s=600.0)
"""Without a namespace for books, or the right to write ours, we ask again after this long. Soon at first: an API server
that has just started refuses everybody for a second or two."""

MOST_REMEMBERED = 1000
"""Pods seen here since the last write; their claims no longer hold the number up."""

NOTHING = Offer(0, 0)


class OwnBook:
    """Falls are written before the node says them, rises after. `books` None: there are none."""

    def __init__(self, books: Books | None, node: str, ttl_s: float, clock: Callable[[], float]) -> None:
        self._books, self._node, self._ttl_s, self._clock = books, node, ttl_s, clock
        self._offered: Offer | None = None  # None: what the book says is not known
        self._beliefs = Beliefs(BELIEVED_S)
        self._came: dict[str, None] = {}
        self._refusals, self._not_before_s, self._missed = 0, 0.0, ""

    def came(self, uids: Iterable[str]) -> None:
        """These Pods were seen here."""
        if self._books is not None:
            self._came.update(dict.fromkeys(uids))
            while len(self._came) > MOST_REMEMBERED:
                del self._came[next(iter(self._came))]

    async def fall(self, offer: Offer, owner: list[Object], here: Container[str]) -> tuple[int, int]:
        """`offer` is about to be published, and nobody can claim more from now on. Returns how many Pods are on their
        way and not `here`, and what they hold. While we do not know what the book says nothing is offered."""
        claims = await self._write(NOTHING if self._offered is None else self._offered.least(offer), owner)
        believed = self._beliefs.of(claims, self._clock())
        on_the_way = [claim for uid, claim in believed.items() if uid not in self._came and uid not in here]
        self._came = {uid: None for uid in self._came if uid in claims}
        return len(on_the_way), sum(claim.holds for claim in on_the_way)

    async def rise(self, offer: Offer, owner: list[Object]) -> None:
        """`offer` has been published."""
        if self._offered is not None and self._offered != offer:
            await self._write(offer, owner)

    async def _write(self, offer: Offer, owner: list[Object]) -> dict[str, Claim]:
        """Write, and read who has claimed. A write whose answer is lost leaves us not knowing."""
        if self._books is None or self._clock() < self._not_before_s:
            return {}
        self._offered = None
        try:
            page = await self._books.offer(self._node, offer, self._ttl_s, owner)
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            self._miss(refused)
            return {}
        self._offered, self._refusals = offer, 0
        return page.claims

    def _miss(self, why: KubeError) -> None:
        self._refusals += 1
        self._not_before_s = self._clock() + RETRY_DELAYS.delay_s(self._refusals)
        if self._refusals > 1 and str(why) != self._missed:
            self._missed = str(why)
            log.info("no book for extenders, bindings under way are not known when the number falls: %s", why)
