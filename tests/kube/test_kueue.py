"""Kueue itself, and its admission check `carico-room` that the extender answers: a Job starts when all its Pods fit."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.support import kueue
from lab.support.burst_planes import BurstPlane, job_body
from lab.support.control_plane import binaries
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from tests.conftest import TREE
from tests.kube.fleet import Fleet

pytestmark = pytest.mark.kube

JOBS = "/apis/batch/v1/namespaces/default/jobs"
KUEUE = f"/apis/{kueue.API}"
CHECK = "carico-room"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BurstPlane]:
    try:
        binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    if why := kueue.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("kueue")
    plane, manager = BurstPlane(folder), None
    try:
        plane.start()
        plane.start_controllers()
        plane.start_scheduler()
        manager = kueue.Kueue(plane, folder / "manager")
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        files = [file for file in sorted((TREE / "deploy/kueue").glob("*.yaml")) if file.name != "extender-config.yaml"]
        assert plane.apply(*files) == {}
        (folder / "queues.yaml").write_text(
            yaml.safe_dump_all([*kueue.queue([CHECK], "all"), *kueue.queue([CHECK], "zone-b", {"zone": "b"})])
        )
        assert plane.apply(folder / "queues.yaml") == {}
        yield plane
    finally:
        if manager is not None:
            manager.stop()
        plane.stop()


@asynccontextmanager
async def cluster(
    plane: BurstPlane, folder: Path, slots: float, work_s: float, **settings: Any
) -> AsyncIterator[Fleet]:
    """Two nodes and an extender that leads; without Jobs before and after."""
    plane.admin.clear()
    extender = ExtenderProcess(folder, plane.kubeconfig("extender-token"), kueue=True, **settings).ready()
    try:
        async with Fleet(plane, slots, count=2, work_s=work_s) as fleet:
            await until(lambda: "carico_extender_leads 1" in extender.metrics(), "it leads")
            yield fleet
    finally:
        for one in plane.admin.get(f"{KUEUE}/workloads")["items"]:
            print(one["metadata"]["name"], json.dumps(one.get("status")))  # shown where the test fails
        extender.stop()
        await asyncio.to_thread(plane.admin.request, "DELETE", f"{JOBS}?propagationPolicy=Background")
        await until(lambda: not plane.admin.get(f"{KUEUE}/workloads")["items"], "the Workloads are gone")
        plane.admin.clear()


async def until(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    await asyncio.to_thread(wait_for, true, what, timeout_s)


def submit(plane: BurstPlane, name: str, pods: int, queue: str = "all") -> None:
    job = job_body(name, parallelism=pods, completions=pods, suspend=True)  # as Kueue's webhook would leave it
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    asked = {"cpu": "100m", "memory": "16Mi", "carico.dev/pods": "1"}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": asked,
        "limits": {"carico.dev/pods": "1"},
    }
    plane.admin.post(JOBS, job)


def active(plane: BurstPlane, job: str) -> int:
    return int((plane.admin.get(f"{JOBS}/{job}").get("status") or {}).get("active") or 0)


def workload_of(plane: BurstPlane, job: str) -> dict[str, Any]:
    """The status of a Job's Workload."""
    items = plane.admin.get(f"{KUEUE}/namespaces/default/workloads")["items"]
    found = [one for one in items for owner in one["metadata"].get("ownerReferences") or () if owner["name"] == job]
    return dict(found[0].get("status") or {}) if found else {}


def check_of(plane: BurstPlane, job: str) -> dict[str, Any]:
    """Its admission check, empty while there is none."""
    return dict((workload_of(plane, job).get("admissionChecks") or [{}])[0])


def is_admitted(plane: BurstPlane, job: str) -> bool:
    conditions = workload_of(plane, job).get("conditions") or ()
    return any(one["type"] == "Admitted" and one["status"] == "True" for one in conditions)


async def test_a_job_starts_when_all_its_pods_fit(plane: BurstPlane, tmp_path: Path) -> None:
    """Six slots: four Pods start, three more wait until the first ones have ended."""
    async with cluster(plane, tmp_path, 3.4, work_s=10.0):
        submit(plane, "first", 4)
        await until(lambda: active(plane, "first") == 4, "the first Job runs")
        assert check_of(plane, "first")["message"].startswith("all 4 Pods fit: ")
        submit(plane, "second", 3)
        await until(
            lambda: check_of(plane, "second").get("message", "").startswith("room for "), "the second Job waits"
        )
        waits = check_of(plane, "second")
        assert (waits["state"], waits["message"][:22]) == ("Pending", "room for 2 of 3 Pods: ")
        assert active(plane, "second") == 0
        await until(lambda: active(plane, "second") == 3, "there is room again")
        assert is_admitted(plane, "second")
        await until(lambda: len(plane.admin.bound()) > 0 and sum(plane.admin.bound().values()) <= 6, "within the slots")


async def test_room_is_promised_once(plane: BurstPlane, tmp_path: Path) -> None:
    """Two Jobs of four Pods at the same moment, six slots: one of them starts."""
    async with cluster(plane, tmp_path, 3.4, work_s=0.0):
        submit(plane, "one", 4)
        submit(plane, "two", 4)
        await until(lambda: active(plane, "one") + active(plane, "two") == 4, "one of them runs")
        deadline_s = time.monotonic() + 8.0
        while time.monotonic() < deadline_s:
            assert active(plane, "one") + active(plane, "two") == 4
            await asyncio.sleep(0.5)
        assert sorted(check_of(plane, name)["state"] for name in ("one", "two")) == ["Pending", "Ready"]


async def test_a_flavor_selects_the_nodes(plane: BurstPlane, tmp_path: Path) -> None:
    """Three slots on the node of zone b: four Pods do not fit there, three do."""
    async with cluster(plane, tmp_path, 3.4, work_s=0.0):
        plane.admin.merge("/api/v1/nodes/node-01", {"metadata": {"labels": {"zone": "b"}}})
        submit(plane, "four", 4, "zone-b")
        await until(lambda: check_of(plane, "four").get("message", "").startswith("room for 3 of 4"), "it waits")
        submit(plane, "three", 3, "zone-b")
        await until(lambda: plane.admin.bound() == {"node-01": 3}, "three are bound")
