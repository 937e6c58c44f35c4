"""Members of a gang get their places one by one in filter, and all or none of them.

kube-scheduler runs filter for every member before any of them is bound (`spec.schedulingGroup`, alpha in 1.36; the
Coscheduling plugin alike). Filter holds no place, so it would offer the same room to each of them, bind would refuse
the last ones, and a part of the gang would be bound.

So filter chooses the node for a member, hands back that one alone, and holds the place there for a while. When a member
finds no node the places of its whole gang are free again at once: no Pod waits for a gang that does not fit. It is
still decided at the binding: a replica does not know what another one holds.

Members that ask for the extended resource need none of this: kube-scheduler counts their places itself.
"""

import time
from collections.abc import Mapping
from typing import Any

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import PendingPod

HOLD_S = 5.0
"""For how long a member's place is held until it is bound [s]. kube-scheduler's own gangs are bound at once; those of
Coscheduling may wait for longer, and are then decided at the binding."""

GANG_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "kueue.x-k8s.io/pod-group-name",
)
"""Of the Coscheduling plugin (now, and before 2022), and of Kueue."""

GANG_ANNOTATION = "scheduling.k8s.io/group-name"
"""Of Volcano's controllers."""

MAX_NAME = 253
"""Of an object in Kubernetes. An annotation may have 256 kB, and the name of a gang is in the reason of every node."""


def gang_of(pod: Mapping[str, Any]) -> str:
    """The gang of a Pod object; empty: it is in none. A name that no object can have names no gang.

    >>> gang_of({"metadata": {"namespace": "d"}, "spec": {"schedulingGroup": {"podGroupName": "train"}}})
    'd/train'
    >>> gang_of({"metadata": {"namespace": "d", "labels": {"scheduling.x-k8s.io/pod-group": "g"}}}), gang_of({})
    ('d/g', '')
    >>> gang_of({"metadata": {"namespace": "d", "annotations": {"scheduling.k8s.io/group-name": "v"}}})
    'd/v'
    """
    meta = pod.get("metadata") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    name = next(filter(None, [group, *map(labels.get, GANG_LABELS), annotations.get(GANG_ANNOTATION)]), None)
    return f"{meta.get('namespace', '')}/{name}" if name and len(name) <= MAX_NAME else ""


class GangPlaces:
    """Places held for members that are not bound yet."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, dict[str, float]] = {}  # by gang: UIDs, and until when their places are held

    def hold(self, gang: str, pod: PendingPod, node: str) -> None:
        """Filter has chosen `node` for this member."""
        until_s = time.monotonic() + HOLD_S
        self._held.setdefault(gang, {})[pod.uid] = until_s
        self._cluster.assume(pod, node, until_s)
        self._forget(until_s - HOLD_S)

    def release(self, gang: str, uid: str) -> None:
        """kube-scheduler asks about this member again: what was held for it does not stand in its way."""
        if (until_s := self._held.get(gang, {}).pop(uid, None)) is not None:
            self._give_back(uid, until_s)

    def refusal_note(self, gang: str) -> str:
        """What the event of a member that finds no node adds to each node's reason; empty: no other member has one.
        kube-scheduler counts nodes by their reasons, so the text is the same for all of them."""
        others = len(self._held.get(gang, {}))
        if not others:
            return ""
        return f"; {others} other members of gang {gang} had room, and their slots are free again"

    def release_all(self, gang: str) -> None:
        """A member finds no node: the gang does not fit now."""
        for uid, until_s in self._held.pop(gang, {}).items():
            self._give_back(uid, until_s)

    def _give_back(self, uid: str, until_s: float) -> None:
        """Unless bind has taken the place meanwhile, which then has another time."""
        place = self._cluster.ledger.place(uid)
        if place is not None and place.until_s == until_s:
            self._cluster.release(uid)

    def _forget(self, now_s: float) -> None:
        for gang, held in list(self._held.items()):
            if max(held.values(), default=0.0) < now_s:
                del self._held[gang]
