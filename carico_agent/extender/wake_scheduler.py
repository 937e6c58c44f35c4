"""Makes kube-scheduler ask again about a Pod that every node was refused for, once one would be accepted.

kube-scheduler tries such a Pod again when something in the cluster changes, else after five minutes. What changes in an
extender alone is no such event: its watch catches up with what kube-scheduler saw before it, or a workload has run long
enough to be profiled. So we make one: an annotation of the Node that would be accepted.

It is written only when kube-scheduler has not asked about the Pod for a second, so events that do their work by
themselves are not doubled. A Pod for which it did not help is not written for again soon: then something else than our
answer keeps it. kube-scheduler before 1.30 does not look at annotations; there the Pod waits as long as it does.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.policy import Policy
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.names import ROOM_AGAIN
from carico_agent.lib.net.times import rfc3339
from carico_agent.lib.supervise.backoff import Backoff

log = logging.getLogger(__name__)

ROUND_S = 0.5
QUIET_S = 1.0
"""kube-scheduler has had this long to ask again by itself [s]."""
NEXT_WAKES = Backoff(first_s=5.0, factor=4.0, max_s=300.0)
"""After a write that did not help."""
MAX_ALIKE = 64
"""Sorts of refused Pods that are remembered. Pods of one template are alike: one of them is asked about."""
MAX_PODS = 10_000


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """Filter refused all of these nodes for it."""

    pod: PendingPod
    nodes: list[str]


@dataclass(slots=True)
class _Alike:
    """Refused Pods of one template. All of them wait for the same room."""

    nodes: list[str]
    asked_s: dict[str, float] = field(default_factory=dict)  # by UID: when kube-scheduler asked last
    pod: PendingPod = field(default_factory=lambda: PendingPod(""))
    wakes: int = 0
    next_s: float = 0.0


class WakeScheduler:
    """`run` looks at the refused Pods again and again."""

    def __init__(self, client: KubeClient, cluster: Cluster, policy: Policy[Any]) -> None:
        self._client, self._cluster, self._policy = client, cluster, policy
        self._alike: OrderedDict[tuple[object, ...], _Alike] = OrderedDict()
        self._sort_of: dict[str, tuple[object, ...]] = {}  # by UID
        self._trouble = ""
        self.wakes = 0

    def refused(self, one: RefusedPod) -> None:
        """Filter has just refused every node for this Pod."""
        pod = one.pod
        if not pod.uid:
            return
        sort = pod.workload, pod.holds, pod.cpu, pod.memory, pod.requested
        alike = self._alike.get(sort)
        if alike is None:
            alike = self._alike[sort] = _Alike(one.nodes)
        alike.pod, alike.nodes, alike.asked_s[pod.uid] = pod, one.nodes, time.monotonic()
        self._sort_of[pod.uid] = sort
        if len(self._alike) > MAX_ALIKE or len(self._sort_of) > MAX_PODS:
            self._forget(next(iter(self._alike)))

    def passed(self, uid: str) -> None:
        """Filter has just accepted a node for it."""
        if (sort := self._sort_of.pop(uid, None)) is not None and (alike := self._alike.get(sort)) is not None:
            alike.asked_s.pop(uid, None)
            alike.wakes = 0

    def _forget(self, sort: tuple[object, ...]) -> None:
        for uid in self._alike.pop(sort).asked_s:
            self._sort_of.pop(uid, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.round(time.monotonic())
                self._trouble = ""
            except KubeError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("cannot tell kube-scheduler that a waiting Pod has room: %s", error)

    async def round(self, now_s: float) -> None:
        """One write at most: it makes kube-scheduler ask about all Pods that wait for an extender."""
        for sort, alike in list(self._alike.items()):
            self._drop_placed(sort, alike)
            if not alike.asked_s:
                del self._alike[sort]
            elif node := self._room_for(alike, now_s):
                alike.wakes += 1
                alike.next_s = now_s + NEXT_WAKES.delay_s(alike.wakes)
                await self._wake(node)
                return

    def _drop_placed(self, sort: tuple[object, ...], alike: _Alike) -> None:
        """Pods that no longer wait for a node."""
        for uid in [uid for uid in alike.asked_s if self._cluster.waiting(uid) is None]:
            del alike.asked_s[uid]
            self._sort_of.pop(uid, None)

    def _room_for(self, alike: _Alike, now_s: float) -> str:
        """A node that would be accepted for a Pod about which kube-scheduler does not ask; empty: there is none."""
        if now_s < alike.next_s or min(alike.asked_s.values()) > now_s - QUIET_S:
            return ""
        names = [name for name in alike.nodes if name in self._cluster.nodes]
        if not names:
            return ""
        fits = self._policy.fits(self._cluster.table.of(names), alike.pod, now_s)
        return names[int(fits.argmax())] if fits.any() else ""

    async def _wake(self, node: str) -> None:
        notes = {ROOM_AGAIN: rfc3339()}
        await self._client.patch(f"/api/v1/nodes/{node}/status", {"metadata": {"annotations": notes}})
        self.wakes += 1
