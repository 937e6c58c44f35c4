"""Two control planes in which Jobs wait at home and a target has room: what ran where, and whether that was right."""

import asyncio

from carico_agent.burst.link import Link
from carico_agent.burst.steps import jobs_path
from lab.support.burst_planes import LATE, BurstPlane, Kubelets, PodRun, ended, overlaps
from lab.support.waiting import wait_for


class Scene:
    """Home with too few places, a target with room, Jobs that wait, and everything that ran."""

    def __init__(self, planes: tuple[BurstPlane, BurstPlane], home_places: int = 0) -> None:
        self.home, self.cloud = planes
        self.runs: list[PodRun] = []
        self.kubelets = (
            Kubelets("home", self.home, self.runs, nodes=1, places=home_places or 1),
            Kubelets("cloud", self.cloud, self.runs, nodes=4, places=40),
        )
        self.cordoned = home_places == 0

    async def __aenter__(self) -> "Scene":
        for kubelet in self.kubelets:
            await kubelet.__aenter__()
        if self.cordoned:
            self.cordon(True)
        self.clients = self.home.client(), self.cloud.client()
        self.send = Link(*self.clients).send
        return self

    def cordon(self, closed: bool) -> None:
        self.home.admin.merge("/api/v1/nodes/home-0", {"spec": {"unschedulable": closed}})

    async def __aexit__(self, *error: object) -> None:
        for kubelet in self.kubelets:
            await kubelet.__aexit__()
        for client in self.clients:
            await client.close()

    async def submit(self, bodies: list[dict[str, object]]) -> list[str]:
        """Create the Jobs at home and wait until their controller has counted their Pods."""
        for body in bodies:
            await asyncio.to_thread(self.home.admin.post, jobs_path("default"), body)
        names = [str(body["metadata"]["name"]) for body in bodies]  # type: ignore[index]
        await asyncio.to_thread(wait_for, lambda: self._counted(names), "the Jobs have Pods")
        return names

    def _counted(self, names: list[str]) -> bool:
        jobs = {job["metadata"]["name"]: job for job in self.home.admin.get(jobs_path("default"))["items"]}
        statuses = [jobs[name].get("status") or {} for name in names]
        return all(status.get("active") or status.get("succeeded") for status in statuses)

    def uid(self, name: str) -> str:
        return str(self.home.admin.get(jobs_path("default", name))["metadata"]["uid"])

    def _explained(self, runs: list[PodRun]) -> str:
        """Every run of one Job, and whether its Job controller deleted the Pod."""
        deleted = self.home.deleted_pods() | self.cloud.deleted_pods()
        return "\n".join(f"{run}{', deleted by the Job controller' if run.name in deleted else ''}" for run in runs)

    def judge(self, names: list[str], completions: int = 1, cluster: str = "", api_died: str = "") -> None:
        """Every Job complete, exactly once, nothing at the same time in two clusters, nothing left behind.

        `api_died`: the cluster whose API server went away. A Job controller whose request to create a Pod was
        carried out but not answered creates another: then one Job may have more Pods than it asked for, all in that
        cluster and all of one Job object.
        """
        jobs = {job["metadata"]["name"]: job for job in self.home.admin.get(jobs_path("default"))["items"]}
        for name in names:
            job = jobs[name]
            assert ended(job) == "Complete", f"{name}: {job['status']}, {job['metadata'].get('annotations')}"
            runs = [run for run in self.runs if run.origin == job["metadata"]["uid"]]
            counted = [run for run in runs if run.ended == "Succeeded"]
            late = [run for run in runs if run.ended == LATE]
            unanswered = [run for run in runs if not run.ended and run.cluster == api_died]
            assert len({(run.cluster, run.job) for run in counted + unanswered or late}) == 1, self._explained(runs)
            if api_died in {run.cluster for run in counted + unanswered}:
                most = len(counted) + len(unanswered)
                assert completions <= job["status"]["succeeded"] <= most, self._explained(runs)
            else:
                assert job["status"]["succeeded"] == completions, self._explained(runs)
                assert len(counted) <= completions <= len(counted) + len(late), self._explained(runs)
            assert not job["metadata"].get("finalizers")
        assert overlaps(self.runs) == []
        assert self.cloud.admin.get(jobs_path("default"))["items"] == []
        if cluster:
            assert {run.cluster for run in self.runs} == {cluster}
