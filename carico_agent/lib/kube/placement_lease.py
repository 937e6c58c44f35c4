"""The placement Lease of a node: its agent writes what the node offers, and the leading extender who is on the way.

Kubernetes has no "bind if the node still offers 8 places". Numbers fall seldom and Pods are bound often, so the writing
is done when a number falls, and none when a Pod is bound. Of all extenders one leads, by a Lease of its own
(LEADER_LEASE). It places Pods, which is to decide that one may be bound to a node, against the newest offer that it has
seen, counts them in its memory, and writes nothing.

An agent that lowers its number first writes the lower offer here, with a token, and waits: the leader acknowledges the
token and names the Pods that it has placed lately and that may still come. Only then the agent publishes the lower
number, and not below who is here or on the way.

Why no Pod is bound beyond the number: every placement was decided on some offer that the leader had seen. If a lower
one had been written by then, it was not acknowledged yet, hence not published, and the acknowledgement, written later,
names the Pod. An acknowledgement counts only if the leader's Lease, read after it, still has that leader's term: the
next leader reads all offers after it has taken its Lease, and places no Pod until nothing that the last one placed
can be under way any more. Where no leader is alive no extender places Pods: the agent waits as long as a new leader
would.

For that the Lease may never offer more than the node publishes. It is lowered before the Node object. It is also raised
before it, but conditionally: a **rise** has an id, and holds for a leader as soon as that leader sees the Node object
with the same id. The Node object that carries the id publishes the higher number, so an offer that holds was published
before. Until then the old offer holds.

Why the Lease is not raised after the Node: kube-scheduler acts within a millisecond of a Node's event, and the leader
refused 21 of 25 Pods that were bound right after a rise, because it had not seen the higher Lease yet (Kubernetes 1.36;
they waited for 1.2 s in the median). Why not before it without a condition: a leader whose watch of Nodes is behind
takes a Node object of before the last fall, and the raised Lease, for one offer.

An offer expires: a Lease that its agent no longer renews does not close its node.

Its spec is a Lease's usual one: `holderIdentity` is the agent, `renewTime` its heartbeat, `leaseDurationSeconds` how
long consumers may believe the number on the Node object after it.

What is assumed: a Pod that was placed is bound, and seen so by every watch, within `bound_within_s`, or never; clocks
run equally fast. They are compared only for the expiry of an offer, which is minutes. A Pod is known by its UID, so one
that is on the way *and* seen bound counts once.

Why a Lease and not the Node: every change of a Node wakes all who watch nodes, only extenders watch these Leases.
"""

import json
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.leader import LeaderRecord, read_leader
from carico_agent.lib.kube.leases import lease_object, leases_path
from carico_agent.lib.kube.pods import is_name
from carico_agent.lib.net.times import parse_rfc3339, rfc3339

OFFER, PLACED = "carico.dev/offer", "carico.dev/placed"

LEADER_LEASE = "carico-extender"
"""The Lease of the leading extender, in the same namespace. Agents read it, and extenders see it in their watch of the
placement Leases: what was written before it has then been seen."""

QUESTIONS_LEASE = "carico-extender-questions"
"""The Lease in which extenders that do not lead ask the one that does."""

EXTENDERS_LEASES = (LEADER_LEASE, QUESTIONS_LEASE)
"""Those in the namespace of the placement Leases that belong to no node."""

TIMES = "carico.dev/times"
"""Annotation of the leader's Lease: for how long Pods count that it has placed, and until when one may be under way."""


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

    def max(self, other: "Offer") -> "Offer":
        """The higher of both, number by number.

        >>> Offer(8, 3).max(Offer(5, 4)), Offer(8).max(Offer(None, 4))
        (Offer(places=8, resource=4), Offer(places=8, resource=4))
        """
        return Offer(_max(self.places, other.places), _max(self.resource, other.resource))

    def raised(self, places: int, resource: int) -> "Offer":
        """At least these numbers, where there is a number at all."""
        return Offer(
            None if self.places is None else max(self.places, places),
            None if self.resource is None else max(self.resource, resource),
        )


NO_OFFER = Offer()


@dataclass(frozen=True, slots=True)
class Rise:
    """A higher offer, for extenders that see the Node object with this id. Empty: there is none."""

    id: str = ""
    offer: Offer = NO_OFFER


NO_RISE = Rise()


class PlacedPod(NamedTuple):
    """One Pod that was placed on a node and may not be seen there yet."""

    made_s: float
    """By the leader's clock; only to distinguish a later placement of the same Pod."""
    holds: int = 0
    """What it asks of the extended resource."""
    pod: str = ""
    """"namespace/name"."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A leader has seen an offer."""

    token: str = ""
    """The offer's."""
    leader: str = ""
    term: int = 0
    placed: dict[str, PlacedPod] = field(default_factory=dict)
    """Pods by UID that may still come, whatever that offer is."""


