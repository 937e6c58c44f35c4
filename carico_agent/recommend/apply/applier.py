"""Resizes Pods in place, watches what becomes of them, and puts everything back.

Each change is in the journal before it is made. A container that is OOM-killed or more throttled after a change gets
its old resources back at once, and its workload is left alone from then on. So does a Pod whose resize the kubelet
calls infeasible. A Pod whose resources are no longer ours was changed by another client and is left as it is.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.plugin_api.formats import parse_quantity
from carico_agent.recommend.advice import Recommendation
from carico_agent.recommend.apply.decide import ApplyRules, LivePod, PodResize, ResizeRoom, decide, worth_first
from carico_agent.recommend.apply.journal import OpenChange, ResizeJournal
from carico_agent.recommend.apply.live import read_live

STRATEGIC = "application/strategic-merge-patch+json"
MORE_THROTTLED = 0.05
"""A container throttled in so many more of its periods than before a change gets its resources back."""


@dataclass
class Applier:
    """`say` gets a line per change. `rate`: how many changes, and how fast."""

    client: KubeClient
    journal: ResizeJournal
    rules: ApplyRules
    rate: TokenBucket
    say: Callable[[str], None]
    clock: Callable[[], float]
    """Monotonic [s]."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Workloads that reacted badly, and why."""

    async def plan(self, rows: Sequence[Recommendation]) -> list[PodResize]:
        pods, rooms = await read_live(self.client)
        return self._decide(rows, pods, rooms)

    def _decide(
        self, rows: Sequence[Recommendation], pods: Sequence[LivePod], rooms: Mapping[str, ResizeRoom]
    ) -> list[PodResize]:
        alone = {
            pod.uid: self.left_alone[pod.owner.full_name] for pod in pods if pod.owner.full_name in self.left_alone
        }
        return decide(rows, pods, rooms, self.rules, alone)

    async def round(self, rows: Sequence[Recommendation]) -> list[PodResize]:
        """Look after what was changed, then change what fits, as fast as the rate allows. Returns what was decided."""
        pods, rooms = await read_live(self.client)
        await self.supervise(pods, rows)
        if self.journal.open:
            pods, rooms = await read_live(self.client)
        changes = self._decide(rows, pods, rooms)
        for change in worth_first(changes):
            if self.rate.take(self.clock()) > 0:
                self.say("the rest waits for the next round: rate limit")
                break
            await self.apply(change)
        return changes

    async def apply(self, change: PodResize) -> bool:
        """One Pod; False when the API server refuses."""
        pod = change.pod
        restarts = {name: one.restarts for name, one in pod.containers.items()}
        entry = OpenChange(pod.namespace, pod.name, pod.uid, pod.owner.full_name, change.before, change.after)
        entry.restarts, entry.throttled_ratio, entry.oom_kills = restarts, change.throttled_ratio, change.oom_kills
        earlier = self.journal.changing(entry, change.why or change.verdict)
        try:
            await self._resize(pod.namespace, pod.name, pod.uid, change.after)
        except Refused as refused:
            self.left_alone[pod.owner.full_name] = f"the API server refused: {refused}"
            self.journal.refused(pod.uid, earlier, str(refused))
            self.say(f"{pod.key}: refused: {refused}")
            return False
        self.say(f"{pod.key}: {described(change.before)} → {described(change.after)}")
        return True

    async def _resize(self, namespace: str, name: str, uid: str, containers: Mapping[str, Any]) -> None:
        named = [{"name": container, "resources": resources} for container, resources in containers.items()]
        body = {"metadata": {"uid": uid}, "spec": {"containers": named}}
        await self.client.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/resize", body, STRATEGIC)

    # ---- afterwards

    async def supervise(self, pods: Sequence[LivePod], rows: Iterable[Recommendation]) -> None:
        """Close what is gone or another client's, and roll back what went wrong."""
        live = {pod.uid: pod for pod in pods}
        by_name: dict[str, list[Recommendation]] = {}
        for row in rows:
            by_name.setdefault(row.workload.full_name, []).append(row)
        for entry in list(self.journal.open.values()):
            pod = live.get(entry.uid)
            if pod is None:
                self.journal.closed(entry.uid, "gone", "the Pod does not exist any more")
            elif not is_ours(pod, entry.ours):
                self.journal.closed(entry.uid, "taken-over", "another client has changed its resources")
            elif why := trouble(pod, entry, by_name.get(entry.owner, [])):
                self.left_alone[entry.owner] = f"rolled back: {why}"
                await self._put_back(entry, "rolled-back", why)

    async def restore(self) -> int:
        """Put everything back; returns how many Pods could not be."""
        pods, _ = await read_live(self.client)
        live, failed = {pod.uid: pod for pod in pods}, 0
        for entry in list(self.journal.open.values()):
            pod = live.get(entry.uid)
            if pod is None:
                self.journal.closed(entry.uid, "gone", "the Pod does not exist any more")
            elif not is_ours(pod, entry.ours):
                self.journal.closed(entry.uid, "taken-over", "another client has changed its resources")
            else:
                failed += not await self._put_back(entry, "restored", "stopped")
        return failed

    async def _put_back(self, entry: OpenChange, event: str, why: str) -> bool:
        try:
            await self._resize(entry.namespace, entry.name, entry.uid, entry.original)
        except KubeError as error:
            self.say(f"{entry.key}: cannot be put back, and stays in the journal: {error}")
            return False
        self.journal.closed(entry.uid, event, why)
        self.say(f"{entry.key}: {event} to {described(entry.original)} ({why})")
        return True


def is_ours(pod: LivePod, ours: Mapping[str, Any]) -> bool:
    """Whether what we wrote still stands there."""
    for name, resources in ours.items():
        live = pod.containers.get(name)
        if live is None:
            return False
        have = {"requests": live.requests, "limits": live.limits}
        for what, amounts in resources.items():
            if any(have[what].get(r) != parse_quantity(amount) for r, amount in amounts.items()):
                return False
    return True


def trouble(pod: LivePod, entry: OpenChange, rows: Sequence[Recommendation]) -> str:
    """What went wrong since the change; empty: nothing. The Pod's status shows a container that was killed as a whole;
    a child process that was killed, and throttling, only the history of the container shows."""
    for name in entry.ours:
        live = pod.containers[name]
        if live.oom_killed and live.restarts > entry.restarts.get(name, 0):
            return f"{name} was OOM-killed"
    if sum(row.oom_kills for row in rows) > entry.oom_kills:
        return "a process of its workload was OOM-killed"
    if pod.pending == "Infeasible":
        return "the kubelet calls it infeasible on this node"
    ratio = max((row.throttled_ratio for row in rows), default=0.0)
    if ratio > entry.throttled_ratio + MORE_THROTTLED:
        return f"throttled in {ratio:.0%} of its periods, {entry.throttled_ratio:.0%} before"
    return ""


def described(containers: Mapping[str, Any]) -> str:
    """
    >>> described({"app": {"requests": {"cpu": "1"}}})
    'app {"requests":{"cpu":"1"}}'
    """
    return ", ".join(f"{name} {json.dumps(one, separators=(',', ':'))}" for name, one in containers.items())
