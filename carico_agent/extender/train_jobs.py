"""Kubeflow Trainer's TrainJobs, where there are any: how much work their Pods have left, by node.

Trainer keeps `status.trainerStatus` with `estimatedRemainingSeconds` and `lastUpdatedTime` (KEP-2779, from 2.2 on). A
TrainJob runs as a JobSet of its name, and JobSet labels the Pods with that. So its work on a node is the time left ×
the cores its Pods request there, or one each where they request none.

Why a list now and then and no watch: TrainJobs report about once a minute, and most clusters have no Trainer; a watch
of a resource that is not there would be tried without end.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, nan

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.net.times import parse_rfc3339

TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
PERIOD_S = 30.0
ABSENT_S = 300.0
"""Between two looks for a Trainer that is not installed, or must not be read."""
STALE_S = 600.0
"""A status that has not been renewed for this long says nothing."""
MAX_LEFT_S = 1e8
"""No Pod counts for more [CPU seconds]."""
PAGE = {"limit": "1000"}


@dataclass(frozen=True, slots=True)
class TrainWork:
    """TrainJobs' Pods on one node."""

    pods: int = 0
    work_s: float = 0.0
    """What they still need [CPU seconds]."""


def remaining_s(train_job: Object, wall_s: float) -> float:
    """The time left of a TrainJob; NaN unknown.

    >>> status = {"estimatedRemainingSeconds": 90, "lastUpdatedTime": "2024-01-01T00:00:00Z"}
    >>> remaining_s({"status": {"trainerStatus": status}}, 1704067230.0), remaining_s({}, 0.0)
    (60.0, nan)
    """
    status = (train_job.get("status") or {}).get("trainerStatus")
    if not isinstance(status, dict):
        return nan
    left_s, updated = status.get("estimatedRemainingSeconds"), status.get("lastUpdatedTime")
    if isinstance(left_s, bool) or not isinstance(left_s, int | float) or not 0 <= left_s < inf:
        return nan
    try:
        age_s = max(0.0, wall_s - parse_rfc3339(str(updated))) if updated else 0.0
    except ValueError:
        return nan
    return max(0.0, left_s - age_s) if age_s <= STALE_S else nan


def by_node(train_jobs: Iterable[Object], pods: Iterable[Object], wall_s: float) -> dict[str, TrainWork]:
    """The work left of all Pods that belong to a TrainJob that says how long it takes."""
    left_s = {}
    for one in train_jobs:
        meta = one.get("metadata") or {}
        if isfinite(seconds := remaining_s(one, wall_s)):
            left_s[meta.get("namespace"), meta.get("name")] = seconds
    found: dict[str, TrainWork] = {}
    for one in pods:
        pod, labels = facts(one), (one.get("metadata") or {}).get("labels") or {}
        seconds = left_s.get((pod.namespace, labels.get(JOBSET)), nan)
        if pod.node and pod.running and isfinite(seconds):
            before = found.get(pod.node, TrainWork())
            work_s = min(seconds * (pod.cpu if pod.requested else 1.0), MAX_LEFT_S)
            found[pod.node] = TrainWork(before.pods + 1, before.work_s + work_s)
    return found


class TrainJobs:
    """Polls them until it is cancelled, and passes on what it found."""

    def __init__(self, client: KubeClient, take: Callable[[Mapping[str, TrainWork]], None]) -> None:
        self._client, self._take = client, take
        self.health = Health("Kubeflow Trainer")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(await self.poll())

    async def poll(self) -> float:
        """Once; answers when the next poll is due [s]."""
        try:
            jobs = (await self._client.get(TRAIN_JOBS, PAGE)).get("items") or []
            running = {**PAGE, "labelSelector": JOBSET, "fieldSelector": "status.phase=Running"}
            pods = (await self._client.get("/api/v1/pods", running)).get("items") or [] if jobs else []
        except Refused as error:
            self._take({})
            if error.status != 404:  # not installed is no trouble
                self.health.bad("list", error)
            return ABSENT_S
        except KubeError as error:
            self._take({})
            self.health.bad("list", error)
            return PERIOD_S
        self.health.good("list")
        self._take(by_node(jobs, pods, time.time()))
        return PERIOD_S
