"""Claiming places in the nodes' placement Leases (kube/placement_lease.py): the scheduler's side of that protocol."""

import asyncio
import time
from collections.abc import Callable, Collection

from carico_agent.kube.placement_lease import Claim, ClaimExpiry, LeaseRecord, Offer, PlacementLeases
from carico_agent.schedule.nodes import PendingPod

CLAIM_TRIES = 5

MOST_CLAIMS = 256
"""Claims in one Lease. No kubelet takes in so many Pods within seconds, and a Lease must stay small."""

Check = Callable[[Offer, dict[str, Claim]], str | None]
"""Why the Pod cannot come, given what the Lease offers and the valid claims of other Pods; None if it can."""


class CachedLease:
    """A node's Lease as last read or written. A claim needs its version, so one Pod at a time claims."""

    def __init__(self, valid_s: float) -> None:
        self.record: LeaseRecord | None = None
        self.expiry = ClaimExpiry(valid_s)
        self.lock = asyncio.Lock()


class LeaseClaims:
    """The Leases of all nodes, as far as we have claimed places there. Claims count for `valid_s`."""

    def __init__(self, leases: PlacementLeases, valid_s: float) -> None:
        self._leases, self._valid_s = leases, valid_s
        self._cached: dict[str, CachedLease] = {}
        self.conflicts = 0
        """Claims that failed because somebody else had written first."""

    async def claim(self, node: str, pod: PendingPod, check: Check) -> str | None:
        """Write a claim for `pod` if `check` allows it; returns why not. Nobody notifies us when a Lease changes: a
        claim that somebody else preceded fails, and a record that was read earlier refuses nobody."""
        cached = self._cached.setdefault(node, CachedLease(self._valid_s))
        async with cached.lock:
            for _ in range(CLAIM_TRIES):
                fresh = cached.record is None
                record = cached.record = cached.record or await self._leases.read(node)
                valid = cached.expiry.valid(record.claims, time.monotonic())
                others = {uid: claim for uid, claim in valid.items() if uid != pod.uid}
                why = check(record.offer(time.time()), others)
                if why is None and len(others) >= MOST_CLAIMS:
                    why = f"{len(others)} Pods are on their way here already"
                if why is None:
                    if await self._write(cached, record, node, valid, pod):
                        return None
                elif fresh:
                    return why
                else:
                    cached.record = None
        return "others keep taking places here"

    async def _write(
        self, cached: CachedLease, record: LeaseRecord, node: str, valid: dict[str, Claim], pod: PendingPod
    ) -> bool:
        cached.record = None  # if the response is lost we do not know what the Lease contains
        claims = valid | {pod.uid: Claim(round(time.time(), 3), pod.holds, pod.name)}
        cached.record = await self._leases.claim(node, record, claims)
        self.conflicts += cached.record is None
        return cached.record is not None

    def withdraw(self, node: str, pod: PendingPod) -> None:
        """It will not be bound there after all: the next claim that is written leaves it out."""
        if (cached := self._cached.get(node)) is not None and cached.record is not None:
            cached.record.claims.pop(pod.uid, None)

    def forget_others(self, nodes: Collection[str]) -> None:
        """Keep no Lease of nodes that are not among these."""
        for node in [node for node in self._cached if node not in nodes]:
            del self._cached[node]
