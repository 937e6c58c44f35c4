"""Engine `multikueue`: an external dispatcher for Kueue, which moves the Jobs itself.

Kueue's MultiKueue asks worker clusters in rounds of five minutes, one cluster more per round, unless an external
dispatcher writes `status.nominatedClusterNames` of a Workload. That is all this does: the clusters that have room now,
best first, for Workloads that have their quota and no cluster yet. Kueue's own admission stays in charge, and so does
its protocol for the Jobs. A nomination is renewed when a better cluster has appeared and Kueue has not chosen.

The fields are those of Kueue's Workload (kueue.x-k8s.io/v1beta1): `status.clusterName`, `status.nominatedClusterNames`
(at most 10), `status.conditions` QuotaReserved, Admitted, Finished. The targets' names must be those of the
MultiKueueClusters, and Kueue must be configured with `multiKueue.dispatcherName` of an external dispatcher.
"""

import asyncio
import logging
from typing import Any

from carico_agent.burst.choice import POLICIES, JobNeeds, TargetOffer
from carico_agent.burst.cluster import asked_by, take
from carico_agent.burst.overflow import Asked, NodeRoom
from carico_agent.burst.service import BurstService
from carico_agent.lib.kube.client import MERGE, KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.leader import LeaderLease

log = logging.getLogger(__name__)

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/workloads"
MAX_NAMES = 10
"""Kueue takes no more."""


def waits(workload: Object) -> bool:
    """Whether this Workload has its quota and no cluster yet."""
    status = workload.get("status") or {}
    conditions = {one.get("type"): one.get("status") == "True" for one in status.get("conditions") or ()}
    decided = status.get("clusterName") or conditions.get("Finished") or conditions.get("Admitted")
    return (
        bool(conditions.get("QuotaReserved")) and not decided and bool((workload.get("spec") or {}).get("active", True))
    )


def asked(workload: Object) -> list[Asked]:
    """What each Pod of the Workload asks for."""
    pods = []
    for pods_of_kind in (workload.get("spec") or {}).get("podSets") or ():
        pods += [asked_by(pods_of_kind.get("template") or {})] * int(pods_of_kind.get("count") or 1)
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


class Dispatcher:
    """`run` for ever, writing only while this process leads."""

    def __init__(self, client: KubeClient, service: BurstService, lease: LeaderLease, period_s: float) -> None:
        self._client, self._service, self._lease, self._period_s = client, service, lease, period_s
        self.health = Health("Kueue")
        self.nominated = 0

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
        rooms = self._service.rooms()
        found = await self._client.get(WORKLOADS)
        for workload in sorted(filter(waits, found.get("items") or ()), key=_age):
            names = nominate(workload, self._service, rooms, now_s)
            if names and names != ((workload.get("status") or {}).get("nominatedClusterNames") or []):
                await self._write(workload["metadata"], names)

    async def _write(self, meta: dict[str, Any], names: list[str]) -> None:
        path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{meta['namespace']}/workloads/{meta['name']}/status"
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"nominatedClusterNames": names},
        }
        try:
            await self._client.request("PATCH", path, body, {"Content-Type": MERGE})
            self.nominated += 1
        except Refused as refused:
            if refused.status not in (404, 409):
                raise  # somebody else wrote: the next round looks again


def _age(workload: Object) -> str:
    return str(workload["metadata"].get("creationTimestamp", ""))
