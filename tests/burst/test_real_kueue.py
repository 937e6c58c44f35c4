"""Engine `multikueue` beside two real Kueues (manager and worker): Jobs wait in Kueue's queue, no node is open at the
worker cluster, burst orders nodes of its provisioner and names the cluster, Kueue moves the Jobs, they run, and the
nodes are closed again. Containers are pretended (burst_planes); Kueue's webhooks are not installed (kueue)."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.burst.steps import jobs_path
from lab.support import TREE, kueue
from lab.support.burst_planes import BurstPlane, ended, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for

Planes = tuple[BurstPlane, BurstPlane]
GROUP = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture
def kueues(planes: Planes, tmp_path: Path) -> Iterator[tuple[kueue.Kueue, kueue.Kueue]]:
    if why := kueue.missing():
        pytest.skip(why)
    home, cloud = planes
    made = []
    try:
        made.append(kueue.Kueue(cloud, tmp_path / "kueue-cloud"))
        made.append(kueue.Kueue(home, tmp_path / "kueue-home", "carico.dev/burst"))
        apply(cloud, tmp_path, kueue.queue([]))
        apply(home, tmp_path, [*kueue.worker("cloud", cloud.kubeconfig("admin-token")), *kueue.queue(["elsewhere"])])
        yield made[1], made[0]
    finally:
        for one in made:
            one.stop()
        for plane in planes:
            for definition in plane.admin.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]:
                plane.admin.delete(
                    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
                )


def apply(plane: BurstPlane, tmp_path: Path, objects: list[dict[str, Any]]) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    assert plane.apply(file) == {}


def close_nodes(cloud: BurstPlane) -> list[str]:
    """All nodes of the worker cluster wait for the provisioner."""
    names = [node["metadata"]["name"] for node in cloud.admin.get("/api/v1/nodes")["items"]]
    for name in names:
        cloud.admin.merge(
            f"/api/v1/nodes/{name}", {"metadata": {"labels": {"pool": "burst"}}, "spec": {"unschedulable": True}}
        )
    return names


def open_nodes(cloud: BurstPlane) -> int:
    return sum(not node["spec"].get("unschedulable") for node in cloud.admin.get("/api/v1/nodes")["items"])


async def test_kueue_moves_what_burst_made_room_for(
    planes: Planes, kueues: tuple[kueue.Kueue, kueue.Kueue], tmp_path: Path
) -> None:
    home, cloud = planes
    home.apply(TREE / "deploy/burst/multikueue.yaml")
    arguments = ["--kubeconfig", str(cloud.kubeconfig("admin-token")), "--label", "pool=burst"]
    target = {
        "provisioner": [sys.executable, "-m", "carico_agent.burst.cordon", *arguments],
        "boot_s": 2.0,
        "max_nodes": 2,
        "node_cpu": 64.0,
        "node_pods": 40,
    }
    service = BurstProcess(tmp_path, home, cloud, target, engine="multikueue", idle_delete_s=2.0)
    async with Scene(planes) as scene:
        close_nodes(cloud)
        for number in range(3):
            home.admin.post(jobs_path("default"), kueue.queued(job_body(f"job-{number}", 3.0)))
        try:
            service.start()
            await asyncio.to_thread(wait_for, lambda: open_nodes(cloud) > 0, "a node is opened", 60, 0.5)
            await asyncio.to_thread(wait_for, lambda: all_complete(home), "all are complete", 120, 0.5)
            await asyncio.to_thread(wait_for, lambda: open_nodes(cloud) == 0, "the nodes are closed again", 60, 0.5)
        finally:
            service.kill()
            print(service.log.read_text()[-2000:])
            print(kueues[0].log.read_text()[-3000:])
            print(
                [(one["metadata"]["name"], one.get("status")) for one in home.admin.get(f"{GROUP}/workloads")["items"]]
            )
            for plane in planes:
                plane.admin.delete(jobs_path("default") + "?propagationPolicy=Background")
        assert {run.cluster for run in scene.runs} == {"cloud"}
        assert len(scene.runs) == 3


def all_complete(home: BurstPlane) -> bool:
    return [ended(job) for job in home.admin.get(jobs_path("default"))["items"]] == ["Complete"] * 3
