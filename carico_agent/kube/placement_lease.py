"""The placement Lease of a node: its agent writes what the node offers, and whoever binds Pods claims places in it.

Kubernetes has no "bind if the node still offers 8 places". The Lease makes that condition possible by optimistic
concurrency. A claim carries the resourceVersion that was read. If another claim or another offer was written first, the
API server refuses it (409); the Lease is read again, and there may be no room any more. An agent that lowers its offer
learns from the same response which Pods are being bound, and does not publish less than they need. So every claim
either precedes a lower offer, and is counted in it, or follows it, and is limited by it.

For that the Lease may never offer more than the node publishes: it is lowered before the Node object and raised after
it. An offer expires: a Lease that nobody renews must not close its node for ever.

Its spec is a Lease's usual one: `holderIdentity` is the agent, `renewTime` its heartbeat, `leaseDurationSeconds` how
long consumers may believe the number on the Node object after it.

A claim counts for some seconds after it was first read, longer than any watch lags, and is keyed by UID, so a Pod that
is claimed *and* seen bound counts once. Clocks of different machines are compared only for the expiry of an offer,
which is minutes.

Why a Lease and not the Node: every change of a Node wakes all who watch nodes, only extenders watch these Leases. Why
not leader election among extenders: the second one answers nothing, a takeover costs seconds, and agents lower their
numbers whoever leads.
"""

import json
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import Refused
from carico_agent.kube.pods import is_name
from carico_agent.net.times import parse_rfc3339, rfc3339

CLAIMS, OFFER = "carico.dev/claims", "carico.dev/offer"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node publishes. None: it publishes no such number."""

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

    def at_most(self, other: "Offer") -> "Offer":
        """Not above the other one's numbers, where both have one.

        >>> Offer(50, None).at_most(Offer(4, 3))
        Offer(places=4, resource=None)
        """
        return Offer(
            None if self.places is None else _least(self.places, other.places),
            None if self.resource is None else _least(self.resource, other.resource),
        )

    def raised(self, places: int, resource: int) -> "Offer":
        """At least these numbers, where there is a number at all."""
        return Offer(
            None if self.places is None else max(self.places, places),
            None if self.resource is None else max(self.resource, resource),
        )


NO_OFFER = Offer()


class Claim(NamedTuple):
    """One Pod that is about to be bound."""

    made_s: float
    """By the claimer's clock; only to distinguish a renewed claim from the old one."""
    holds: int = 0
    """What it asks of the extended resource."""
    pod: str = ""
    """"namespace/name"; empty: an extender wrote it that does not say."""


@dataclass(slots=True)
class LeaseRecord:
    """The content of a placement Lease as it was read."""

    version: str = ""
    """Its resourceVersion. Empty: the Lease does not exist yet."""
    offered: Offer = NO_OFFER
    until_s: float = inf
    """When that offer expires (wall clock, seconds since 1970)."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Claims by Pod UID."""
    holder: str = ""
    """The agent that writes it."""
    renewed_s: float = -inf
    """Its last heartbeat (wall clock); -inf: there was none, or only metadata was asked for."""
    ttl_s: float = 0.0
    """How long that is valid [s]."""

    def offer(self, now_s: float) -> Offer:
        """What is offered at `now_s` (wall clock)."""
        return self.offered if now_s < self.until_s else NO_OFFER


class ClaimExpiry:
    """Which claims of a Lease still count: each for `valid_s` after it was first read, by our own clock.

    >>> expiry, claim = ClaimExpiry(15.0), Claim(99.5)
    >>> [len(expiry.valid({"u": claim}, now_s)) for now_s in (0, 14, 15)], len(expiry.valid({"u": Claim(115.0)}, 16))
    ([1, 1, 0], 1)
    """

    def __init__(self, valid_s: float) -> None:
        self._valid_s = valid_s
        self._first_read_s: dict[tuple[str, Claim], float] = {}

    def valid(self, claims: dict[str, Claim], now_s: float) -> dict[str, Claim]:
        """Those of `claims`, all that the Lease has now, that count at `now_s` (monotonic)."""
        self._first_read_s = {one: self._first_read_s.get(one, now_s) for one in claims.items()}
        return {uid: claim for (uid, claim), read_s in self._first_read_s.items() if now_s - read_s < self._valid_s}


