"""Our node's book (kube/book.py), kept in step with what the Node object says."""

import logging
from collections.abc import Callable, Iterable

from carico_agent.kube.book import Books, Offer
from carico_agent.kube.client import Object
from carico_agent.kube.errors import Refused

log = logging.getLogger(__name__)

BELIEVED_S = 15.0
"""How long a claim counts after it was first read here [s]; by our clock, whatever that of the claimer says."""

RETRY_S = 600.0
"""Without a namespace for books, or without the right to write ours, we ask again after this long [s]."""

MOST_REMEMBERED = 1000
"""Pods that came since the book was last read, of which we know that they are on their way no more."""

NOTHING = Offer(0, 0)


class OwnBook:
    """Falls are written before the node says them, rises after. `books` None: there are none."""

    def __init__(self, books: Books | None, node: str, clock: Callable[[], float]) -> None:
        self._books, self._node, self._clock = books, node, clock
        self._offered: Offer | None = None
        self._read_s: dict[str, float] = {}  # claims: when we first read of them
        self._came: dict[str, None] = {}
        self._not_before_s = 0.0
        self._missed = ""

    @property
    def kept(self) -> bool:
        """Whether what the book offers may be believed: the node says so, because a book that nobody keeps any more
        goes on offering what it did."""
        return self._offered is not None

    def came(self, uids: Iterable[str]) -> None:
        """These Pods were seen here."""
        if self._books is not None:
            self._came.update(dict.fromkeys(uids))
            while len(self._came) > MOST_REMEMBERED:
                del self._came[next(iter(self._came))]

    async def fall(self, offer: Offer, owner: list[Object]) -> tuple[int, int]:
        """`offer` is about to be published, and nobody can claim more from now on. Returns how many Pods are on their
        way and have not come, and what they hold. The first time nothing is offered, until the node has said it."""
        offered = NOTHING if self._offered is None else self._offered.least(offer)
        claims, now_s = await self._write(offered, owner), self._clock()
        self._read_s = {uid: self._read_s.get(uid, now_s) for uid in claims}
        self._came = {uid: None for uid in self._came if uid in claims}
        on_the_way = [holds for uid, holds in claims.items()
                      if uid not in self._came and now_s - self._read_s[uid] < BELIEVED_S]  # fmt: skip
        return len(on_the_way), sum(on_the_way)

    async def rise(self, offer: Offer, owner: list[Object]) -> None:
        """`offer` has been published."""
        if self._offered is not None and self._offered != offer:
            await self._write(offer, owner)

    async def _write(self, offer: Offer, owner: list[Object]) -> dict[str, int]:
        """Write, and read who has claimed: UID → what it holds."""
        if self._books is None or self._clock() < self._not_before_s:
            return {}
        try:
            page = await self._books.offer(self._node, offer, owner)
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            self._offered, self._not_before_s = None, self._clock() + RETRY_S
            if str(refused) != self._missed:
                self._missed = str(refused)
                log.info("no book for extenders, bindings under way are not known when the number falls: %s", refused)
            return {}
        self._offered = offer
        return {uid: claim.holds for uid, claim in page.claims.items()}