@dataclass(slots=True)
class LeaseRecord:
    """The content of a placement Lease as it was read."""

    version: str = ""
    """Its resourceVersion. Empty: the Lease does not exist yet."""
    offered: Offer = NO_OFFER
    """What holds without a condition."""
    until_s: float = inf
    """When that offer expires (wall clock, seconds since 1970)."""
    token: str = ""
    """The agent waits until the leader has seen this. Empty: it does not wait."""
    acknowledged: Acknowledgement = Acknowledgement()
    holder: str = ""
    """The agent that writes it."""
    renewed_s: float = -inf
    """Its last heartbeat (wall clock); -inf: there was none, or only metadata was asked for."""
    ttl_s: float = 0.0
    """How long that is valid [s]."""
    rise: Rise = NO_RISE

    def offer(self, now_s: float, node_rise: str = "") -> Offer:
        """What is offered at `now_s` (wall clock) to an extender that sees the Node object with the id `node_rise`."""
        if now_s >= self.until_s:
            return NO_OFFER
        return self.rise.offer if self.rise.id and self.rise.id == node_rise else self.offered


class PlacedExpiry:
    """Which placed Pods still count: each for `valid_s` after it was first read, by our own clock.

    >>> expiry, one = PlacedExpiry(15.0), PlacedPod(99.5)
    >>> [len(expiry.valid({"u": one}, now_s)) for now_s in (0, 14, 15)], len(expiry.valid({"u": PlacedPod(115.0)}, 16))
    ([1, 1, 0], 1)
    """

    def __init__(self, valid_s: float) -> None:
        self.valid_s = valid_s
        self._first_read_s: dict[tuple[str, PlacedPod], float] = {}

    def valid(self, placed: dict[str, PlacedPod], now_s: float) -> dict[str, PlacedPod]:
        """Those of `placed`, all that the Lease names now, that count at `now_s` (monotonic)."""
        self._first_read_s = {one: self._first_read_s.get(one, now_s) for one in placed.items()}
        return {uid: one for (uid, one), read_s in self._first_read_s.items() if now_s - read_s < self.valid_s}


@dataclass(frozen=True, slots=True)
class PlacedTimes:
    """What a leader says of the Pods that it places, beside its Lease."""

    bound_within_s: float = 15.0
    """After this long a Pod that was placed is seen bound by everybody, or never comes [s]."""
    under_way_s: float = 15.0
    """For how long, from when this was written, a Pod may be under way that it or a leader before it has placed."""

    def encode(self) -> str:
        times = {"bound_within_s": self.bound_within_s, "under_way_s": round(self.under_way_s, 1)}
        return json.dumps(times, separators=(",", ":"))


def max_under_way_s(leader: LeaderRecord) -> float:
    """When a leader's Lease has not changed for this long, nothing that was placed under it can be under way [s].

    >>> max_under_way_s(LeaderRecord()), max_under_way_s(LeaderRecord("7", "x", 1, 8))
    (0.0, 23.0)
    >>> max_under_way_s(LeaderRecord("7", "", 1, 1, ((TIMES, PlacedTimes(15.0, 5.0).encode()),)))
    5.0
    """
    if not leader.version:
        return 0.0
    times = placed_times(leader)
    return leader.duration_s + times.bound_within_s if leader.holder else times.under_way_s


def placed_times(leader: LeaderRecord) -> PlacedTimes:
    """Malformed ones count as the usual ones."""
    try:
        times: Object = json.loads(leader.annotation(TIMES) or "{}")
        read = PlacedTimes(float(times["bound_within_s"]), float(times["under_way_s"]))
    except MALFORMED:
        return PlacedTimes()
    return read if 0 < read.bound_within_s < 3600 and 0 <= read.under_way_s < 3600 else PlacedTimes()


