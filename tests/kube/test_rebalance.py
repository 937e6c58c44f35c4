"""After placement: the taint of full nodes, and the real descheduler with the policy of deploy/descheduler."""

import asyncio
import base64
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.lib.kube.node_taint import FULL
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.kube_admin import Admin, AdminError
from lab.support.kube_build import built
from lab.support.waiting import free_port, wait_for
from tests.conftest import TREE
from tests.kube.fleet import Fleet
from tests.recommend.prometheus_server import Server

StartExtender = Callable[..., ExtenderProcess]
AFTER_S = 2.0


def tainted(plane: Plane) -> list[str]:
    nodes = plane.admin.get("/api/v1/nodes")["items"]
    return [
        node["metadata"]["name"] for node in nodes if any(t["key"] == FULL for t in node["spec"].get("taints") or ())
    ]


async def until(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    await asyncio.to_thread(wait_for, true, what, timeout_s)


def fill(plane: Plane, node: str, pods: int) -> None:
    """Pods of a controller, bound to this node as another scheduler would."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    for number in range(pods):
        name = f"{node}-{number}"
        plane.admin.add_pod(name, 0, schedulerName="another")
        plane.admin.merge(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"ownerReferences": [owner]}})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        plane.admin.post(f"/api/v1/namespaces/default/pods/{name}/binding", body)


@pytest.fixture
def tainting(cluster: Plane, start_extender: StartExtender) -> StartExtender:
    cluster.apply(TREE / "deploy/taints/rbac.yaml")
    return lambda: start_extender(taint_full_nodes=True, taint_after_s=AFTER_S)


async def test_a_full_node_is_tainted_until_it_has_room(cluster: Plane, tainting: StartExtender) -> None:
    cluster.admin.clear()
    async with Fleet(cluster, 4.4, count=2, work_s=0.0) as fleet:
        extender = await asyncio.to_thread(tainting)
        others = [{"key": "other", "effect": "PreferNoSchedule"}]
        cluster.admin.merge("/api/v1/nodes/node-00", {"spec": {"taints": others}})
        await asyncio.to_thread(fill, cluster, "node-00", 4)
        await until(lambda: tainted(cluster) == ["node-00"], "the full node is tainted")
        assert others[0] in cluster.admin.node("node-00")["spec"]["taints"]
        cluster.start_scheduler()
        for number in range(3):
            await asyncio.to_thread(cluster.admin.add_pod, f"new-{number}")
        await until(lambda: cluster.admin.bound() == {"node-00": 4, "node-01": 3}, "Pods prefer the other node")
        cluster.admin.request("DELETE", "/api/v1/namespaces/default/pods/node-00-0?gracePeriodSeconds=0")
        fleet.nodes["node-00"].running.clear()
        await asyncio.sleep(3 * AFTER_S)
        assert tainted(cluster) == ["node-00"]  # one Pod fits: not enough to take it away
        cluster.admin.request("DELETE", "/api/v1/namespaces/default/pods/node-00-1?gracePeriodSeconds=0")
        await until(lambda: tainted(cluster) == [], "two Pods fit")
        assert cluster.admin.node("node-00")["spec"]["taints"] == others
        assert extender.process.poll() is None


@pytest.mark.parametrize("how", ["the extender stops", "the number expires", "carico kube remove"])
async def test_the_taint_does_not_stay(cluster: Plane, tainting: StartExtender, tmp_path: Path, how: str) -> None:
    cluster.admin.clear()
    async with Fleet(cluster, 3.4, count=1, work_s=0.0) as fleet:
        extender = await asyncio.to_thread(tainting)
        await asyncio.to_thread(fill, cluster, "node-00", 3)
        await until(lambda: tainted(cluster) == ["node-00"], "the full node is tainted")
        if how == "the extender stops":
            await asyncio.to_thread(extender.stop)
        elif how == "the number expires":
            await fleet.__aexit__()
            cluster.admin.delete("/apis/coordination.k8s.io/v1/namespaces/carico/leases/node-00")
            old = {"carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":60}'}
            cluster.admin.merge("/api/v1/nodes/node-00/status", {"metadata": {"annotations": old}})
        else:
            await asyncio.to_thread(extender.stop, signal.SIGKILL)
            assert tainted(cluster) == ["node-00"]
            config = cluster.kubeconfig("admin-token")
            command = [str(TREE / ".venv/bin/carico"), "kube", "remove", "node-00", "--kubeconfig", str(config)]
            done = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        await until(lambda: tainted(cluster) == [], "the taint is gone")


def test_the_extender_may_write_this_taint_only(cluster: Plane, tainting: StartExtender) -> None:
    cluster.admin.clear()
    cluster.admin.add_node("a")
    cluster.apply(TREE / "deploy/base/15-own-node.yaml")
    extender = Admin(cluster.server, cluster.ca, "extender-token")

    def refused(spec: dict[str, Any]) -> bool:
        try:
            extender.merge("/api/v1/nodes/a?dryRun=All", {"spec": spec})
        except AdminError as error:
            assert "carico-own-node" in str(error)
            return True
        return False

    wait_for(lambda: refused({"unschedulable": True}), "the policy is in force")
    other = {"key": "other", "effect": "PreferNoSchedule"}
    assert refused({"taints": [{"key": FULL, "effect": "NoSchedule"}]})
    assert refused({"taints": [other]})
    assert refused({"providerID": "x"})
    assert not refused({"taints": [{"key": FULL, "effect": "PreferNoSchedule"}]})
    cluster.admin.merge("/api/v1/nodes/a", {"spec": {"taints": [other, {"key": FULL, "effect": "PreferNoSchedule"}]}})
    assert refused({"taints": None})
    assert not refused({"taints": [other]})


class Descheduler:
    """The real program with our policy, a cycle every two seconds. It reads a certificate of its Pod, so it gets a /run
    of its own."""

    def __init__(self, plane: Plane, folder: Path, prometheus: str) -> None:
        self._plane, self._folder = plane, folder
        policy: Any = yaml.safe_load((TREE / "deploy/descheduler/policy.yaml").read_text())
        token = base64.b64encode(b"unused").decode()
        secret = {"metadata": {"name": "prometheus", "namespace": "default"}, "data": {"prometheusAuthToken": token}}
        plane.admin.post("/api/v1/namespaces/default/secrets", secret)
        reference = {"secretReference": {"name": "prometheus", "namespace": "default"}}
        policy["metricsProviders"][0]["prometheus"] = {"url": prometheus, "authToken": reference}
        (folder / "policy.yaml").write_text(yaml.safe_dump(policy))

        pod, config = "/run/secrets/kubernetes.io/serviceaccount", plane.kubeconfig("admin-token")
        program = f"{built('descheduler')}/descheduler --kubeconfig {config} --policy-config-file {folder}/policy.yaml"
        script = f"mount -t tmpfs none /run && mkdir -p {pod} && cp {plane.ca} {pod}/ca.crt && exec {program}"
        flags = f"--descheduling-interval=2s --secure-port={free_port()} --v=3"
        with (folder / "descheduler.log").open("wb") as log:
            self._process = subprocess.Popen(["unshare", "-m", "sh", "-c", f"{script} {flags}"], stdout=log, stderr=log)

    def stop(self) -> str:
        """What it has logged."""
        self._process.terminate()
        self._process.wait(20)
        self._plane.admin.delete("/api/v1/namespaces/default/secrets/prometheus")
        return (self._folder / "descheduler.log").read_text()


async def test_the_descheduler_moves_a_pod_that_does_not_come_back(
    cluster: Plane, tainting: StartExtender, tmp_path: Path
) -> None:
    cluster.admin.clear()
    async with Fleet(cluster, 5.4, count=2, work_s=0.0):
        extender = await asyncio.to_thread(tainting)
        await asyncio.to_thread(fill, cluster, "node-00", 5)
        await until(lambda: tainted(cluster) == ["node-00"], "the full node is tainted")
        server = await asyncio.to_thread(
            lambda: Server(tmp_path, scrape=extender.port, interval="500ms", path="/metrics/nodes")
        )
        try:
            await asyncio.to_thread(server.wait_for, "carico_extender_node_full_ratio", 2)
            descheduler = Descheduler(cluster, tmp_path, server.url)
            try:
                await until(lambda: cluster.admin.bound() == {"node-00": 4}, "one Pod is evicted")
                await asyncio.sleep(6.0)
                assert cluster.admin.bound() == {"node-00": 4}  # by now it has room, so no more of them
            finally:
                log = await asyncio.to_thread(descheduler.stop)
        finally:
            server.close()
        assert "LowNodeUtilization" in log
        cluster.start_scheduler()
        await asyncio.to_thread(cluster.admin.add_pod, "again")
        await until(lambda: cluster.admin.bound() == {"node-00": 4, "node-01": 1}, "its successor runs elsewhere")
