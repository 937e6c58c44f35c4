"""What a moved Job printed, kept at home before its copy and the copy's Pods are deleted.

The end of every container's log goes into the ConfigMap `JOB-burst-logs` in the Job's own namespace at home. It belongs
to the Job and is deleted with it. Who may read ConfigMaps there may read it, without any right at the target.

Why a ConfigMap: it needs no storage that an operator must set up. Its price is its size, one MiB at most; the end of a
log, which says why a Job failed, fits.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from carico_agent.burst.objects import ORIGIN, HomeJob, Object
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError, Refused

log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024
"""Of all logs of one Job together."""
MAX_CONTAINERS = 50
TIMEOUT_S = 20.0
MAX_TRIES = 3
"""Then the Job is finished without those logs that cannot be had, and says so."""


@dataclass(frozen=True)
class ContainerLog:
    """The end of one container's log; `why_not`: why there is none."""

    pod: str
    container: str
    text: str = ""
    why_not: str = ""

    @property
    def key(self) -> str:
        """Of a ConfigMap: letters, digits, dots, dashes and underscores, at most 253."""
        return f"{self.pod}.{self.container}"[:253]


def name_of(job: str) -> str:
    """Of the ConfigMap that keeps a Job's logs.

    >>> name_of("train"), len(name_of("x" * 250))
    ('train-burst-logs', 253)
    """
    return f"{job[: 253 - len('-burst-logs')]}-burst-logs"


async def pods_of(client: KubeClient, namespace: str, origin: str) -> list[Object]:
    """The Pods at the target that run this Job, oldest first."""
    found = await client.get(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{ORIGIN}={origin}"})
    return sorted(found.get("items") or (), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


async def read_logs(client: KubeClient, namespace: str, origin: str, max_bytes: int = MAX_BYTES) -> list[ContainerLog]:
    """The ends of all logs of a Job's Pods. Raises KubeError when the target does not answer at all."""
    names = [
        (str(pod["metadata"]["name"]), str(container["name"]))
        for pod in await pods_of(client, namespace, origin)
        if (pod.get("spec") or {}).get("nodeName")
        for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    ]
    names = names[-MAX_CONTAINERS:]
    each = max_bytes // max(1, len(names))
    return [await _read(client, namespace, pod, container, each) for pod, container in names]


async def _read(client: KubeClient, namespace: str, pod: str, container: str, max_bytes: int) -> ContainerLog:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}"
    end = b""
    try:
        async for chunk in client.chunks(path, TIMEOUT_S):
            end = (end + chunk)[-max_bytes:]
    except KubeError as error:
        return ContainerLog(pod, container, end.decode(errors="replace"), why_not=str(error))
    return ContainerLog(pod, container, end.decode(errors="replace"))


async def follow_log(client: KubeClient, namespace: str, pod: str, container: str) -> AsyncIterator[bytes]:
    """A log as it is written, until the container ends."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&follow=true"
    async for chunk in client.chunks(path, 24 * 3600.0):
        yield chunk


def config_map(job: HomeJob, logs: list[ContainerLog]) -> Object:
    """All logs of one Job. One that could not be read says why."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(job.name),
            "namespace": job.namespace,
            "labels": {"carico.dev/burst-logs": "yes"},
            "annotations": {"carico.dev/burst-from": job.ledger.to},
            "ownerReferences": [owner],
        },
        "data": {one.key: one.text + (f"\n(no more: {one.why_not})\n" if one.why_not else "") for one in logs},
    }


class LogKeeper:
    """Keeps the logs of every finished copy once. It may forget what it knows: keeping twice is the same."""

    def __init__(self, home: KubeClient) -> None:
        self._home = home
        self._kept: dict[str, str] = {}  # UID of the Job → UID of the copy
        self._tries: dict[str, int] = {}
        self.kept = 0
        self.lost = 0

    def has(self, job: HomeJob) -> bool:
        return self._kept.get(job.uid) == job.ledger.copy

    async def keep(self, job: HomeJob, client: KubeClient) -> str:
        """Why the logs are not kept yet, or nothing. After MAX_TRIES what cannot be had is given up."""
        tries = self._tries[job.uid] = self._tries.get(job.uid, 0) + 1
        logs = await read_logs(client, job.ledger.namespace, job.uid)
        missing = next((one.why_not for one in logs if one.why_not), "")
        if missing and tries < MAX_TRIES:
            return f"its logs cannot be read yet: {missing}"
        try:
            await self._write(config_map(job, logs))
        except Refused as refused:
            if tries < MAX_TRIES:
                return f"its logs cannot be kept: {refused}"
            missing = str(refused)
        self._done(job, missing)
        return ""

    def _done(self, job: HomeJob, missing: str) -> None:
        if len(self._kept) > 10_000:
            self._kept.clear()
        self._kept[job.uid] = job.ledger.copy
        self._tries.pop(job.uid, None)
        self.kept, self.lost = self.kept + (not missing), self.lost + bool(missing)
        if missing:
            log.warning("Job %s/%s: some of its logs are lost: %s", job.namespace, job.name, missing)

    async def _write(self, body: Object) -> None:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/configmaps"
        try:
            await self._home.post(path, body)
        except Refused as refused:
            if refused.status != 409:
                raise
            await self._home.patch(f"{path}/{body['metadata']['name']}", body)
