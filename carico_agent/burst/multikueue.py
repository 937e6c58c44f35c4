"""Engine `multikueue`: an external dispatcher for Kueue, which moves the Jobs itself.

Kueue's MultiKueue asks worker clusters in rounds of five minutes, one cluster more per round, unless an external
dispatcher writes `status.nominatedClusterNames` of a Workload. That is all this does: the clusters that have room now,
best first, for Workloads that have their quota and no cluster yet. Kueue's own admission stays in charge, and so does
its protocol for the Jobs. A nomination is renewed when a better cluster has appeared and Kueue has not chosen.

A Workload for which no cluster has room goes through the same planner as the Jobs of engine `jobs`: nodes, or a whole
cluster, are ordered of the targets' provisioners, and it is nominated when they are there. Until then Kueue's
AdmissionCheck of MultiKueue holds it back. Nodes that no Job uses are removed after `idle_delete_s`.

The fields are those of Kueue's Workload, the same in v1beta1 and v1beta2: `status.clusterName`,
`status.nominatedClusterNames` (at most 10), `status.conditions` QuotaReserved, Admitted, Finished. The targets' names
must be those of the MultiKueueClusters, and Kueue must be configured with `multiKueue.dispatcherName` of an external
dispatcher.
"""

import asyncio
import logging
from math import inf
from typing import Any

from carico_agent.burst.choice import POLICIES, JobNeeds, TargetOffer
from carico_agent.burst.cluster import asked_by, take
from carico_agent.burst.overflow import Asked, NodeRoom, Waiting
from carico_agent.burst.planner import Candidate
from carico_agent.burst.service import BurstService
from carico_agent.lib.kube.client import MERGE, KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.leader import LeaderLease

log = logging.getLogger(__name__)

GROUP = "/apis/kueue.x-k8s.io"
MAX_NAMES = 10
"""Kueue takes no more."""
MAX_PODS = 5000
"""Of a Workload, that are placed on trial: a user may name 2 147 483 647, which no memory holds."""


def waits(workload: Object) -> bool:
    """Whether this Workload has its quota and no cluster yet."""
    status = workload.get("status") or {}
    conditions = {one.get("type"): one.get("status") == "True" for one in status.get("conditions") or ()}
    decided = status.get("clusterName") or conditions.get("Finished") or conditions.get("Admitted")
    return (
        bool(conditions.get("QuotaReserved")) and not decided and bool((workload.get("spec") or {}).get("active", True))
    )


def asked(workload: Object) -> list[Asked]:
    """What each Pod of the Workload asks for, of the first MAX_PODS."""
    pods: list[Asked] = []
    for pods_of_kind in (workload.get("spec") or {}).get("podSets") or ():
        count = min(int(pods_of_kind.get("count") or 1), MAX_PODS - len(pods))
        pods += [asked_by(pods_of_kind.get("template") or {})] * count
    return pods


def nominate(workload: Object, service: BurstService, rooms: dict[str, list[NodeRoom]], now_s: float) -> list[str]:
    """The clusters with room for the whole Workload, best first; their room is taken in `rooms`."""
    pods, offers = asked(workload), []
    for name, site in service.sites.items():
        trial = list(rooms[name])
        fits = all(take(trial, "", one) for one in pods)
        ready_s = 0.0 if fits else (site.autoscales_s or float("inf"))
        obstacle = site.obstacle(now_s)
        offers.append(TargetOffer(name, site.region, site.price_per_h, 1, ready_s, site.image_s, 0.0, obstacle))
    policy = service.policy
    needs = JobNeeds(service.history.duration_s(""))
    options = POLICIES[policy.name](needs, offers, policy.prices, policy.value_per_h)
    names = [option.target for option in options if not option.why_not][:MAX_NAMES]
    for one in pods if names else ():
        take(rooms[names[0]], "", one)
    return names


def candidate(workload: Object, service: BurstService) -> Candidate | None:
    """A Workload that no cluster has room for, as the planner takes Jobs; None: it has no Pods.

    Pods of several kinds count as many of the largest: the planner takes Jobs whose Pods are alike.
    """
    meta, pods = workload["metadata"], asked(workload)
    if not pods:
        return None
    largest = max(pods, key=lambda one: (max(one.others.values(), default=0.0), one.cpu, one.memory))
    waiting = Waiting((str(meta["namespace"]), str(meta["name"])), "", largest, inf, len(pods))
    return Candidate(waiting, JobNeeds(service.history.duration_s("")))


def sent_to(workloads: list[Object]) -> set[str]:
    """The clusters at which Workloads run, or are about to."""
    found: set[str] = set()
    for workload in workloads:
        status = workload.get("status") or {}
        ended = any(one["type"] == "Finished" and one["status"] == "True" for one in status.get("conditions") or ())
        named = {status.get("clusterName") or "", *(status.get("nominatedClusterNames") or ())}
        found |= set() if ended else named - {""}
    return found


class Dispatcher:
    """`run` runs until it is cancelled, and writes only while this process leads."""

    def __init__(self, client: KubeClient, service: BurstService, lease: LeaderLease, period_s: float) -> None:
        self._client, self._service, self._lease, self._period_s = client, service, lease, period_s
        self.health = Health("Kueue")
        self.nominated = 0
        self._api = ""

    async def run(self) -> None:
        while True:
            if self._lease.leads:
                try:
                    await self.round(asyncio.get_running_loop().time())
                    self.health.good("workloads")
                except KubeError as error:
                    self.health.bad("workloads", error)
            await asyncio.sleep(self._period_s)

    async def round(self, now_s: float) -> None:
        service = self._service
        self._api = self._api or f"{GROUP}/{await self._version()}"
        await service.find_ways(now_s)
        rooms, waiting = service.rooms(), []
        found = list((await self._client.get(f"{self._api}/workloads")).get("items") or ())
        for workload in sorted(filter(waits, found), key=_age):
            names = nominate(workload, service, rooms, now_s)
            if not names and (one := candidate(workload, service)) is not None:
                waiting.append(one)
            if names and names != ((workload.get("status") or {}).get("nominatedClusterNames") or []):
                await self._write(workload["metadata"], names)

        await service.provision(waiting, sent_to(found), now_s)

    async def _version(self) -> str:
        """Which version of its API this Kueue prefers."""
        try:
            answer = await self._client.get(GROUP)
        except Refused as refused:
            if refused.status != 404:
                raise
            return "v1beta1"
        return str((answer.get("preferredVersion") or {}).get("version") or "v1beta1")

    async def _write(self, meta: dict[str, Any], names: list[str]) -> None:
        path = f"{self._api}/namespaces/{meta['namespace']}/workloads/{meta['name']}/status"
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"nominatedClusterNames": names},
        }
        try:
            await self._client.request("PATCH", path, body, {"Content-Type": MERGE})
            self.nominated += 1
        except Refused as refused:
            if refused.status not in (404, 409):
                raise  # another client wrote: the next round reads again


def _age(workload: Object) -> str:
    return str(workload["metadata"].get("creationTimestamp", ""))
