"""The rounds of the service on the model: nodes ordered, idle ones deleted, refused Pods replaced, models resolved."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst.cluster import ClusterView, NodeSeen, PodSeen, read_node, read_pod
from carico_agent.burst.models import Models
from carico_agent.burst.objects import home_job
from carico_agent.burst.overflow import Asked, NodeRoom
from carico_agent.burst.planner import BurstPolicy
from carico_agent.burst.protocol import Intent
from carico_agent.burst.provisioner import Provisioner
from carico_agent.burst.report import status
from carico_agent.burst.service import BurstService
from carico_agent.burst.site import Site
from carico_agent.lib.kube.health import Health
from tests.burst.model import SEAL, ledger
from tests.burst.test_mover import Stage, fit
from tests.burst.test_provisioner import Fake


class Served(Stage):
    """A stage with a service; its views are filled by hand."""

    def __init__(self, fake: Fake | None = None, idle_delete_s: float = 0.0) -> None:
        super().__init__()
        view = ClusterView(self.cloud, Health("cloud"))  # type: ignore[arg-type]
        for watch in view.watches:
            watch.synced.set()
        provisioner = None
        if fake is not None:
            provisioner = Provisioner(self.home, "carico", "cloud", (str(fake.path),), 20.0)  # type: ignore[arg-type]
        self.site = Site(
            self.target,
            view,
            price_per_h=0.5,
            provisioner=provisioner,
            new_node=NodeRoom("new", 4.0, 8e9),
            boot_s=60.0,
            max_nodes=3,
        )
        home = ClusterView(self.home, Health("home"))  # type: ignore[arg-type]
        policy = BurstPolicy(unschedulable_s=5.0, value_per_h=5.0)
        self.service = BurstService(self.mover, home, {"cloud": self.site}, policy, idle_delete_s, Models(()).of)

    def wait_at_home(self, name: str, since_s: float = 60.0) -> tuple[str, str]:
        key = self.submit(fit(name))
        found = self.world.home.jobs[f"default/{name}"]
        self.mover.saw(home_job(found, SEAL))
        uid = found["metadata"]["uid"]
        pod = PodSeen(f"p-{name}", uid, "", Asked(1.0), False, 0.0, time.time() - since_s, False)
        self.service.home.pods[pod.uid] = pod
        return key

    def add_node(self, name: str, cpu: float = 4.0) -> None:
        self.site.view.nodes[name] = NodeSeen(name, cpu, 8e9, 10, True)


async def test_jobs_move_to_free_nodes_and_no_further() -> None:
    stage = Served()
    stage.add_node("n", 2.0)
    keys = [stage.wait_at_home(f"j{n}") for n in range(3)]
    await stage.service.round(acts=True)
    assert [stage.mover.wished_target(key) for key in keys] == ["cloud", "cloud", ""]
    await stage.service.round(acts=True)  # the room of those on their way is taken
    assert stage.mover.wished_target(keys[2]) == ""
    assert "no room" in stage.mover.reasons[keys[2]]


async def test_plan_does_nothing() -> None:
    stage = Served()
    stage.add_node("n")
    key = stage.wait_at_home("a")
    before = stage.home.requests + stage.cloud.requests
    await stage.service.round(acts=False)
    assert stage.service.plan.moves == {key: "cloud"}
    assert stage.home.requests + stage.cloud.requests == before
    (job,) = status(stage.service)["jobs"]
    assert job["to"] == "cloud"
    assert job["options"][0]["target"] == "cloud"


async def test_nodes_are_ordered_used_and_deleted_when_idle(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    stage = Served(fake)
    keys = [stage.wait_at_home(f"j{n}") for n in range(3)]
    for _ in range(4):
        await stage.service.round(acts=True)
    provisioner = stage.site.provisioner
    assert provisioner is not None
    assert provisioner.report.state == "ready"
    assert provisioner.report.nodes >= 1
    assert all(stage.mover.reasons[key] == "waits for a node at cloud" for key in keys)
    stage.add_node("n")
    await stage.service.round(acts=True)
    assert [stage.mover.wished_target(key) for key in keys] == ["cloud"] * 3
    stage.service.home.pods.clear()
    await stage.go(15)
    stage.world.check_end({f"default/{name}": 1 for _, name in keys})
    for found in stage.world.home.jobs.values():
        stage.mover.saw(home_job(found, SEAL))
    for _ in range(4):
        await stage.service.round(acts=True)
    assert provisioner.report.state == "absent"
    assert json.loads((tmp_path / "state").read_text())["nodes"] == 0


async def test_a_target_proven_gone_gives_its_jobs_back_and_a_silent_one_does_not(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    (tmp_path / "state").write_text(json.dumps({"nodes": 1, "done": [], "orders": 0}))
    stage = Served(fake, idle_delete_s=1e9)
    stage.add_node("n")
    key = stage.wait_at_home("a")
    await stage.service.round(acts=True)
    await stage.service.round(acts=True)
    await stage.go(6, work=False)
    assert ledger(stage.world.home, "a")["state"] == "away"
    stage.cloud.silent, stage.target.silent_since_s = True, time.monotonic() - 60.0
    await stage.service.round(acts=True)
    assert not stage.mover.wished(key)  # its provisioner says: ready
    (job,) = status(stage.service)["jobs"]
    assert "does not answer" in job["why"]
    assert "forget --fenced" in job["why"]
    (tmp_path / "state").write_text(json.dumps({"nodes": 0, "done": [], "orders": 0}))
    stage.world.cloud.pods.clear()
    await stage.service.round(acts=True)
    await stage.go(6, work=False)
    assert ledger(stage.world.home, "a")["state"] == "home"
    assert stage.world.home.jobs["default/a"]["spec"]["parallelism"] == 1


async def test_only_pods_that_a_kubelet_refused_are_replaced() -> None:
    stage = Served()
    stage.target.copies["default", "a"] = None  # type: ignore[assignment]
    pods = [
        {"metadata": {"namespace": "default", "name": name}, "status": {"phase": "Failed", "reason": reason}}
        for name, reason in (("refused", "OutOfcpu"), ("broken", ""), ("evicted", "Evicted"))
    ]
    stage.cloud.lists["/api/v1/pods"] = pods
    for pod in pods:
        stage.cloud.objects[f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"] = pod
    await stage.service._replace_refused(stage.site)
    left = [path.rpartition("/")[2] for path in stage.cloud.objects if "/pods/" in path]
    assert left == ["broken", "evicted"]


async def test_a_recalled_job_is_not_moved_again() -> None:
    stage = Served()
    stage.add_node("n")
    key = stage.wait_at_home("a")
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(6, work=False)
    stage.mover.wish(key, Intent.RECALL, "cloud")
    await stage.go(12, work=False)
    assert ledger(stage.world.home, "a")["state"] == "home"
    await stage.service.round(acts=True)
    assert not stage.mover.wished(key)


def test_the_newest_model_is_asked_of_a_command(tmp_path: Path) -> None:
    script = tmp_path / "newest.py"
    script.write_text(
        "import json, sys\nprint(json.dumps({'url': 's3://m/' + sys.argv[1], 'region': 'west', 'gb': 3}))"
    )
    body = fit("a")
    body["metadata"] |= {"uid": "u", "annotations": {"carico.dev/data": "churn=latest; base=s3://b,east"}}
    models, found = Models((sys.executable, str(script))), home_job(body, SEAL)
    with pytest.raises(ValueError, match="not asked yet"):
        models.of(found)
    models.prepare([found])
    assert [(one.url, one.region, one.gb) for one in models.of(found)] == [
        ("s3://m/churn", "west", 3.0),
        ("s3://b", "east", 1.0),
    ]


@pytest.mark.parametrize("code,why", [("print('x')", "no JSON with a url"), ("raise SystemExit(3)", "exit status 3")])
def test_a_model_that_nobody_knows_keeps_the_job_at_home(code: str, why: str) -> None:
    body = fit("a")
    body["metadata"] |= {"uid": "u", "annotations": {"carico.dev/data": "churn=latest"}}
    models, found = Models((sys.executable, "-c", code)), home_job(body, SEAL)
    models.prepare([found])
    with pytest.raises(ValueError, match=why):
        models.of(found)


NODES: list[tuple[dict[str, Any], float | None]] = [
    ({}, None),
    ({"carico.dev/pod-capacity": "2.5"}, None),
    ({"carico.dev/pod-capacity": "2.5", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150}'}, 2.5),
    ({"carico.dev/pod-capacity": "inf", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150}'}, None),
    ({"carico.dev/pod-capacity": "x", "carico.dev/status": "[]"}, None),
]


@pytest.mark.parametrize("annotations,capacity", NODES)
def test_what_a_node_says_is_read_or_left(annotations: dict[str, Any], capacity: float | None) -> None:
    node = {"metadata": {"name": "n", "annotations": annotations}, "status": {"allocatable": {"cpu": "4"}}}
    assert read_node(node).pod_capacity == capacity


def test_an_expired_number_is_no_number() -> None:
    view = ClusterView(None, Health("x"))  # type: ignore[arg-type]
    view.nodes["n"] = NodeSeen("n", 4.0, 8e9, 10, True, 0.2, {}, until_s=100.0)
    assert view.room(99.0)[0].pod_capacity == 0.2
    assert view.room(101.0)[0].pod_capacity is None


def test_a_pod_is_read() -> None:
    condition = {"type": "PodScheduled", "reason": "Unschedulable", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    owner = {"kind": "Job", "uid": "j", "controller": True}
    seen = read_pod({"metadata": {"uid": "p", "ownerReferences": [owner]}, "status": {"conditions": [condition]}})
    assert (seen.job, seen.node, seen.unschedulable_since_s) == ("j", "", 1704067200.0)


async def test_how_long_pods_ran_is_learned() -> None:
    stage = Served()
    stage.wait_at_home("a")
    uid = stage.world.home.jobs["default/a"]["metadata"]["uid"]
    pod = PodSeen("p", uid, "n", Asked(1.0), True, time.time() - 100.0, None, False)
    stage.service.home._pod_changed(False, pod)
    stage.service.home._pod_changed(True, pod)
    await stage.service.round(acts=False)
    assert stage.service.history.duration_s("default/x") == pytest.approx(100.0, abs=5.0)


async def test_nodes_that_shall_always_be_there_are_ordered_and_kept(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    stage = Served(fake)
    stage.site.min_nodes = 1
    for _ in range(4):
        await stage.service.round(acts=True)
    provisioner = stage.site.provisioner
    assert provisioner is not None
    assert (provisioner.order.verb, provisioner.order.nodes) == ("scale", 1)
    stage.add_node("n")
    for _ in range(4):
        await stage.service.round(acts=True)
    assert (provisioner.order.verb, provisioner.order.nodes) == ("scale", 1)
