"""Engine `multikueue` on a real API server that knows Workloads (a definition of our own, without Kueue)."""

import asyncio
from pathlib import Path
from typing import Any

from tests.burst.daemon import BurstProcess
from tests.burst.planes import BurstPlane
from tests.burst.test_crashes import Scene
from tests.kube.plane import ApiError, wait_for

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


def condition(kind: str) -> dict[str, str]:
    now = "2024-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": "Test", "message": ""}


async def test_workloads_get_the_clusters_with_room(planes: tuple[BurstPlane, BurstPlane], tmp_path: Path) -> None:
    home = planes[0]
    home.apply(Path(__file__).parent / "workload-crd.yaml")

    def served() -> bool:
        try:
            return bool(home.admin.get(WORKLOADS))
        except ApiError:
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
