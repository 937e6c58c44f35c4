"""Answers Kueue's admission checks: Ready when all Pods of a Workload fit by measured room, Pending until then.

Kueue reserves quota for a Workload, then asks its admission checks. This one stays Pending while there is no room, and
is evaluated again when a node's number changes, so that a Workload starts within a second or so of the rise. While it
is Pending it keeps its quota.

Why it never says Retry, by which a Workload gives its quota back: Kueue 0.16.2 reserves the quota for the same Workload
again within milliseconds, before those that wait behind it are considered; with `requeueAfterSeconds` it keeps the
quota meanwhile.

Room that was promised to one Workload is not promised to the next: until its Pods hold their slots, but for HOLD_S at
most. An answer is valid for as long: where other checks take longer than that, this one is evaluated again before Kueue
has admitted the Workload. All of this is derived from the Workloads' own status, so a new leader goes on where the
last one ended.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.kueue.eligible import Flavor, eligible, read_flavor
from carico_agent.extender.kueue.trial_room import TrialRoom, Wanted
from carico_agent.extender.kueue.workload import (
    CONTROLLER,
    PENDING,
    READY,
    PodSet,
    QueuedWorkload,
    read_workload,
    state_of,
)
from carico_agent.extender.node_marks import NodeMarks
from carico_agent.extender.nodes import PendingPod
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.pod_requests import holds_of, says_cpu, scored_of
from carico_agent.lib.kube.watch import ResourceWatch
from carico_agent.lib.net.times import boottime_s, rfc3339

log = logging.getLogger(__name__)

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
ROUND_S, IDLE_FACTOR = 0.5, 4.0
"""Between two rounds [s], and at least so many times as long as the last one took: users decide how many Workloads
wait, and filter, bind and the webhook answer in the same event loop."""
CHECKS_S = 10.0
"""How often the lists of admission checks and flavors are read again [s]: both are short, and hardly change."""
HOLD_S = 60.0
"""How long room is kept for a Workload that was told Ready [s]."""
MAX_NODES_SHOWN = 5


@dataclass(slots=True)
class Promise:
    """A Workload was told Ready."""

    before: dict[str, int] = field(default_factory=dict)
    """Pods of each of its workloads that held a slot at that moment."""
    came: dict[str, int] = field(default_factory=dict)
    """The most that have come since."""


class KueueCheck:
    """`run` works while `leads` says so."""

    def __init__(self, client: KubeClient, cluster: Cluster, resource: str, leads: Callable[[], bool]) -> None:
        self._client, self._cluster, self._resource, self._leads = client, cluster, resource, leads
        self.health = Health("Kueue")
        self._marks = NodeMarks(client, self.health)
        self._workloads: dict[str, QueuedWorkload] = {}  # by UID
        self._watch = ResourceWatch(client, f"{KUEUE}/workloads", read_workload, self.listed, self.changed, self.health)
        self._promised: dict[str, Promise] = {}  # by UID of the Workload
        self._checks: list[str] = []
        self._flavors: dict[str, Flavor] = {}
        self._checks_s = -CHECKS_S
        self.admitted = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._marks.watch.run())
            group.create_task(self._rounds())

    def listed(self, workloads: list[QueuedWorkload]) -> None:
        self._workloads = {one.uid: one for one in workloads}
        self._promised = {uid: one for uid, one in self._promised.items() if uid in self._workloads}

    def changed(self, gone: bool, workload: QueuedWorkload) -> None:
        if gone:
            self._workloads.pop(workload.uid, None)
            self._promised.pop(workload.uid, None)
        else:
            self._workloads[workload.uid] = workload
            if workload.over:
                self._promised.pop(workload.uid, None)

    async def _rounds(self) -> None:
        await self._watch.synced.wait()
        await self._marks.watch.synced.wait()
        took_s = 0.0
        while True:
            await asyncio.sleep(max(ROUND_S, IDLE_FACTOR * took_s))
            began_s = boottime_s()
            if not (self._leads() and self._cluster.synced and self._cluster.watches.open()):
                continue  # an answer from an old view of the nodes may admit too much
            try:
                await self.round(time.time())
                self.health.good("checks")
            except KubeError as error:
                self.health.bad("checks", error)
            took_s = boottime_s() - began_s

    async def round(self, wall_s: float) -> None:
        """Answer every check that is due. `wall_s`: now [s since 1970], as in the Workloads' status."""
        await self._read_checks()
        self._count_arrivals()
        for check in self._checks:
            due = [one for one in self._workloads.values() if self.is_due(one, check, wall_s)]
            if not due:
                continue
            room = self.room(check, wall_s)
            for workload in sorted(due, key=lambda one: (one.reserved_s or 0.0, one.key)):
                await self._answer(workload, check, room, wall_s)
                await asyncio.sleep(0)  # kube-scheduler's questions come first

    def is_due(self, workload: QueuedWorkload, check: str, wall_s: float) -> bool:
        """Whether Kueue waits for this check: quota is reserved, and nothing, or nothing recent, was said."""
        if workload.over or workload.reserved_s is None or workload.admitted:
            return False
        state, since_s = state_of(workload, check)
        return state == PENDING or (state == READY and wall_s - since_s > HOLD_S)

    # ---- room

    def room(self, check: str, wall_s: float) -> TrialRoom:
        """What is left beside the Workloads that were told Ready and whose Pods do not hold their slots yet."""
        table, states = self._cluster.table.all_uncached(), self._cluster.nodes
        left = (_resource_left(states[name].resource, states[name].held) for name in table.names())
        room = TrialRoom(table, left, boottime_s())
        for workload in self._workloads.values():
            state, since_s = state_of(workload, check)
            if state == READY and not workload.over and wall_s - since_s <= HOLD_S:
                for pods, count in self._missing(workload):
                    room.take(*self._wanted(room, workload, pods, count))
        return room

    def _missing(self, workload: QueuedWorkload) -> list[tuple[PodSet, int]]:
        """Of each PodSet, the Pods that hold no slot yet: those that were promised, less those that came since."""
        promise = self._promised.get(workload.uid, Promise())
        return [(pods, max(0, pods.count - promise.came.get(pods.workload, 0))) for pods in workload.pod_sets]

    def _count_arrivals(self) -> None:
        """Every round: a Pod that came and has ended since needs no room either."""
        for promise in self._promised.values():
            for name, before in promise.before.items():
                promise.came[name] = max(promise.came.get(name, 0), self._pods_of(name) - before)

    def _pods_of(self, workload: str) -> int:
        """Pods of carico's workload that hold a slot somewhere."""
        tallies = (self._cluster.ledger.workloads(name).get(workload) for name in self._cluster.nodes)
        return sum(tally.pods for tally in tallies if tally is not None)

    def _wanted(self, room: TrialRoom, workload: QueuedWorkload, pods: PodSet, count: int) -> Wanted:
        allowed = eligible(pods, workload.namespace, self._flavors, self._marks.nodes, room.names)
        return self._pending(pods), count, allowed

    def _pending(self, pods: PodSet) -> PendingPod:
        """One Pod of the PodSet, as a policy would see it."""
        template, costs = pods.template, self._cluster.costs
        holds = holds_of(template, self._resource) if self._resource else 0
        elsewhere = costs.of(pods.workload, boottime_s())
        return PendingPod("", pods.workload, holds, *scored_of(template), says_cpu(template), elsewhere)

    # ---- answers

    async def _answer(self, workload: QueuedWorkload, check: str, room: TrialRoom, wall_s: float) -> None:
        took, all_fit = room.take_all(self._wanted(room, workload, one, one.count) for one in workload.pod_sets)
        if all_fit:
            before = {one.workload: self._pods_of(one.workload) for one in workload.pod_sets}
            self._promised[workload.uid] = Promise(before)
            if await self._write(workload, check, READY, f"all {workload.pods} Pods fit: {_shown(took)}", wall_s):
                self.admitted += 1
            return
        text = f"room for {sum(took.values())} of {workload.pods} Pods{f': {_shown(took)}' if took else ''}"
        await self._write(workload, check, PENDING, text, wall_s)

    async def _write(self, workload: QueuedWorkload, check: str, state: str, text: str, wall_s: float) -> bool:
        """False: the Workload has changed meanwhile, and is looked at again."""
        now = next(one for one in workload.checks if one.get("name") == check)
        if state == PENDING and (now.get("state"), now.get("message")) == (state, text):
            return False
        at = now["lastTransitionTime"] if state == now.get("state") == PENDING else rfc3339(wall_s, "seconds")
        entry: Object = {**now, "state": state, "message": text, "lastTransitionTime": at}
        checks = [entry if one is now else one for one in workload.checks]
        path = f"{KUEUE}/namespaces/{workload.namespace}/workloads/{workload.name}/status"
        body = {"metadata": {"resourceVersion": workload.version}, "status": {"admissionChecks": checks}}
        try:
            version = (await self._client.patch(path, body))["metadata"]["resourceVersion"]
        except Refused as refused:
            if refused.status in (404, 409):
                return False
            raise
        self.changed(False, replace(workload, version=version, checks=tuple(checks)))  # the watch will say so, too
        return True

    async def _read_checks(self) -> None:
        """Which checks are ours; Kueue admits through a check only while its controller says Active."""
        if boottime_s() - self._checks_s < CHECKS_S:
            return
        found = (await self._client.get(f"{KUEUE}/admissionchecks")).get("items") or []
        ours = [one for one in found if (one.get("spec") or {}).get("controllerName") == CONTROLLER]
        for one in ours:
            if not _is_active(one):
                await self._activate(one["metadata"]["name"])
        flavors = (await self._client.get(f"{KUEUE}/resourceflavors")).get("items") or []
        self._flavors = {one["metadata"]["name"]: read_flavor(one) for one in flavors}
        self._checks, self._checks_s = [one["metadata"]["name"] for one in ours], boottime_s()

    async def _activate(self, check: str) -> None:
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "carico's extender answers this check",
            "lastTransitionTime": rfc3339(digits="seconds"),
        }
        await self._client.patch(f"{KUEUE}/admissionchecks/{check}/status", {"status": {"conditions": [condition]}})
        log.info("Kueue's admission check %s is active", check)


def _is_active(check: Object) -> bool:
    conditions = (check.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Active" and one.get("status") == "True" for one in conditions)


def _resource_left(resource: int | None, held: int) -> float:
    return float("inf") if resource is None else float(resource - held)


def _shown(took: dict[str, int]) -> str:
    """
    >>> _shown({"a": 3, "b": 1})
    '3 on a, 1 on b'
    """
    most = sorted(took.items(), key=lambda one: (-one[1], one[0]))
    shown = ", ".join(f"{count} on {node}" for node, count in most[:MAX_NODES_SHOWN])
    return shown + (f" and {len(most) - MAX_NODES_SHOWN} other nodes" if len(most) > MAX_NODES_SHOWN else "")
