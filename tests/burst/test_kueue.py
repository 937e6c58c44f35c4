"""Engine `multikueue`: Workloads get the clusters with room, on a small API server and, where its version can, on a
real one that knows Workloads by a definition of our own."""

import asyncio
from pathlib import Path
from typing import Any

from lab.support import TREE
from lab.support.burst_planes import BurstPlane
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.kube_admin import AdminError
from lab.support.waiting import wait_for
from tests.burst.test_whole import TwoClusters, daemon, until

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"


def workload(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"active": True, "podSets": [pods]},
    }


def condition(workload: str) -> dict[str, str]:
    now = "2024-01-01T00:00:00Z"
    return {"type": workload, "status": "True", "lastTransitionTime": now, "reason": "Test", "message": ""}


async def test_workloads_get_the_clusters_with_room(planes: tuple[BurstPlane, BurstPlane], tmp_path: Path) -> None:
    home = planes[0]
    home.apply(Path(__file__).parent / "workload-crd.yaml")
    home.apply(TREE / "deploy/burst/multikueue.yaml")

    def served() -> bool:
        try:
            return bool(home.admin.get(WORKLOADS))
        except AdminError:
            return False

    await asyncio.to_thread(wait_for, served, "Workloads are served")
    service = BurstProcess(tmp_path, *planes, engine="multikueue")
    async with Scene(planes):
        try:
            for name, cpu in (("fits", "1"), ("huge", "200"), ("no-quota", "1"), ("placed", "1")):
                home.admin.post(WORKLOADS, workload(name, cpu))
            for name in ("fits", "huge", "placed"):
                conditions = {"status": {"conditions": [condition("QuotaReserved")]}}
                home.admin.merge(f"{WORKLOADS}/{name}/status", conditions)
            home.admin.merge(f"{WORKLOADS}/placed/status", {"status": {"clusterName": "other"}})
            service.start()

            def nominated(name: str) -> list[str]:
                status = home.admin.get(f"{WORKLOADS}/{name}").get("status") or {}
                return list(status.get("nominatedClusterNames") or ())

            await asyncio.to_thread(wait_for, lambda: nominated("fits") == ["cloud"], "it is nominated", 120)
            assert [nominated(name) for name in ("huge", "no-quota", "placed")] == [[], [], []]
        finally:
            service.kill()
            home.admin.delete(WORKLOADS)


async def test_the_same_on_a_small_server(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path) as pair:
        for name, cpu, status in (
            ("fits", "1", {"conditions": [condition("QuotaReserved")]}),
            ("huge", "200", {"conditions": [condition("QuotaReserved")]}),
            ("no-quota", "1", {}),
            ("placed", "1", {"conditions": [condition("QuotaReserved")], "clusterName": "other"}),
            ("ended", "1", {"conditions": [condition("QuotaReserved"), condition("Finished")]}),
        ):
            body = {**workload(name, cpu), "status": status}
            body["metadata"] |= {"namespace": "default", "resourceVersion": "1"}
            pair.home.plain[f"{WORKLOADS}/{name}"] = body

        def nominated(name: str) -> Any:
            return pair.home.plain[f"{WORKLOADS}/{name}"]["status"].get("nominatedClusterNames")

        async with daemon(pair.settings(engine="multikueue")) as service:
            await until(lambda: nominated("fits") == ["cloud"], "it is nominated")
            assert [nominated(name) for name in ("huge", "no-quota", "placed", "ended")] == [None] * 4
            dispatcher = service.dispatcher
            assert dispatcher is not None
            await until(lambda: dispatcher.nominated == 1, "the answer has arrived")
            await dispatcher.round(0.0)
            assert dispatcher.nominated == 1  # nothing has changed: nothing is written
        assert not pair.cloud.cluster.jobs
