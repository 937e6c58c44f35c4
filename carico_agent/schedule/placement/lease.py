"""Claiming places in the nodes' placement Leases (kube/placement_lease.py): the scheduler's side of that protocol.

A claim is one write. Its node's Lease is known from the watch of all Leases, so nothing is read before. A watch may be
behind: then the write fails, and only then the Lease is read. Pods that come while a write to their node's Lease is on
its way are claimed together in the next one.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from carico_agent.kube.placement_lease import Claim, ClaimExpiry, LeaseRecord, Offer, PlacementLeases
from carico_agent.schedule.nodes import PendingPod

CLAIM_TRIES = 5

MOST_CLAIMS = 256
"""Claims in one Lease. No kubelet takes in so many Pods within seconds, and a Lease must stay small."""

RENEW_RATIO = 1 / 3
"""A claim of ours that is younger than this part of its time is not written again. A binding that has its place by
`bind`, and that the API server then asks about (`admit`), needs one claim."""

Check = Callable[[Offer, dict[str, Claim]], str | None]
"""Why the Pod cannot come, given what the Lease offers and the valid claims of other Pods; None if it can."""

Seen = Callable[[str], LeaseRecord | None]
"""A node's Lease as the watch shows it, an empty record if there is none; None: nobody watches."""


@dataclass(eq=False, slots=True)
class _Request:
    """A Pod that is to be claimed for."""

    pod: PendingPod
    check: Check
    done: bool = False
    why: str | None = None


class CachedLease:
    """A node's Lease as last read or written, and who waits to be claimed for. A claim needs the Lease's version, so
    one write is on its way at a time."""

    def __init__(self, valid_s: float) -> None:
        self.record: LeaseRecord | None = None
        self.expiry = ClaimExpiry(valid_s)
        self.lock = asyncio.Lock()
        self.waiting: list[_Request] = []
        self.written_s: dict[str, float] = {}
        """When we sent the claim of a Pod (monotonic)."""
        self.withdrawn: dict[str, Claim] = {}
        """Claims of ours that stand in the Lease until the next write."""

    def valid(self, record: LeaseRecord, now_s: float) -> dict[str, Claim]:
        """The claims of `record` that count."""
        valid = self.expiry.valid(record.claims, now_s)
        self.written_s = {uid: sent_s for uid, sent_s in self.written_s.items() if uid in valid}
        self.withdrawn = {uid: claim for uid, claim in self.withdrawn.items() if valid.get(uid) == claim}
        return {uid: claim for uid, claim in valid.items() if uid not in self.withdrawn}


class LeaseClaims:
    """The Leases of all nodes, as far as we have claimed places there. Claims count for `valid_s`."""

    def __init__(self, leases: PlacementLeases, valid_s: float, seen: Seen = lambda node: None) -> None:
        self._leases, self._valid_s, self._seen = leases, valid_s, seen
        self._cached: dict[str, CachedLease] = {}
        self.conflicts = 0
        """Claims that failed because somebody else had written first."""

    async def claim(self, node: str, pod: PendingPod, check: Check) -> str | None:
        """Write a claim for `pod` if `check` allows it; returns why not. Whoever comes first writes for all who wait
        by then; if that fails, each tries for itself."""
        cached = self._cached.setdefault(node, CachedLease(self._valid_s))
        request = _Request(pod, check)
        cached.waiting.append(request)
        try:
            async with cached.lock:
                if not request.done:
                    await self._claim_all(node, cached)
        finally:
            cached.waiting = [other for other in cached.waiting if other is not request]
        return request.why

    async def _claim_all(self, node: str, cached: CachedLease) -> None:
        """Decide about all who wait. A record that may be old refuses nobody."""
        asked, record = list(cached.waiting), self._newest(node, cached)
        fresh = record is None
        for _ in range(CLAIM_TRIES):
            if record is None:
                record, fresh = await self._leases.read(node), True
            valid = cached.valid(record, time.monotonic())
            allowed, refused = self._decide(cached, record.offer(time.time()), valid, asked)
            if allowed:
                record = await self._write(cached, record, node, valid, allowed)
                if record is not None:  # nobody has written since: it is as new as one that was just read
                    fresh = True
                    _finish(allowed)
            elif fresh:
                cached.record = record
                for request, why in refused:
                    _finish([request], why)
            else:
                record = None
            asked = [request for request in asked if not request.done]
            if not asked:
                return
        _finish(asked, "others keep taking places here")

    def _newest(self, node: str, cached: CachedLease) -> LeaseRecord | None:
        """What we wrote last, or what the watch has shown since. Versions are compared as numbers, as client-go does:
        a wrong guess costs a conflict, no more."""
        known = [record for record in (cached.record, self._seen(node)) if record is not None]
        return max(known, key=_version, default=None)

    def _decide(
        self, cached: CachedLease, offer: Offer, valid: dict[str, Claim], asked: list[_Request]
    ) -> tuple[list[_Request], list[tuple[_Request, str]]]:
        """Who may come, one after the other, and who may not and why. Who has claimed just now need not again."""
        claims, allowed, refused = dict(valid), list[_Request](), list[tuple[_Request, str]]()
        renew_s = time.monotonic() - RENEW_RATIO * self._valid_s
        for request in asked:
            pod = request.pod
            own = claims.pop(pod.uid, None)
            if own is not None and own.holds == pod.holds and cached.written_s.get(pod.uid, renew_s) > renew_s:
                claims[pod.uid] = own
                _finish([request])
                continue
            why = request.check(offer, claims)
            if why is None and len(claims) >= MOST_CLAIMS:
                why = f"{len(claims)} Pods are on their way here already"
            if why is None:
                allowed.append(request)
                claims[pod.uid] = _claim(pod)
            else:
                refused.append((request, why))
                if own is not None:
                    claims[pod.uid] = own
        return allowed, refused

    async def _write(
        self, cached: CachedLease, record: LeaseRecord, node: str, valid: dict[str, Claim], allowed: list[_Request]
    ) -> LeaseRecord | None:
        """The Lease with these claims; None: somebody else has written first."""
        cached.record = None  # if the response is lost we do not know what the Lease contains
        sent_s = time.monotonic()
        claims = valid | {request.pod.uid: _claim(request.pod) for request in allowed}
        cached.record = await self._leases.claim(node, record, claims)
        self.conflicts += cached.record is None
        if cached.record is not None:
            cached.written_s |= {request.pod.uid: sent_s for request in allowed}
        return cached.record

    def withdraw(self, node: str, pod: PendingPod) -> None:
        """It will not be bound there after all: the next claim that is written leaves it out."""
        cached = self._cached.get(node)
        if cached is None or cached.record is None:
            return
        if (claim := cached.record.claims.get(pod.uid)) is not None:
            cached.withdrawn[pod.uid] = claim
            cached.written_s.pop(pod.uid, None)

    def forget_others(self, nodes: Collection[str]) -> None:
        """Keep no Lease of nodes that are not among these."""
        for node in [node for node in self._cached if node not in nodes]:
            del self._cached[node]


def _claim(pod: PendingPod) -> Claim:
    return Claim(round(time.time(), 3), pod.holds, pod.name)


def _version(record: LeaseRecord) -> int:
    return int(record.version) if record.version.isdecimal() else 0


def _finish(requests: list[_Request], why: str | None = None) -> None:
    for request in requests:
        request.done, request.why = True, why
