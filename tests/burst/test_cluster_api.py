"""The provisioner for Cluster API against its real definitions on a real API server. Its controllers are played here:
`Controllers` does what they do to Clusters and Machines. The cluster that appears is the second control plane."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst.cluster_api import DELETE_FIRST, wanted_replicas
from carico_agent.burst.registry import open_registry
from carico_agent.burst.steps import jobs_path
from lab.support.burst_planes import BurstPlane, Kubelets, PodRun, ended, job_body
from lab.support.burst_process import BurstProcess
from lab.support.kube_admin import AdminError
from lab.support.module_files import module_folder
from lab.support.waiting import wait_for
from tests.burst.test_on_demand import forget_orders

BASE = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default"
SECRETS = "/api/v1/namespaces/default/secrets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CATALOGUE = "[machines.west]\nbig = { price = 0.68, cpu = 4, memory_gb = 8 }\n"


class Controllers:
    """Cluster API's part: a Cluster gets a finalizer, a kubeconfig and Machines; each Machine becomes a node."""

    def __init__(self, management: BurstPlane, workload: BurstPlane) -> None:
        self._management, self._workload = management, workload
        self._made = 0
        self.deleted: list[str] = []
        """Nodes of Machines that were deleted, in order."""

    def act(self) -> None:
        for cluster in self._management.admin.get(f"{BASE}/clusters")["items"]:
            try:
                self._reconcile(cluster)
            except AdminError as error:
                if error.status != 409:
                    raise

    def _machines(self) -> list[dict[str, Any]]:
        return list(self._management.admin.get(f"{BASE}/machines")["items"])

    def _reconcile(self, cluster: dict[str, Any]) -> None:
        admin, name = self._management.admin, cluster["metadata"]["name"]
        if cluster["metadata"].get("deletionTimestamp"):
            for machine in self._machines():
                self._remove(machine)
            if any(one["metadata"]["name"] == f"{name}-kubeconfig" for one in admin.get(SECRETS)["items"]):
                admin.delete(f"{SECRETS}/{name}-kubeconfig")
            admin.merge(f"{BASE}/clusters/{name}", {"metadata": {"finalizers": None}})
            return
        if not cluster["metadata"].get("finalizers"):
            admin.merge(f"{BASE}/clusters/{name}", {"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})
            text = self._workload.kubeconfig("burst-token").read_bytes()
            body = {"metadata": {"name": f"{name}-kubeconfig"}, "data": {"value": base64.b64encode(text).decode()}}
            admin.post(SECRETS, body)
        for workers in cluster["spec"]["topology"]["workers"]["machineDeployments"]:
            self._size(name, workers["name"], workers["replicas"])

    def _size(self, cluster: str, workers: str, replicas: int) -> None:
        labels = {"cluster.x-k8s.io/cluster-name": cluster, "topology.cluster.x-k8s.io/deployment-name": workers}
        mine = [one for one in self._machines() if labels.items() <= one["metadata"]["labels"].items()]
        mine.sort(key=lambda one: DELETE_FIRST not in (one["metadata"].get("annotations") or {}))
        for machine in mine[: max(0, len(mine) - replicas)]:
            self._remove(machine)
        for _ in range(replicas - len(mine)):
            self._add(cluster, labels)

    def _add(self, cluster: str, labels: dict[str, str]) -> None:
        self._made += 1
        name = f"{cluster}-{self._made}"
        reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "PlayedMachine", "name": name}
        spec = {"clusterName": cluster, "bootstrap": {"dataSecretName": name}, "infrastructureRef": reference}
        self._management.admin.post(
            f"{BASE}/machines",
            {
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "Machine",
                "metadata": {"name": name, "labels": labels},
                "spec": spec,
            },
        )
        self._workload.admin.add_node(name, 4, 10)
        self._management.admin.merge(f"{BASE}/machines/{name}/status", {"status": {"nodeRef": {"name": name}}})

    def _remove(self, machine: dict[str, Any]) -> None:
        name = machine["metadata"]["name"]
        self._management.admin.delete(f"{BASE}/machines/{name}")
        self._workload.admin.delete(f"/api/v1/nodes/{name}")
        self.deleted.append(name)


@pytest.fixture
def controllers(planes: tuple[BurstPlane, BurstPlane]) -> Iterator[Controllers]:
    home, cloud = planes
    try:
        folder = module_folder("cluster-api") / "core/config/crd/bases"
    except LookupError as error:
        pytest.skip(str(error))
    names = ("clusters", "machines")
    home.apply(*(folder / f"cluster.x-k8s.io_{name}.yaml" for name in names))

    def served() -> bool:
        try:
            return all("items" in home.admin.get(f"{BASE}/{name}") for name in names)
        except AdminError:
            return False

    wait_for(served, "the definitions are served")
    yield Controllers(home, cloud)
    for name in names:
        for one in home.admin.get(f"{BASE}/{name}")["items"]:
            home.admin.merge(f"{BASE}/{name}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
        home.admin.delete(f"{DEFINITIONS}/{name}.cluster.x-k8s.io")


def command(home: BurstPlane) -> list[str]:
    arguments = ["--kubeconfig", str(home.kubeconfig("admin-token")), "--class", "burst", "--version", "v1.36.4"]
    return [sys.executable, "-m", "carico_agent.burst.cluster_api", *arguments]


def ask(home: BurstPlane, verb: str, nodes: int = 0, busy: tuple[str, ...] = (), code: int = 0) -> Any:
    machines = {"big": {"nodes": nodes}}
    request = {"request_id": "c-1", "verb": verb, "target": "c", "nodes": nodes, "machines": machines, "busy": busy}
    done = subprocess.run(command(home), input=json.dumps(request), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if not code else done.stderr


def test_the_command(planes: tuple[BurstPlane, BurstPlane], controllers: Controllers) -> None:
    home = planes[0]
    assert ask(home, "status") == {"state": "absent"}
    assert ask(home, "delete") == {"state": "absent"}
    assert ask(home, "scale", 3)["state"] == "working"
    assert ask(home, "scale", 3)["state"] == "working"  # twice is once
    controllers.act()
    report = ask(home, "status")
    assert (report["state"], report["nodes"], report["machines"]) == ("ready", 3, {"big": 3})
    assert json.loads(report["kubeconfig"])["kind"] == "Config"
    assert ask(home, "scale", 1, busy=("c-1",))["state"] == "working"
    controllers.act()
    assert (controllers.deleted, ask(home, "status")["nodes"]) == (["c-2", "c-3"], 1)
    assert ask(home, "delete")["state"] == "working"
    assert ask(home, "scale", 2)["state"] == "working"  # not into a Cluster that is being deleted
    controllers.act()
    assert ask(home, "status") == {"state": "absent"}


def test_a_cluster_of_another_client_is_left_alone(
    planes: tuple[BurstPlane, BurstPlane], controllers: Controllers
) -> None:
    home = planes[0]
    spec = {"topology": {"classRef": {"name": "theirs"}, "version": "v1.36.4"}}
    home.admin.post(
        f"{BASE}/clusters",
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"}, "spec": spec},
    )
    for verb in ("scale", "delete", "status"):
        assert "was not created by this provisioner" in ask(home, verb, 1, code=1)
    assert home.admin.get(f"{BASE}/clusters/c")["spec"] == spec
    home.admin.delete(f"{BASE}/clusters/c")


def test_no_class_shrinks_below_its_busy_nodes() -> None:
    def machine(name: str, workers: str) -> dict[str, Any]:
        labels = {"topology.cluster.x-k8s.io/deployment-name": workers}
        return {"metadata": {"name": name, "labels": labels}, "status": {"nodeRef": {"name": name}}}

    machines = [machine("a", "big"), machine("b", "big"), machine("g", "gpu"), machine("p", "")]
    request = {"nodes": 1, "machines": {"big": {"nodes": 1}}, "busy": ["a", "b"]}
    assert wanted_replicas(request, machines) == {"big": 2, "gpu": 0}


class DataStory:
    """What can be seen from outside, in its order; the service is killed as soon as each is there."""

    def __init__(self, home: BurstPlane, cloud: BurstPlane, controllers: Controllers) -> None:
        self._home, self._cloud, self._controllers = home, cloud, controllers
        self.left = [self.cluster, self.kubeconfig, self.copied, self.away]
        self.urls: set[str] = set()

    def over(self, service: BurstProcess) -> bool:
        self._controllers.act()
        self._look()
        if made := [step for step in self.left if step()]:
            self.left = [step for step in self.left if step not in made]
            service.kill()
            service.start()
        jobs = self._home.admin.get(jobs_path("default"))["items"]
        return all(ended(job) for job in jobs) and bool(self._controllers.deleted) and not self.cluster()

    def _look(self) -> None:
        """Where the copy of the Job with data reads its model."""
        for copy in self._cloud.admin.get(jobs_path("default"))["items"]:
            env = copy["spec"]["template"]["spec"]["containers"][0].get("env") or ()
            self.urls |= {one["value"] for one in env if one["name"] == "CARICO_DATA_ARPU_URL"}

    def cluster(self) -> bool:
        return bool(self._home.admin.get(f"{BASE}/clusters")["items"])

    def kubeconfig(self) -> bool:
        secret = self._home.admin.get("/api/v1/namespaces/carico-burst/secrets/carico-burst-cloud-kubeconfig")
        return bool((secret.get("data") or {}).get("kubeconfig"))

    def copied(self) -> bool:
        return bool(self._cloud.admin.get(jobs_path("default"))["items"])

    def away(self) -> bool:
        jobs = self._home.admin.get(jobs_path("default"))["items"]
        return any('"away"' in str(job["metadata"].get("annotations")) for job in jobs)


@pytest.mark.long
async def test_no_cluster_then_jobs_one_with_data_then_none_again(
    planes: tuple[BurstPlane, BurstPlane], controllers: Controllers, tmp_path: Path
) -> None:
    """Started without a target; the service is killed at every step; each Job runs once."""
    home, cloud = planes
    (tmp_path / "store").mkdir()
    (tmp_path / "weights").write_text("w")
    registry = open_registry(f"file://{tmp_path}/store", "default")
    record = registry.publish("arpu", tmp_path / "weights", "train", tmp_path)
    target = {"provisioner": command(home), "machines": ["big"], "boot_s": 5.0, "max_nodes": 2}
    target["host_paths"] = [str(tmp_path)]
    service = BurstProcess(tmp_path, home, None, target, catalogue=CATALOGUE, idle_delete_s=2.0, keep_logs=False)
    table = f'registry = {{ url = "{registry.store.url}" }}'
    service.config.write_text(service.config.read_text().replace("[burst]\n", f"[burst]\n{table}\n", 1))
    forget_orders(home)
    runs: list[PodRun] = []
    story = DataStory(home, cloud, controllers)
    async with Kubelets("home", home, runs, nodes=1, places=1), Kubelets("cloud", cloud, runs, nodes=0):
        home.admin.merge("/api/v1/nodes/home-0", {"spec": {"unschedulable": True}})
        bodies = [job_body(f"job-{number}", 3.0) for number in range(3)]
        bodies[0]["metadata"]["annotations"] = {"carico.dev/data": "model=arpu@latest"}
        for body in bodies:
            home.admin.post(jobs_path("default"), body)
        try:
            service.start()
            await asyncio.to_thread(wait_for, lambda: story.over(service), "all is over", 240, 0.2)
        finally:
            service.kill()
            print(service.log.read_text()[-3000:])
        jobs = home.admin.get(jobs_path("default"))["items"]
    assert not story.left
    assert [ended(job) for job in jobs] == ["Complete"] * 3
    assert sorted(run.cluster for run in runs) == ["cloud"] * 3
    assert story.urls == {record.url}
    forget_orders(home)
