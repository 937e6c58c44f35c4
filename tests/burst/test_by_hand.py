"""What a user types, on two real control planes with the rights of deploy/burst: check, move, explain, recall, logs;
and ConfigMaps and Secrets that go with a Job and away with its copy. Containers are pretended (burst_planes)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.burst.steps import jobs_path
from lab.support import TREE
from lab.support.burst_planes import BurstPlane, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.test_daemon import all_done

Planes = tuple[BurstPlane, BurstPlane]
SPACE = "/api/v1/namespaces/default"


def apply_copy(planes: Planes, tmp_path: Path) -> None:
    """Each cluster its part of copy.yaml."""
    objects = list(yaml.safe_load_all((TREE / "deploy/burst/copy.yaml").read_text()))
    for plane, side in zip(planes, ("home", "target"), strict=True):
        file = tmp_path / f"{side}.yaml"
        file.write_text(yaml.safe_dump_all(one for one in objects if side in one["metadata"]["name"]))
        plane.apply(file)


def withdraw_copy(planes: Planes) -> None:
    for plane, side in zip(planes, ("home", "target"), strict=True):
        name = f"carico-burst-{side}-copy"
        plane.admin.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/{name}")


def names(plane: BurstPlane, kind: str) -> set[str]:
    return {one["metadata"]["name"] for one in plane.admin.get(f"{SPACE}/{kind}")["items"]}


def body(name: str, work_s: float = 1.0) -> dict[str, Any]:
    made = job_body(name, work_s)
    pod = made["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "configMap": {"name": "params"}}]
    pod["containers"][0]["envFrom"] = [{"secretRef": {"name": "key"}}]
    return made


@pytest.fixture
def objects(planes: Planes, tmp_path: Path) -> Any:
    home = planes[0].admin
    home.post(f"{SPACE}/configmaps", {"metadata": {"name": "params"}, "data": {"rate": "0.1"}})
    home.post(f"{SPACE}/secrets", {"metadata": {"name": "key"}, "stringData": {"k": "v"}})
    yield
    home.delete(f"{SPACE}/configmaps/params")
    home.delete(f"{SPACE}/secrets/key")


async def test_a_job_by_hand(planes: Planes, objects: None, tmp_path: Path) -> None:
    home, cloud = planes
    apply_copy(planes, tmp_path)
    (tmp_path / "none").mkdir()
    allowed = BurstProcess(tmp_path, home, cloud, {"copy": ["configmaps", "secrets"]}, keep_logs=False)
    strict = BurstProcess(tmp_path / "none", home, cloud)

    def typed(service: BurstProcess, *arguments: str, code: int = 0) -> str:
        done = service.command(*arguments)
        print(f"$ carico burst {' '.join(arguments)}\n{done.stdout}{done.stderr}", end="")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def commands() -> None:
        refused = typed(strict, "check", "train", code=1)
        assert (
            'cloud has no config map params (the target\'s setting copy = ["configmaps"] lets burst bring it)'
            in refused
        )
        assert "cloud has no secret key" in typed(strict, "move", "train", "--to", "cloud", code=1)
        assert "has config map params (burst copies it)" in typed(allowed, "check", "train")
        assert "0/1 nodes" in typed(allowed, "explain", "train")
        assert typed(allowed, "move", "train", "--to", "cloud") == "default/train is away at cloud\n"
        assert cloud.admin.get(f"{SPACE}/configmaps/params")["data"] == {"rate": "0.1"}
        wait_for(lambda: "Running on cloud-" in typed(allowed, "explain", "train"), "its Pod runs", 60, 1.0)
        assert typed(allowed, "recall", "train") == "default/train is at home\n"
        wait_for(lambda: "params" not in names(cloud, "configmaps"), "they went with the copy", 60)
        wait_for(lambda: "key" not in names(cloud, "secrets"), "they went with the copy", 60)
        typed(allowed, "logs", "train", code=1)

    async with Scene(planes) as scene:
        await scene.submit([body("train", 30.0)])
        allowed.start()  # it makes the key of the seal
        await asyncio.to_thread(allowed.ready)
        allowed.kill()
        await asyncio.to_thread(commands)
        assert home.admin.get(jobs_path("default", "train"))["spec"].get("suspend") is False
        home.admin.delete(jobs_path("default", "train") + "?propagationPolicy=Background")
    withdraw_copy(planes)


async def test_the_service_takes_them_along(planes: Planes, objects: None, tmp_path: Path) -> None:
    home, cloud = planes
    apply_copy(planes, tmp_path)
    service = BurstProcess(tmp_path, home, cloud, {"copy": ["configmaps", "secrets"]}, keep_logs=False)
    async with Scene(planes) as scene:
        jobs = await scene.submit([body(f"job-{number}", 2.0) for number in range(3)])
        service.start()
        try:
            await asyncio.to_thread(wait_for, lambda: all_done(scene, jobs), "all have ended", 120, 0.5)
        finally:
            service.kill()
            print(service.log.read_text()[-3000:])
        scene.judge(jobs, cluster="cloud")
        for kind, name in (("configmaps", "params"), ("secrets", "key")):
            await asyncio.to_thread(wait_for, lambda k=kind, n=name: n not in names(cloud, k), f"{kind} are gone", 60)
    withdraw_copy(planes)


async def test_without_the_right_the_job_stays_at_home_and_says_why(
    planes: Planes, objects: None, tmp_path: Path
) -> None:
    service = BurstProcess(tmp_path, *planes, {"copy": ["configmaps", "secrets"]}, keep_logs=False)
    async with Scene(planes) as scene:
        await scene.submit([body("train")])
        service.start()
        try:
            await asyncio.to_thread(service.ready)
            await asyncio.to_thread(
                wait_for, lambda: "cannot be copied" in str(service.status()["jobs"]), "it says why", 60, 0.5
            )
            seen = service.status()["jobs"][0]
        finally:
            service.kill()
        assert seen["state"] == "home"
        assert 'missing right: "get" on "configmaps" in namespace default' in seen["why"]
        assert scene.runs == []
