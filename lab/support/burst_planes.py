"""Two real control planes with Job controllers and schedulers, and kubelets that only pretend to run containers.

A pretended kubelet does what a real one does for the API: a Pod that is bound to it starts, runs for the time in its
annotation `test/work-s`, succeeds (or fails, `test/fail`); a Pod that is being deleted is stopped first and removed
afterwards. It writes down when the containers of which origin ran, which is what the tests judge.
"""

import asyncio
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.buckets import TokenBucket
from lab.support.control_plane import Plane
from lab.support.waiting import free_port, wait_for

CONTROLLERS = "job,garbagecollector,ttl-after-finished,cronjob,namespace,podgc"
"""Without the node lifecycle controller: pretended nodes have no heartbeat."""


class BurstPlane(Plane):
    """A plane with a Job controller."""

    def _files(self) -> None:
        super()._files()
        user = "system:serviceaccount:carico-burst:carico-burst"
        with (self.folder / "tokens.csv").open("a") as tokens:
            tokens.write(f'burst-token,{user},{user},"system:serviceaccounts"\n')

    def start_controllers(self) -> None:
        config = self.kubeconfig("admin-token")
        port = free_port()
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--cert-dir={self.folder}/controllers",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
            "--concurrent-gc-syncs=5",
        )
        wait_for(lambda: self._healthy(port), "controllers run")

    def _healthy(self, port: int) -> bool:
        """It listens before its controllers start; each of them has a check of its own."""
        self._check("kube-controller-manager")
        wanted = [f"[+]{name} ok" for name in ("job-controller", "garbage-collector-controller")]
        own_certificate = ssl.create_default_context()
        own_certificate.check_hostname, own_certificate.verify_mode = False, ssl.CERT_NONE
        try:
            url = f"https://127.0.0.1:{port}/healthz?verbose"
            with urllib.request.urlopen(url, context=own_certificate, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        return all(line in text for line in wanted)

    def deleted_pods(self) -> set[str]:
        """Pods that the Job controller says it has deleted as active ones."""
        events = self.admin.get("/api/v1/namespaces/default/events")["items"]
        deleted = [event["message"] for event in events if event["reason"] == "SuccessfulDelete"]
        return {message.removeprefix("Deleted pod: ") for message in deleted}

    def signal_api(self, number: int) -> None:
        self._processes["kube-apiserver"].send_signal(number)

    def client(self, token: str = "admin-token") -> KubeClient:
        return KubeClient(from_kubeconfig(self.kubeconfig(token)), TokenBucket(per_s=2000.0, burst=2000))


@dataclass
class PodRun:
    """One Pod's containers: of which origin, where, from when to when (monotonic [s]), and how it ended."""

    origin: str
    cluster: str
    pod: str
    start_s: float
    end_s: float = float("inf")
    ended: str = ""
    name: str = ""
    job: str = ""
    """UID of the Job in this cluster that started it: the origin at home, its copy elsewhere."""


@dataclass
class Kubelets:
    """All pretended kubelets of one plane. `places`: Pods at once; the scheduler obeys the node's `pods`."""

    name: str
    plane: BurstPlane
    runs: list[PodRun]
    nodes: int = 2
    places: int = 3
    period_s: float = 0.1
    live: dict[str, PodRun] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _client: KubeClient | None = None

    async def __aenter__(self) -> "Kubelets":
        for number in range(self.nodes):
            await asyncio.to_thread(self.plane.admin.add_node, f"{self.name}-{number}", 64, self.places)
        self._client = self.plane.client()
        self._tasks.append(asyncio.create_task(self._loop()))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._client is not None
        await self._client.close()
        for failure in ended:
            if isinstance(failure, Exception):  # a kubelet that stopped working explains whatever else is wrong
                raise failure

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self.period_s)
            try:
                await self._round()
            except KubeError:
                continue  # the containers do not wait for an API server: each has its end from the beginning

    async def _round(self) -> None:
        assert self._client is not None
        answer = await self._client.get("/api/v1/namespaces/default/pods", {"fieldSelector": "spec.nodeName!="})
        pods = {pod["metadata"]["uid"]: pod for pod in answer.get("items") or ()}
        now_s = time.monotonic()
        for uid in [uid for uid in self.live if uid not in pods]:
            self._stop(uid, "vanished")
        writes = []
        for uid, pod in pods.items():
            meta, phase = pod["metadata"], pod["status"].get("phase")
            if meta.get("deletionTimestamp"):
                self._stop(uid, "killed")
                writes.append(self._remove(pod))
            elif phase == "Pending":  # or its phase could not be written when it started
                if uid not in self.live:
                    self._start(pod, now_s)
                writes.append(self._phase(pod, "Running"))
            elif uid in self.live and self.live[uid].end_s <= now_s and phase == "Running":
                failed = "test/fail" in (meta.get("annotations") or {})
                writes.append(self._ended(pod, "Failed" if failed else "Succeeded"))
            elif uid in self.live and not self.live[uid].ended and phase in ("Succeeded", "Failed"):
                self.live[uid].ended = phase  # written before, but the answer was lost
        results = await asyncio.gather(*writes, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, KubeError):
                raise result

    def _start(self, pod: Object, now_s: float) -> None:
        meta = pod["metadata"]
        job = str((meta.get("labels") or {}).get("controller-uid", ""))
        run = PodRun(origin_of(pod), self.name, meta["uid"], now_s, name=meta["name"], job=job)
        run.end_s = now_s + float((meta.get("annotations") or {}).get("test/work-s", "1"))
        self.live[meta["uid"]] = run
        self.runs.append(run)

    def _stop(self, uid: str, why: str) -> None:
        run = self.live.get(uid)
        if run is not None and run.end_s > time.monotonic():
            run.end_s, run.ended = time.monotonic(), why

    async def _phase(self, pod: Object, phase: str) -> Object:
        assert self._client is not None
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        return await self._client.patch(path, {"status": {"phase": phase}})

    async def _ended(self, pod: Object, phase: str) -> None:
        """What counts is what the API server took before it had deleted the Pod: a result that comes later is one
        that Kubernetes 1.20 itself does not count, with or without carico."""
        answer = await self._phase(pod, phase)
        late = bool((answer.get("metadata") or {}).get("deletionTimestamp"))
        self.live[pod["metadata"]["uid"]].ended = "too late" if late else phase

    async def _remove(self, pod: Object) -> None:
        assert self._client is not None
        meta = pod["metadata"]
        options: dict[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        await self._client.request("DELETE", f"/api/v1/namespaces/default/pods/{meta['name']}", options)


def ended(job: Object) -> str:
    """Complete or Failed, once it is so. Before, a Job has other conditions (Suspended, SuccessCriteriaMet)."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = [one["type"] for one in conditions if one["status"] == "True" and one["type"] in ("Complete", "Failed")]
    return str(true[0]) if true else ""


def origin_of(pod: Object) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("carico.dev/burst-origin") or labels.get("controller-uid") or pod["metadata"]["uid"])


def overlaps(runs: list[PodRun]) -> list[tuple[PodRun, PodRun]]:
    """Pairs of runs of one origin in two clusters at the same time."""
    found = []
    for index, one in enumerate(runs):
        for other in runs[index + 1 :]:
            apart = one.end_s <= other.start_s or other.end_s <= one.start_s
            if one.origin == other.origin and one.cluster != other.cluster and not apart:
                found.append((one, other))
    return found


def job_body(name: str, work_s: float = 1.0, **spec: Any) -> Object:
    """A Job for the pretended kubelets; `spec` is merged into its spec."""
    annotations = {"test/work-s": str(work_s)}
    if spec.pop("fail", False):
        annotations["test/fail"] = "yes"
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"carico.dev/burst": "yes"}},
        "spec": {
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "containers": [container],
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "automountServiceAccountToken": False,
                },
            },
            **spec,
        },
    }


@contextmanager
def two_planes(folder: Path) -> Iterator[tuple[BurstPlane, BurstPlane]]:
    """Home and target, each with controllers and scheduler. A set-up that fails leaves no process either."""
    with ExitStack() as stack:
        planes = []
        for name in ("home", "cloud"):
            (folder / name).mkdir()
            plane = BurstPlane(folder / name)
            stack.callback(plane.stop)
            plane.start()
            plane.start_controllers()
            plane.start_scheduler()
            planes.append(plane)
        yield planes[0], planes[1]
