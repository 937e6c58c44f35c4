"""`carico burst` as a process between two real control planes: killed again and again, two at once, a target away."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from carico_agent.burst.objects import copy_job
from carico_agent.burst.steps import jobs_path
from lab.support.burst_planes import BurstPlane, ended, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.test_crashes import JOBS

Planes = tuple[BurstPlane, BurstPlane]


@pytest.fixture
def started() -> Iterator[list[BurstProcess]]:
    processes: list[BurstProcess] = []
    yield processes
    for one in processes:
        one.kill()


def all_done(scene: Scene, names: list[str]) -> bool:
    jobs = {job["metadata"]["name"]: job for job in scene.home.admin.get(jobs_path("default"))["items"]}
    return all(ended(jobs[name]) and not jobs[name]["metadata"].get("finalizers") for name in names)


async def test_killed_again_and_again(planes: Planes, tmp_path: Path, started: list[BurstProcess]) -> None:
    """Home has two places and keeps taking Jobs, the rest moves; two services at once, one of them killed often."""
    async with Scene(planes, home_places=2) as scene:
        names = await scene.submit([job_body(f"job-{n}", 2.0) for n in range(JOBS)])
        for folder in (tmp_path / "one", tmp_path / "two"):
            folder.mkdir()
            started.append(BurstProcess(folder, *planes).start())
        drawn = random.Random(1)

        async def killing() -> None:
            while True:
                await asyncio.sleep(drawn.uniform(2.0, 8.0))
                victim = drawn.choice(started)
                await asyncio.to_thread(victim.kill)
                victim.start()

        killer = asyncio.create_task(killing())
        await asyncio.to_thread(wait_for, lambda: all_done(scene, names), "all Jobs are complete", 280, 0.5)
        killer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killer
        await asyncio.to_thread(
            wait_for, lambda: not scene.cloud.admin.get(jobs_path("default"))["items"], "no copy is left", 60
        )
        scene.judge(names)
        assert {run.cluster for run in scene.runs} == {"home", "cloud"}


@pytest.mark.long
async def test_a_target_that_is_away_is_reported_and_nothing_is_started(
    planes: Planes, tmp_path: Path, started: list[BurstProcess]
) -> None:
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 600.0) for n in range(3)])
        service = BurstProcess(tmp_path, *planes)
        started.append(service.start().ready())
        await asyncio.to_thread(wait_for, lambda: len(scene.runs) == 3, "all run at the target", 120)
        assert "carico_burst_moved_total 3" in service.get("/metrics")
        await asyncio.to_thread(wait_for, lambda: moved_events(scene) == {"runs at cloud": 3}, "events say so")
        scene.cloud.stop_api()
        try:
            await asyncio.to_thread(wait_for, lambda: said_away(service), "status says it", 60)
            one_look = await asyncio.to_thread(service.command, "status")
            assert one_look.returncode == 1
            assert "cloud does not answer" in one_look.stdout, one_look.stdout + one_look.stderr
            scene.cordon(False)
            await asyncio.to_thread(scene.home.admin.request, "DELETE", jobs_path("default", names[0]))
            await asyncio.sleep(5.0)
            assert scene.home.admin.get("/api/v1/namespaces/default/pods")["items"] == []
            job = scene.home.admin.get(jobs_path("default", names[0]))  # Terminating, and it says why
            assert job["metadata"]["deletionTimestamp"]
            whys = {one["name"]: one["why"] for one in service.status()["jobs"]}
            assert "being deleted, its copy at cloud first" in whys[names[0]]
            forgot = await asyncio.to_thread(service.command, "forget", names[1], "--fenced")
            assert forgot.returncode == 0, forgot.stderr
        finally:
            await asyncio.to_thread(scene.cloud.start_api)
        await asyncio.to_thread(wait_for, lambda: gone(scene, names[0]), "the deleted one is gone", 60)
        recalled = await asyncio.to_thread(service.command, "recall", f"default/{names[2]}")
        assert recalled.returncode == 0, recalled.stderr
        await asyncio.to_thread(wait_for, lambda: names[2] not in epochs(scene), "its copy is gone", 60)
        # the forgotten one may have moved again, as another copy
        await asyncio.to_thread(wait_for, lambda: epochs(scene).get(names[1]) != 1, "the old copy is gone", 60)


def epochs(scene: Scene) -> dict[str, int]:
    copies = map(copy_job, scene.cloud.admin.get(jobs_path("default"))["items"])
    return {copy.name: copy.epoch for copy in copies}


def moved_events(scene: Scene) -> Counter[str]:
    uids = {job["metadata"]["uid"] for job in scene.home.admin.get(jobs_path("default"))["items"]}
    events = scene.home.admin.get("/api/v1/namespaces/default/events")["items"]
    ours = [event for event in events if event["involvedObject"].get("uid") in uids]
    return Counter(event["message"] for event in ours if event["reason"] == "BurstMoved")


def said_away(service: BurstProcess) -> bool:
    status = service.status()
    whys = [one["why"] for one in status["jobs"]]
    return not status["targets"]["cloud"]["answers"] and all("does not answer" in why for why in whys)


def gone(scene: Scene, name: str) -> bool:
    return name not in [job["metadata"]["name"] for job in scene.home.admin.get(jobs_path("default"))["items"]]


async def test_jobs_of_all_workloads(planes: Planes, tmp_path: Path, started: list[BurstProcess]) -> None:
    """Several Pods at once and in turn, failures, time to live, an owner, a deadline, a manual selector."""
    async with Scene(planes) as scene:
        owner = await asyncio.to_thread(
            scene.home.admin.post,
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"owner-{random.randrange(10**9)}"}},
        )
        owned = job_body("owned", 0.5)
        owned["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
        ]
        bodies = [
            job_body("wide", 1.0, parallelism=3, completions=3),
            job_body("long", 0.3, parallelism=2, completions=5),
            job_body("queue", 0.5, parallelism=2),
            job_body("failing", 0.3, backoffLimit=1, fail=True),
            job_body("deadline", 0.5, activeDeadlineSeconds=600),
            job_body("fleeting", 0.5, ttlSecondsAfterFinished=0),
            owned,
        ]
        names = await scene.submit(bodies)
        uids = {name: scene.uid(name) for name in names}
        started.append(BurstProcess(tmp_path, *planes).start())

        def status(name: str) -> dict[str, object]:
            job = next(j for j in scene.home.admin.get(jobs_path("default"))["items"] if j["metadata"]["name"] == name)
            return dict(job["status"])

        await asyncio.to_thread(
            wait_for, lambda: all_done(scene, [n for n in names if n != "fleeting"]), "all have ended", 200, 0.5
        )
        await asyncio.to_thread(wait_for, lambda: gone(scene, "fleeting"), "its time to live has ended", 60)
        assert {run.cluster for run in scene.runs} == {"cloud"}
        succeeded = {
            name: sum(run.origin == uids[name] and run.ended == "Succeeded" for run in scene.runs) for name in names
        }
        assert succeeded == {"wide": 3, "long": 5, "queue": 2, "failing": 0, "deadline": 1, "fleeting": 1, "owned": 1}
        assert status("wide")["succeeded"] == 3
        assert ended({"status": status("failing")}) == "Failed"
        assert scene.home.admin.get(jobs_path("default", "wide"))["spec"]["parallelism"] == 3
        assert scene.home.admin.get(jobs_path("default", "owned"))["metadata"]["ownerReferences"]
