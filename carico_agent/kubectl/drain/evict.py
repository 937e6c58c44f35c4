"""Empties nodes for real: cordon, then one eviction at a time through the eviction API, and a new plan before each.

It stops, and uncordons the node it is at, when a Pod of the node would fit nowhere any more, when the API server keeps
refusing an eviction (a PodDisruptionBudget), or when a successor does not find a node in time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from carico_agent.kubectl.drain.consolidate import TRIES, refusal
from carico_agent.kubectl.drain.facts import PlannedPod
from carico_agent.kubectl.drain.planner import drain
from carico_agent.kubectl.drain.reading import ReadCluster, read_cluster
from carico_agent.kubectl.reading import Scope
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import Refused

POLL_S = 1.0
Say = Callable[[str], None]


class Stopped(Exception):
    """The rest is not evicted; the text says why."""


@dataclass(frozen=True)
class Eviction:
    """How to evict."""

    client: KubeClient
    scope: Scope
    say: Say
    wait_s: float = 120.0
    """How long a successor may take to find a node, and a budget to allow an eviction [s]."""
    local_data: bool = False
    poll_s: float = POLL_S

    async def empty(self, node: str) -> int:
        """Evict all Pods of a node; returns how many. Raises Stopped, with the node uncordoned again."""
        await self._cordon(node, True)
        emptied = False
        try:
            done = await self._empty(node)
            emptied = True
            return done
        finally:  # also after an interrupt
            if not emptied:
                await self._cordon(node, False)
                self.say(f"{node}: uncordoned")

    async def _empty(self, node: str) -> int:
        done = 0
        while True:
            cluster = await read_cluster(self.client, self.scope)
            plan = drain(cluster.by_both(), [node], cluster.budgets, cluster.waiting, TRIES)
            if not plan.fates:
                self.say(f"{node}: empty and cordoned; remove it, or `kubectl uncordon {node}`")
                return done
            if why := refusal(plan, self.local_data):
                raise Stopped(f"{node}: {why}")
            pod = plan.fates[0].pod
            await self._evict(pod)
            where = await self._settled(pod, cluster)
            done += 1
            self.say(f"{node}: {pod.key} evicted; its successor runs on {where}")

    async def _cordon(self, node: str, cordoned: bool) -> None:
        await self.client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}})

    async def _evict(self, pod: PlannedPod) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        meta = {"name": pod.name, "namespace": pod.namespace}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": meta,
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        deadline_s = time.monotonic() + self.wait_s
        while True:
            try:
                await self.client.post(f"{path}/eviction", body)
                return
            except Refused as refused:
                if refused.status != 429:
                    raise Stopped(f"{pod.key}: {refused}") from refused
                if time.monotonic() >= deadline_s:
                    raise Stopped(f"{pod.key}: refused for {self.wait_s:g} s: {refused}") from refused
                await asyncio.sleep(self.poll_s)

    async def _settled(self, pod: PlannedPod, before: ReadCluster) -> str:
        """Where the successor is; raises Stopped when there is none in time."""
        known = {one.uid for one in before.pods if one.node}
        deadline_s = time.monotonic() + self.wait_s
        while True:
            now = await read_cluster(self.client, self.scope)
            gone = all(one.uid != pod.uid for one in now.pods)
            new = [one for one in now.pods if one.uid not in known and one.node and one.owner == pod.owner]
            if gone and new:
                return new[0].node
            if time.monotonic() >= deadline_s:
                state = "waits for a node" if gone else "is still ending"
                raise Stopped(f"{pod.key}: after {self.wait_s:g} s it {state}")
            await asyncio.sleep(self.poll_s)
