"""Which Pods were placed lately, and whether we may place any: the leading extender's side of kube/placement_lease.py.

Placing a Pod writes nothing. Only an agent that lowers its number is answered, with those who may still come.
"""

import asyncio
import logging
import time
from math import inf

from carico_agent.extender.nodes import PendingPod
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.leader import LeaderLease, LeaderRecord, SeenLeader
from carico_agent.lib.kube.placement_lease import (
    TIMES,
    Acknowledgement,
    LeaseRecord,
    PlacedPod,
    PlacedTimes,
    PlacementLeases,
    max_under_way_s,
)
from carico_agent.lib.net.times import boottime_s

log = logging.getLogger(__name__)

MAX_ON_THE_WAY = 256
"""Pods placed lately on one node. No kubelet takes in so many within seconds, and a Lease must stay small."""

AGAIN_S = 0.5
"""An acknowledgement that could not be written is tried again after this [s]."""

SILENT_S = 8.0
"""Our own Lease is renewed every 2 s. A watch that shows nothing for this long hangs [s]."""

EXPIRE_S = 1.0

AT_ONCE = 16
"""Acknowledgements on their way at a time."""


class PlacedPods:
    """Remembers the Pods that this extender places, and acknowledges lower offers while `run` runs. The caller shows it
    every placement Lease, and the leader's, in the order in which its watch sees them."""

    def __init__(
        self,
        leases: PlacementLeases,
        leader: LeaderLease,
        bound_within_s: float,
    ) -> None:
        self._leases, self.leader, self._bound_within_s = leases, leader, bound_within_s
        self._recent: dict[str, dict[str, tuple[float, PlacedPod]]] = {}  # by node and UID: when, what
        self._nodes: dict[str, set[str]] = {}  # the same by UID: where
        self._last_s = self._expire_at_s = -inf
        self._seen, self._hangs = SeenLeader(), False
        self._waiting: dict[str, str] = {}  # nodes whose agents wait, and their tokens
        self._wakeup = asyncio.Event()
        self._trouble = ""
        self.acknowledged = 0

    def times(self) -> Object:
        """Annotations of the leader's Lease."""
        own_s = self._last_s + self._bound_within_s - boottime_s()
        return {TIMES: PlacedTimes(self._bound_within_s, max(0.0, own_s, self._predecessor_s())).encode()}

    def _predecessor_s(self) -> float:
        """For how long a Pod may be under way that the last leader placed [s]; not positive: none is."""
        before, since_s = self.leader.before
        return since_s + max_under_way_s(before) - boottime_s()

    # ---- may we

    @property
    def another_leads(self) -> bool:
        return self._seen.now.holder not in ("", self.leader.identity) and not self.leader.leads

    def why_not(self) -> str | None:
        """Why this extender may place no Pod now."""
        leader = self.leader
        if not leader.leads:
            return f"extender {leader.holder} leads" if self.another_leads else "no extender leads yet"
        if (self._seen.now.holder, self._seen.now.term) != (leader.identity, leader.term):
            return "this extender leads and does not know all offers yet"
        if (left_s := self._predecessor_s()) > 0:
            return f"Pods that the last leader placed may be on their way for {left_s:.0f} s"
        return None

    def fit_to_lead(self) -> bool:
        """Not while the watch of Leases hangs: agents would wait for an answer that another extender could give."""
        if self.leader.leads and boottime_s() - max(self._seen.seen_s, self.leader.since_s) > SILENT_S:
            self._hangs = True
        return not self._hangs

    def add(self, node: str, pod: PendingPod) -> str | None:
        """`pod` is placed on `node`; returns why it cannot be."""
        now_s = boottime_s()
        lately = self.on_the_way(node)
        if len(lately) >= MAX_ON_THE_WAY and pod.uid not in lately:
            return f"{len(lately)} Pods are on their way here already"
        made = PlacedPod(round(time.time(), 3), pod.holds, pod.name)
        self._recent.setdefault(node, {})[pod.uid] = now_s, made
        self._nodes.setdefault(pod.uid, set()).add(node)
        self._last_s = now_s
        return None

    def remove(self, node: str, uid: str) -> None:
        """It will not be bound there after all, for sure."""
        if self._recent.get(node, {}).pop(uid, None) is not None:
            self._forget(node, uid)

    def elsewhere(self, uid: str, node: str) -> int:
        """Other nodes than `node` that this Pod was placed on lately."""
        old_s = boottime_s() - self._bound_within_s
        return sum(self._recent[other][uid][0] > old_s for other in self._nodes.get(uid, ()) if other != node)

    def _forget(self, node: str, uid: str) -> None:
        nodes = self._nodes[uid]
        nodes.discard(node)
        if not nodes:
            del self._nodes[uid]

    def on_the_way(self, node: str) -> dict[str, PlacedPod]:
        """Who was placed on `node` lately, by UID: bound by now, on the way, or never to come."""
        old_s = boottime_s() - self._bound_within_s
        return {uid: one for uid, (since_s, one) in self._recent.get(node, {}).items() if since_s > old_s}

    def expire(self) -> None:
        """Forget who was placed long ago. Called ten times a second; every second is often enough."""
        if (now_s := boottime_s()) < self._expire_at_s:
            return
        self._expire_at_s, old_s = now_s + EXPIRE_S, now_s - self._bound_within_s
        for node, recent in list(self._recent.items()):
            for uid in [uid for uid, (since_s, _) in recent.items() if since_s <= old_s]:
                del recent[uid]
                self._forget(node, uid)
            if not recent:
                del self._recent[node]

    # ---- what the watch of Leases shows

    def leader_seen(self, found: LeaderRecord) -> None:
        self._seen.see(found, boottime_s())
        self._hangs = False
        self._wakeup.set()

    def lease_seen(self, node: str, found: LeaseRecord) -> None:
        """A token that a leader before us has acknowledged is not acknowledged again: an agent that does not believe
        that one writes another token."""
        self._hangs = False
        if found.token and found.acknowledged.token != found.token:
            self._waiting[node] = found.token
            self._wakeup.set()
        else:
            self._waiting.pop(node, None)

    # ---- acknowledging

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._waiting and self.why_not() is None:
                await self.acknowledge()
            if self._waiting:
                await asyncio.sleep(AGAIN_S if self._trouble or self.why_not() else 0)
                self._wakeup.set()

    async def acknowledge(self) -> None:
        """Answer all agents that wait, some at a time. An agent that cannot be answered goes on waiting."""
        batch = list(self._waiting.items())[:AT_ONCE]
        results = await asyncio.gather(*(self._acknowledge(node, token) for node, token in batch))
        self._trouble = next((why for why in results if why), "")

    async def _acknowledge(self, node: str, token: str) -> str:
        seen = Acknowledgement(token, self.leader.identity, self.leader.term, self.on_the_way(node))
        try:
            await self._leases.acknowledge(node, seen)
        except KubeError as error:
            if str(error) != self._trouble:
                log.warning("%s: its lower number waits, the acknowledgement could not be written: %s", node, error)
            if node in self._waiting:  # the others first
                self._waiting[node] = self._waiting.pop(node)
            return str(error)
        self.acknowledged += 1
        if self._waiting.get(node) == token:
            del self._waiting[node]
        return ""
