"""One user's Job, annotation or record that would stop burst for all users, or reach into another namespace."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst import data_step
from carico_agent.burst.choice import MAX_NAMED, parse_data, parse_produces
from carico_agent.burst.cluster import asked_by
from carico_agent.burst.models import Models
from carico_agent.burst.multikueue import MAX_PODS, asked
from carico_agent.burst.objects import home_job
from carico_agent.burst.overflow import NodeRoom, fitting
from carico_agent.burst.protocol import Intent
from carico_agent.burst.registry import Registry, open_registry
from carico_agent.burst.requirements import cannot_leave
from carico_agent.lib.kube.filters.pod_rules import NodeTraits
from lab.support.burst_planes import BurstPlane, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.model import SEAL
from tests.burst.test_inject import annotated
from tests.burst.test_mover import Stage, fit
from tests.burst.test_service import Served
from tests.burst.test_trust import JOBS, tenant

ELSEWHERE = "seal/../../../carico-burst/secrets/seal"
"""As a name in an address: the Secret `seal` of another namespace."""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "store").mkdir()
    return open_registry(f"file://{tmp_path}/store", "default")


async def test_a_pull_secret_without_a_name_stops_no_mover() -> None:
    """API servers take it, with a warning."""
    stage = Stage()
    stage.mover.wish(stage.submit(fit("odd", imagePullSecrets=[{}])), Intent.MOVE, "cloud")
    key = stage.submit(fit("good"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go()
    assert stage.mover.jobs[key].finished == "Complete"


@pytest.mark.parametrize(
    "volume", [{"secret": {"secretName": ELSEWHERE}}, {"configMap": {"name": ".."}}, {"secret": {"defaultMode": 1}}]
)
def test_what_is_no_name_is_part_of_no_address(volume: dict[str, Any]) -> None:
    assert "is no name" in cannot_leave(fit("a", volumes=[{"name": "v", **volume}]))


async def test_a_job_of_two_billion_pods_costs_no_time() -> None:
    stage = Served()
    stage.add_node("n", 2.0)
    key = stage.wait_at_home("huge")
    stage.world.home.jobs["default/huge"]["spec"]["parallelism"] = 2**31 - 1
    stage.mover.jobs[key] = home_job(stage.world.home.jobs["default/huge"], SEAL)
    stage.mover.wish(key, Intent.MOVE, "cloud")
    began_s = time.monotonic()
    await stage.service.round(acts=False)
    assert time.monotonic() - began_s < 5.0


def test_a_workload_of_two_billion_pods_takes_no_memory() -> None:
    sets = [{"count": 3, "template": {}}, {"count": 2**31 - 1, "template": {}}, {"count": 9, "template": {}}]
    assert len(asked({"spec": {"podSets": sets}})) == MAX_PODS


@pytest.mark.parametrize(
    "change",
    [{"size_bytes": "9"}, {"size_bytes": None}, {"size_bytes": 10**400}, {"url": {}}, {"sha256": "../../bank"}],
)
def test_a_false_record_of_a_model_is_a_reason(registry: Registry, tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "made").write_text("weights")
    record = data_step.publish(registry, f"arpu={tmp_path}/made", "train")
    place = Path(record.url.removeprefix("file://")).with_suffix(".json")
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    models = Models((), lambda namespace: registry)
    body = annotated(data="model=arpu@latest")
    body["metadata"] |= {"namespace": "default", "uid": "u"}
    models.prepare([home_job(body, SEAL)])
    with pytest.raises(ValueError, match="its record has no"):
        models.of(home_job(body, SEAL))


def test_a_record_that_is_no_record_is_a_reason(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "made").write_text("weights")
    record = data_step.publish(registry, f"arpu={tmp_path}/made", "train")
    place = Path(record.url.removeprefix("file://")).with_suffix(".json")
    place.write_text("[" * 100_000)
    with pytest.raises(LookupError, match="has no record"):
        registry.find("arpu")


def test_a_job_names_few_models() -> None:
    """Each costs a request, or a run of the operator's command, in the one round for the Jobs of all users."""
    many = [f"model=m{number}@latest" for number in range(MAX_NAMED + 1)]
    assert len(parse_data(" ".join(many[1:]))) == MAX_NAMED
    with pytest.raises(ValueError, match="at most"):
        parse_data(" ".join(many))
    with pytest.raises(ValueError, match="at most"):
        parse_produces(";".join(f"model=m{number}" for number in range(MAX_NAMED + 1)))


@pytest.mark.parametrize("name", ["--config", "../other", "-", "a b"])
def test_the_command_of_models_gets_names_only(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of a model|is not NAME=URL"):
        parse_data(f"{name}=latest,east")


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_link_leads_to_is_not_published(registry: Registry, tmp_path: Path, folder: bool) -> None:
    """The step that publishes has the credentials of the registry in its environment; the Job's container has not."""
    (tmp_path / "bank").mkdir()
    (tmp_path / "made").symlink_to(tmp_path / "bank" if folder else "/proc/self/environ")
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        data_step.publish(registry, f"arpu={tmp_path}/made", "train")
    with pytest.raises(LookupError):
        registry.find("arpu")


@pytest.mark.parametrize("what", ["terms", "ports"])
def test_thousands_of_rules_cost_no_time(what: str) -> None:
    """Before: 3000 terms of one Job took 24 s on 200 nodes with 30 Pods each, in each round; 5000 ports took 10 s."""
    rules = [
        {"labelSelector": {"matchLabels": {"a": f"b{n}"}}, "topologyKey": "kubernetes.io/hostname"} for n in range(2000)
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}
    container = {"name": "c", "ports": [{"containerPort": n + 1, "hostPort": n + 1} for n in range(3000)]}
    spec = {"affinity": affinity, "containers": []} if what == "terms" else {"containers": [container]}
    one, other = asked_by({"metadata": {}, "spec": spec}, "d"), asked_by({"metadata": {"labels": {"q": "r"}}}, "d")
    used = frozenset(("0.0.0.0", "UDP", number) for number in range(30))
    rooms = [
        NodeRoom(
            f"n{n}", traits=NodeTraits({"kubernetes.io/hostname": f"n{n}"}), residents=(other.me,) * 30, ports=used
        )
        for n in range(50)
    ]
    began_s = time.process_time()
    assert list(fitting(rooms, "k", one)) == []
    assert list(fitting([*rooms, NodeRoom("full", residents=(one.me,))], "k", other))
    assert time.process_time() - began_s < 0.5


async def test_hostile_jobs_keep_no_other_at_home(planes: tuple[BurstPlane, BurstPlane], tmp_path: Path) -> None:
    """On real servers, which take all of these Jobs."""
    user, service = tenant(planes[0]), BurstProcess(tmp_path, *planes)
    hostile: dict[str, dict[str, Any]] = {
        "unnamed": {"imagePullSecrets": [{}]},
        "elsewhere": {"volumes": [{"name": "v", "secret": {"secretName": ELSEWHERE}}]},
    }
    async with Scene(planes):
        try:
            for name, spec in hostile.items():
                body = job_body(name)
                body["spec"]["template"]["spec"] |= spec
                user.post(JOBS, body)
            service.start().ready()
            user.post(JOBS, job_body("good"))

            def ended() -> bool:
                return bool((user.get(f"{JOBS}/good").get("status") or {}).get("succeeded"))

            await asyncio.to_thread(wait_for, ended, "the good Job has run", 90)
            assert "failing" not in service.log.read_text()
        finally:
            service.kill()
