"""The book of a node: one Lease in which its agent writes what it offers, and whoever binds Pods writes who comes.

Kubernetes has no "bind if the node still says 8". The book is how it can be said all the same. A claim names the
version of the book that was read; if another claim or another offer was faster the API server refuses it (409), the
book is read again, and there may be no room any more. An agent that offers less learns from the same answer who is on
the way, and does not publish less than they need. Every claim is thus before a fall, and counted in it, or after it,
and bound by it.

For that the book may never offer more than the node publishes: it falls before the node, and rises after it.

A claim stays for some seconds, longer than any watch lags, and is keyed by UID, so a Pod that is claimed *and* seen
bound counts once. Why a Lease and not the Node: every change of a Node wakes all who watch nodes, nobody watches these.
Why not leader election among extenders: the second one answers nothing, a takeover costs seconds, and agents lower
their numbers whoever leads.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carico_agent.kube.client import Client, Object
from carico_agent.kube.errors import Refused

CLAIMS, PLACES, HELD = "carico.dev/claims", "carico.dev/places", "carico.dev/pods"


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
        return Offer(None if self.places is None else max(self.places, places),
                     None if self.resource is None else max(self.resource, resource))  # fmt: skip


class Claim(NamedTuple):
    """One Pod that is about to be bound."""

    until_s: float
    """Wall clock, seconds since 1970."""
    holds: int = 0
    """What it asks of the extended resource."""


@dataclass(slots=True)
class Page:
    """A book as it was read."""

    version: str = ""
    """Empty: it does not exist yet."""
    offer: Offer = field(default_factory=Offer)
    claims: dict[str, Claim] = field(default_factory=dict)


class Books:
    """The books of all nodes, in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self, node: str) -> Page:
        try:
            return page(await self._client.get(f"{self._path}/{node}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            return Page()

    async def offer(self, node: str, offer: Offer, owner: list[Object] | None = None) -> Page:
        """What the node offers from now on, whoever else is writing. `owner`: with whom the book is thrown away."""
        meta: Object = {"annotations": {PLACES: _text(offer.places), HELD: _text(offer.resource)}}
        if owner:
            meta["ownerReferences"] = owner
        try:
            return page(await self._client.patch(f"{self._path}/{node}", {"metadata": meta}))
        except Refused as refused:
            if refused.status != 404:
                raise
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if text is not None}
        return page(await self._client.post(self._path, self._lease(node, meta)))

    async def claim(self, node: str, known: Page, uid: str, claim: Claim) -> Page | None:
        """Write a claim; None when somebody else wrote since `known` was read: read again, look again."""
        now_s = time.time()
        claims = {key: other for key, other in known.claims.items() if other.until_s > now_s} | {uid: claim}
        meta: Object = {"annotations": {CLAIMS: json.dumps(claims, separators=(",", ":"))}}
        try:
            if not known.version:
                return page(await self._client.post(self._path, self._lease(node, meta)))
            meta["resourceVersion"] = known.version
            return page(await self._client.patch(f"{self._path}/{node}", {"metadata": meta}))
        except Refused as refused:
            if refused.status in (404, 409):
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

    >>> page({"metadata": {"resourceVersion": "7", "annotations": {
    ...     "carico.dev/places": "8", "carico.dev/claims": '{"u":[99.5,1]}'}}})
    Page(version='7', offer=Offer(places=8, resource=None), claims={'u': Claim(until_s=99.5, holds=1)})
    """
    meta = lease["metadata"]
    notes = meta.get("annotations") or {}
    return Page(meta["resourceVersion"], Offer(_number(notes.get(PLACES)), _number(notes.get(HELD))),
                _claims(notes.get(CLAIMS)))  # fmt: skip


def _claims(text: str | None) -> dict[str, Claim]:
    try:
        value: dict[str, Any] = json.loads(text or "{}")
        return {uid: Claim(float(until_s), int(holds)) for uid, (until_s, holds) in value.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)
