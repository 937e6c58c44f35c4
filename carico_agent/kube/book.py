"""The book of a node: one Lease in which its agent writes what it offers, and whoever binds Pods writes who comes.

Kubernetes has no "bind if the node still says 8". The book is how it can be said all the same. A claim names the
version of the book that was read; if another claim or another offer was faster the API server refuses it (409), the
book is read again, and there may be no room any more. An agent that offers less learns from the same answer who is on
the way, and does not publish less than they need. Every claim is thus before a fall, and counted in it, or after it,
and bound by it.

For that the book may never offer more than the node publishes: it falls before the node, and rises after it. An offer
expires: a book that nobody keeps any more must not close its node for ever.

A claim is believed for some seconds after it was first read, longer than any watch lags, and is keyed by UID, so a Pod
that is claimed *and* seen bound counts once. Clocks of different machines are compared for the offer's minutes only.

Why a Lease and not the Node: every change of a Node wakes all who watch nodes, nobody watches these. Why not leader
election among extenders: the second one answers nothing, a takeover costs seconds, and agents lower their numbers
whoever leads.
"""

import json
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import Refused
from carico_agent.net.times import parse_rfc3339, rfc3339

CLAIMS, OFFER = "carico.dev/claims", "carico.dev/offer"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node publishes. None: it does not say."""

    places: int | None = None
    """For all Pods, those that are there included."""
    resource: int | None = None
    """Of the extended resource, what Pods hold included."""

    def least(self, other: "Offer") -> "Offer":
        """The lower of both, number by number.

        >>> Offer(8, 3).least(Offer(5, 4)), Offer(8).least(Offer(None, 4))
        (Offer(places=5, resource=3), Offer(places=8, resource=4))
        """
        return Offer(_least(self.places, other.places), _least(self.resource, other.resource))

    def raised(self, places: int, resource: int) -> "Offer":
        """At least these, where something is said at all."""
        return Offer(
            None if self.places is None else max(self.places, places),
            None if self.resource is None else max(self.resource, resource),
        )


NO_OFFER = Offer()


class Claim(NamedTuple):
    """One Pod that is about to be bound."""

    made_s: float
    """By the claimer's clock; only to tell a renewed claim from the old one."""
    holds: int = 0
    """What it asks of the extended resource."""


@dataclass(slots=True)
class Page:
    """A book as it was read."""

    version: str = ""
    """Empty: it does not exist yet."""
    offered: Offer = NO_OFFER
    until_s: float = inf
    """When that offer ends (wall clock, seconds since 1970)."""
    claims: dict[str, Claim] = field(default_factory=dict)

    def offer(self, now_s: float) -> Offer:
        return self.offered if now_s < self.until_s else NO_OFFER


class Beliefs:
    """Which claims of a book still count: each for `believed_s` after it was first read, by our own clock.

    >>> beliefs, claim = Beliefs(15.0), Claim(99.5)
    >>> [len(beliefs.of({"u": claim}, now_s)) for now_s in (0, 14, 15)], len(beliefs.of({"u": Claim(115.0)}, 16))
    ([1, 1, 0], 1)
    """

    def __init__(self, believed_s: float) -> None:
        self._believed_s = believed_s
        self._read_s: dict[tuple[str, Claim], float] = {}

    def of(self, claims: dict[str, Claim], now_s: float) -> dict[str, Claim]:
        self._read_s = {one: self._read_s.get(one, now_s) for one in claims.items()}
        return {uid: claim for (uid, claim), read_s in self._read_s.items() if now_s - read_s < self._believed_s}


class Books:
    """The books of all nodes, in one namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self, node: str) -> Page:
        try:
            return page(await self._client.get(f"{self._path}/{node}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            return Page()

    async def offer(self, node: str, offer: Offer, ttl_s: float, owner: list[Object]) -> Page:
        """What the node offers from now on, whoever else is writing. `owner`: with whom the book is thrown away."""
        said = {"places": offer.places, "resource": offer.resource, "time": rfc3339(), "ttl_s": ttl_s}
        meta: Object = {"annotations": {OFFER: json.dumps(said, separators=(",", ":"))}}
        if owner:
            meta["ownerReferences"] = owner
        try:
            return page(await self._client.patch(f"{self._path}/{node}", {"metadata": meta}))
        except Refused as refused:
            if refused.status != 404:
                raise
        return page(await self._client.post(self._path, self._lease(node, meta)))

    async def claim(self, node: str, known: Page, claims: dict[str, Claim]) -> Page | None:
        """Write who comes; None when somebody else wrote since `known` was read: read again, look again."""
        meta: Object = {"annotations": {CLAIMS: json.dumps(claims, separators=(",", ":"))}}
        if known.version:
            meta["resourceVersion"] = known.version
        try:
            if not known.version:
                return page(await self._client.post(self._path, self._lease(node, meta)))
            return page(await self._client.patch(f"{self._path}/{node}", {"metadata": meta}))
        except Refused as refused:
            if refused.status == 409 or (refused.status == 404 and known.version):
                return None
            raise

    async def remove(self, node: str) -> None:
        try:
            await self._client.delete(f"{self._path}/{node}")
        except Refused as refused:
            if refused.status != 404:
                raise

    def _lease(self, node: str, meta: Object) -> Object:
        named = {"name": node, "namespace": self._namespace, **meta}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named, "spec": {}}


def page(lease: Object) -> Page:
    """Read one Lease. What somebody else scribbled in it is as good as nothing.

    >>> said = '{"places":8,"resource":null,"time":"2024-01-01T00:00:00Z","ttl_s":150}'
    >>> read = page({"metadata": {"resourceVersion": "7", "annotations": {
    ...     "carico.dev/offer": said, "carico.dev/claims": '{"u":[99.5,1]}'}}})
    >>> read.offer(1704067200), read.offer(1704067351), read.claims
    (Offer(places=8, resource=None), Offer(places=None, resource=None), {'u': Claim(made_s=99.5, holds=1)})
    """
    meta = lease["metadata"]
    notes = meta.get("annotations") or {}
    return Page(meta["resourceVersion"], *_offer(notes.get(OFFER)), _claims(notes.get(CLAIMS)))


SCRIBBLES = (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError)


def _offer(text: Any) -> tuple[Offer, float]:
    try:
        said: Object = json.loads(text or "{}")
        until_s = parse_rfc3339(said["time"]) + float(said["ttl_s"])
        return Offer(_count(said["places"]), _count(said["resource"])), until_s
    except SCRIBBLES:
        return NO_OFFER, inf


def _claims(text: Any) -> dict[str, Claim]:
    try:
        said: Object = json.loads(text or "{}")
        claims = {uid: Claim(float(made_s), int(holds)) for uid, (made_s, holds) in said.items()}
    except SCRIBBLES:
        return {}
    return {uid: claim for uid, claim in claims.items() if isfinite(claim.made_s) and claim.holds >= 0}


def _count(number: Any) -> int | None:
    if number is None:
        return None
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is no count")
    return number


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)