class PlacementLeases:
    """The placement Leases of all nodes, in one namespace, each with its node's name."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self, node: str) -> LeaseRecord:
        """The node's Lease; an empty record if there is none."""
        try:
            return lease_record(await self._client.get(f"{self._path}/{node}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            return LeaseRecord()

    async def offer(self, node: str, offer: Offer, ttl_s: float, owner: list[Object], holder: str = "") -> LeaseRecord:
        """Write what the node offers from now on, and that its agent, `holder`, is alive, whoever else is writing. The
        Lease is deleted with its `owner`."""
        offered = {"places": offer.places, "resource": offer.resource, "time": rfc3339(), "ttl_s": ttl_s}
        meta: Object = {"annotations": {OFFER: json.dumps(offered, separators=(",", ":"))}}
        if owner:
            meta["ownerReferences"] = owner
        spec = {
            "renewTime": rfc3339(digits="microseconds"),
            "holderIdentity": holder or None,
            "leaseDurationSeconds": max(1, round(ttl_s)),
        }
        try:
            return lease_record(await self._client.patch(f"{self._path}/{node}", {"metadata": meta, "spec": spec}))
        except Refused as refused:
            if refused.status != 404:
                raise
        return lease_record(await self._client.post(self._path, self._lease(node, meta, spec)))

    async def claim(self, node: str, known: LeaseRecord, claims: dict[str, Claim]) -> LeaseRecord | None:
        """Write these claims; None when somebody else has written since `known` was read: read and decide again."""
        meta: Object = {"annotations": {CLAIMS: json.dumps(claims, separators=(",", ":"))}}
        if known.version:
            meta["resourceVersion"] = known.version
        try:
            if not known.version:
                return lease_record(await self._client.post(self._path, self._lease(node, meta)))
            return lease_record(await self._client.patch(f"{self._path}/{node}", {"metadata": meta}))
        except Refused as refused:
            if refused.status == 409 or (refused.status == 404 and known.version):
                return None
            raise

    async def node_of(self, uid: str, claim: Claim) -> str:
        """Where the Pod of a claim is bound, as far as the API server's cache knows; empty: nowhere, or not known."""
        namespace, _, name = claim.pod.partition("/")
        if not is_name(namespace) or not is_name(name):
            return ""
        found = await self._client.get(
            f"/api/v1/namespaces/{namespace}/pods",
            {"fieldSelector": f"metadata.name={name}", "resourceVersion": "0"},
        )
        same = (pod for pod in found.get("items") or () if pod["metadata"]["uid"] == uid)
        return str(((next(same, None) or {}).get("spec") or {}).get("nodeName") or "")

    async def remove(self, node: str) -> None:
        """Delete the node's Lease, if there is one."""
        try:
            await self._client.delete(f"{self._path}/{node}")
        except Refused as refused:
            if refused.status != 404:
                raise

    def _lease(self, node: str, meta: Object, spec: Object | None = None) -> Object:
        named = {"name": node, "namespace": self._namespace, **meta}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named, "spec": spec or {}}


def lease_record(lease: Object) -> LeaseRecord:
    """Read one Lease object. Malformed annotations count as none.

    >>> offer = '{"places":8,"resource":null,"time":"2024-01-01T00:00:00Z","ttl_s":150}'
    >>> read = lease_record({"metadata": {"resourceVersion": "7", "annotations": {
    ...     "carico.dev/offer": offer, "carico.dev/claims": '{"u":[99.5,1]}'}}})
    >>> read.offer(1704067200), read.offer(1704067351), read.claims
    (Offer(places=8, resource=None), Offer(places=None, resource=None), {'u': Claim(made_s=99.5, holds=1, pod='')})
    """
    meta = lease["metadata"]
    annotations = meta.get("annotations") or {}
    (offered, until_s), (holder, renewed_s, ttl_s) = _offer(annotations.get(OFFER)), _heartbeat(lease.get("spec") or {})
    claims = _claims(annotations.get(CLAIMS))
    return LeaseRecord(meta["resourceVersion"], offered, until_s, claims, holder, renewed_s, ttl_s)


def _heartbeat(spec: Object) -> tuple[str, float, float]:
    """Holder, time of renewal and how long it is valid.

    >>> _heartbeat({"holderIdentity": "x", "renewTime": "2024-01-01T00:00:00.000000Z", "leaseDurationSeconds": 150})
    ('x', 1704067200.0, 150.0)
    >>> _heartbeat({"renewTime": 7})
    ('', -inf, 0.0)
    """
    try:
        return (
            str(spec.get("holderIdentity") or ""),
            parse_rfc3339(spec["renewTime"]),
            float(spec["leaseDurationSeconds"]),
        )
    except MALFORMED:
        return "", -inf, 0.0


MALFORMED = (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError)
"""What reading a malformed annotation raises: everybody with the right to write Leases may write anything there."""


def _offer(text: Any) -> tuple[Offer, float]:
    try:
        offered: Object = json.loads(text or "{}")
        until_s = parse_rfc3339(offered["time"]) + float(offered["ttl_s"])
        return Offer(_count(offered["places"]), _count(offered["resource"])), until_s
    except MALFORMED:
        return NO_OFFER, inf


def _claims(text: Any) -> dict[str, Claim]:
    try:
        claimed: Object = json.loads(text or "{}")
        claims = {uid: _claim(*claim) for uid, claim in claimed.items()}
    except MALFORMED:
        return {}
    return {uid: claim for uid, claim in claims.items() if isfinite(claim.made_s) and claim.holds >= 0}


def _claim(made_s: Any, holds: Any, pod: Any = "") -> Claim:
    return Claim(float(made_s), int(holds), str(pod))


def _count(number: Any) -> int | None:
    if number is None:
        return None
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is no count")
    return number


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)