class PlacementLeases:
    """The placement Leases of all nodes, in one namespace, each with its node's name."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._path = leases_path(namespace)

    async def read(self, node: str) -> LeaseRecord:
        """The node's Lease; an empty record if there is none."""
        try:
            return lease_record(await self._client.get(f"{self._path}/{node}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            return LeaseRecord()

    async def leader(self) -> LeaderRecord:
        """The leading extender's Lease; an empty record if there is none."""
        return await read_leader(self._client, f"{self._path}/{LEADER_LEASE}")

    async def offer(
        self,
        node: str,
        offer: Offer,
        ttl_s: float,
        owner: list[Object],
        holder: str = "",
        token: str = "",
        rise: Rise = NO_RISE,
    ) -> LeaseRecord:
        """Write what the node offers from now on, and that its agent, `holder`, is alive, whatever other client writes.
        The Lease is deleted with its `owner`."""
        offered: Object = {**_numbers(offer), "time": rfc3339(), "ttl_s": ttl_s}
        if token:
            offered["token"] = token
        if rise.id:
            offered["rise"] = {"id": rise.id, **_numbers(rise.offer)}
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
        named = {"name": node, "namespace": self._namespace, **meta}
        return lease_record(await self._client.post(self._path, lease_object(named, spec)))

    async def acknowledge(self, node: str, seen: Acknowledgement) -> None:
        """The leader has seen the offer with this token. A Lease that is gone needs no acknowledgement."""
        body = {"token": seen.token, "leader": seen.leader, "term": seen.term, "pods": seen.placed}
        notes = {PLACED: json.dumps(body, separators=(",", ":"))}
        try:
            await self._client.patch(f"{self._path}/{node}", {"metadata": {"annotations": notes}})
        except Refused as refused:
            if refused.status != 404:
                raise

    async def node_of(self, uid: str, placed: PlacedPod) -> str:
        """Where that Pod is bound, as far as the API server's cache knows; empty: nowhere, or not known."""
        namespace, _, name = placed.pod.partition("/")
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


def lease_record(lease: Object) -> LeaseRecord:
    """Read one Lease object. Malformed annotations count as none.

    >>> offer = '{"places":8,"resource":null,"time":"2024-01-01T00:00:00Z","ttl_s":150,"token":"t"}'
    >>> seen = '{"token":"t","leader":"x","term":2,"pods":{"u":[99.5,1,"d/p"]}}'
    >>> notes = {"carico.dev/offer": offer, "carico.dev/placed": seen}
    >>> read = lease_record({"metadata": {"resourceVersion": "7", "annotations": notes}})
    >>> read.offer(1704067200), read.offer(1704067351), read.token
    (Offer(places=8, resource=None), Offer(places=None, resource=None), 't')
    >>> read.acknowledged
    Acknowledgement(token='t', leader='x', term=2, placed={'u': PlacedPod(made_s=99.5, holds=1, pod='d/p')})
    """
    meta = lease["metadata"]
    annotations = meta.get("annotations") or {}
    offered, until_s, token, rise = _offer(annotations.get(OFFER))
    holder, renewed_s, ttl_s = _heartbeat(lease.get("spec") or {})
    acknowledged = _acknowledgement(annotations.get(PLACED))
    return LeaseRecord(meta["resourceVersion"], offered, until_s, token, acknowledged, holder, renewed_s, ttl_s, rise)


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
            min(float(spec["leaseDurationSeconds"]), MAX_TTL_S),
        )
    except MALFORMED:
        return "", -inf, 0.0


MAX_TTL_S = 3600.0
"""The longest `kubernetes.ttl_s`: a number that claims to be valid for longer is believed for this long [s]."""

MALFORMED = (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError)
"""What reading a malformed annotation raises: everybody with the right to write Leases may write anything there."""


def _numbers(offer: Offer) -> Object:
    return {"places": offer.places, "resource": offer.resource}


def _offer(text: Any) -> tuple[Offer, float, str, Rise]:
    """
    >>> rise = '{"id":"r","places":8,"resource":8}'
    >>> _offer('{"places":5,"resource":5,"time":"2024-01-01T00:00:00Z","ttl_s":9,"rise":' + rise + "}")
    (Offer(places=5, resource=5), 1704067209.0, '', Rise(id='r', offer=Offer(places=8, resource=8)))
    """
    try:
        offered: Object = json.loads(text or "{}")
        until_s = parse_rfc3339(offered["time"]) + min(float(offered["ttl_s"]), MAX_TTL_S)
        rise: Object | None = offered.get("rise")
        higher = NO_RISE if rise is None else Rise(str(rise["id"]), _read_numbers(rise))
        return _read_numbers(offered), until_s, str(offered.get("token") or ""), higher
    except MALFORMED:
        return NO_OFFER, inf, "", NO_RISE


def _read_numbers(offered: Object) -> Offer:
    return Offer(_count(offered["places"]), _count(offered["resource"]))


def _acknowledgement(text: Any) -> Acknowledgement:
    if not text:
        return _NONE
    try:
        body: Object = json.loads(text)
        placed = {str(uid): _placed(*one) for uid, one in body["pods"].items()}
        seen = Acknowledgement(str(body["token"]), str(body["leader"]), int(body["term"]), placed)
    except MALFORMED:
        return _NONE
    sound = all(isfinite(one.made_s) and one.holds >= 0 for one in placed.values())
    return seen if sound else _NONE


_NONE = Acknowledgement()


def _placed(made_s: Any, holds: Any, pod: Any = "") -> PlacedPod:
    return PlacedPod(float(made_s), int(holds), str(pod))


def _count(number: Any) -> int | None:
    if number is None:
        return None
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is no count")
    return number


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _max(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)
