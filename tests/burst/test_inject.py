"""A Job with its data steps, and Jobs that wait for others."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.burst.choice import Data
from carico_agent.burst.inject import FETCH, PUBLISH, DataSteps, prepared, with_steps
from carico_agent.burst.models import Models
from carico_agent.burst.objects import home_job
from carico_agent.burst.ordering import AFTER, STARTED, created, why_waits
from carico_agent.burst.protocol import Intent
from carico_agent.burst.registry import open_registry
from carico_agent.burst.requirements import Needed, cannot_leave, needed
from carico_agent.burst.steps import Route
from carico_agent.cli import main
from tests.burst.model import SEAL, Object
from tests.burst.test_mover import Stage, fit
from tests.burst.test_service import Served

STEPS = DataSteps("s3://models/team", "http://store:9000", "west", "registry-key", "carico:1", "/var/cache/models")


def annotated(name: str = "a", **annotations: str) -> Object:
    body = fit(name)
    body["metadata"]["annotations"] = {f"carico.dev/{key}": value for key, value in annotations.items()}
    return body


def pod(body: Object) -> Object:
    found: Object = body["spec"]["template"]["spec"]
    return found


def names(containers: list[Object]) -> list[str]:
    return [one["name"] for one in containers]


def env(container: Object) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_what_a_job_reads_is_fetched_before_it_starts() -> None:
    made = pod(with_steps(annotated(data="model=arpu@latest"), STEPS))
    assert (names(made["initContainers"]), names(made["containers"])) == ([FETCH], ["c"])
    fetch, own = made["initContainers"][0], made["containers"][0]
    registry = ["--registry", "s3://models/team", "--namespace", "default", "--endpoint", "http://store:9000"]
    where = ["--region", "west", "--to", "/carico/data", "--cache", "/carico/cache"]
    assert fetch["args"][2:] == ["fetch", *registry, *where, "arpu@latest"]
    assert env(own) == {"CARICO_DATA_ARPU": "/carico/data/arpu"}


def test_a_model_is_published_only_after_a_container_that_ended_well() -> None:
    made = pod(with_steps(annotated(data="model=arpu@latest", produces="model=saved"), STEPS))
    assert (names(made["initContainers"]), names(made["containers"])) == ([FETCH, "c"], [PUBLISH])
    assert made["containers"][0]["args"][-1] == "saved=/carico/out-saved"
    assert env(made["initContainers"][1])["CARICO_OUT_SAVED"] == "/carico/out-saved"


def test_only_the_steps_have_the_credentials_and_the_cache() -> None:
    made = pod(with_steps(annotated(data="model=arpu@latest", produces="model=saved"), STEPS))
    fetch, own, publish = [*made["initContainers"], *made["containers"]]
    assert {one["name"] for one in fetch["env"]} & {one["name"] for one in publish["env"]} == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }
    assert "AWS_" not in str(own)
    assert names(own["volumeMounts"]) == ["carico-data"]
    assert "carico-cache" in names(fetch["volumeMounts"])
    for step in (fetch, publish):
        assert step["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_job_that_has_its_steps_keeps_them_and_gets_the_url() -> None:
    at_home = with_steps(annotated(data="model=arpu@latest"), STEPS)
    moved = prepared(at_home, STEPS, (Data("arpu", "s3://models/team/default/arpu/1.model", version="1"),))
    fetch, own = [*pod(moved)["initContainers"], *pod(moved)["containers"]]
    assert names([fetch, own]) == [FETCH, "c"]
    assert (
        env(own)["CARICO_DATA_ARPU_URL"]
        == env(fetch)["CARICO_DATA_ARPU_URL"]
        == "s3://models/team/default/arpu/1.model"
    )
    assert "CARICO_DATA_ARPU_URL" not in str(at_home)


def test_the_url_of_plain_data_is_in_the_environment() -> None:
    made = prepared(annotated(data="base=s3://b/x,east"), None, (Data("base", "s3://b/x", "east"),))
    assert env(pod(made)["containers"][0]) == {"CARICO_DATA_BASE_URL": "s3://b/x"}


BAD: list[tuple[dict[str, str], Any, str]] = [
    ({"data": "model=../x@latest"}, None, "no name of a model"),
    ({"produces": "arpu"}, None, "is not model=NAME"),
    ({"data": "model=a-b@latest; model=a.b@latest"}, None, "two models have one variable"),
    ({"produces": "model=arpu"}, lambda body: body["spec"].update(completions=2), "one completion"),
    ({"produces": "model=arpu"}, lambda body: pod(body)["containers"].append({"name": "d"}), "one container"),
    (
        {"produces": "model=arpu"},
        lambda body: pod(body)["containers"][0].update(livenessProbe={}),
        "c has livenessProbe",
    ),
]


@pytest.mark.parametrize("annotations,change,why", BAD, ids=[why for *_, why in BAD])
def test_what_cannot_be_is_said(annotations: dict[str, str], change: Any, why: str) -> None:
    body = annotated(**annotations)
    if change is not None:
        change(body)
    with pytest.raises(ValueError, match=why):
        with_steps(body, STEPS)


def test_the_secret_and_the_cache_are_checked_like_everything_else() -> None:
    route = Route("h", "cloud", cluster="c", seal=SEAL, steps=STEPS, data=(Data("arpu", "s3://x", version="1"),))
    body = annotated(data="model=arpu@latest")
    assert Needed("secret", "registry-key") in needed(route.prepared(body), "default")
    assert "hostPath /var/cache/models" in cannot_leave(route.prepared(body))
    assert cannot_leave(route.prepared(body), ("/var/cache/models",)) == ""


@pytest.mark.parametrize("steps,data,why", [(None, True, "names no registry"), (STEPS, False, "is not known")])
async def test_a_model_that_cannot_be_had_keeps_the_job_at_home(steps: Any, data: bool, why: str) -> None:
    body = annotated(data="model=arpu@latest")
    body["metadata"] |= {"uid": "u"}
    known = (Data("arpu", "s3://x", version="1"),) if data else ()
    assert why in Route("h", "cloud", cluster="c", seal=SEAL, steps=steps, data=known).obstacle(home_job(body, SEAL))


async def test_a_moved_job_reads_the_model_that_was_newest_when_it_moved(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "m").write_text("weights")
    registry = open_registry(f"file://{tmp_path}/store", "default")
    stage = Stage()
    steps = DataSteps(f"file://{tmp_path}/store", image="carico:1")
    stage.target.route = replace(stage.target.route, steps=steps, host_paths=(str(tmp_path),))
    stage.mover.models = Models((), lambda namespace: open_registry(f"file://{tmp_path}/store", namespace))
    key = stage.submit(annotated(data="model=arpu@latest"))
    stage.mover.wish(key, Intent.MOVE, "cloud")

    async def seen() -> None:  # the registry is asked in a thread
        for _ in range(20):
            await stage.go(2, work=False)
            await asyncio.sleep(0.02)

    await seen()
    assert "no model arpu is published" in stage.mover.reasons[key]
    assert "burst-ledger" not in str(stage.world.home.jobs["default/a"]["metadata"])
    record = registry.publish("arpu", tmp_path / "m", "train", tmp_path)
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await seen()
    copy = stage.world.cloud.jobs["default/a"]
    assert env(pod(copy)["containers"][0])["CARICO_DATA_ARPU_URL"] == record.url
    assert names(pod(copy)["initContainers"]) == [FETCH]


# ---- after


def test_inject_prints_what_kubectl_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text('[burst.registry]\nurl = "s3://models"\n')
    body = {"apiVersion": "batch/v1", "kind": "Job", **annotated(produces="model=saved", after="arpu")}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([body, {"kind": "ConfigMap"}]))
    assert main(["burst", "inject", str(tmp_path / "job.yaml"), "--config", str(tmp_path / "c.toml")]) == 0
    job, other = yaml.safe_load_all(capsys.readouterr().out)
    assert other == {"kind": "ConfigMap"}
    assert job["spec"]["suspend"] is True
    assert names(pod(job)["containers"]) == [PUBLISH]


def ordered(after: str, suspend: bool = True, **labels: str) -> Object:
    body = annotated("b", after=after)
    body["metadata"] |= {"uid": "b"}
    body["metadata"]["labels"] |= labels
    body["spec"]["suspend"] = suspend
    return body


@pytest.mark.parametrize(
    "status,why",
    [
        ({}, "it waits for Job a"),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "it waits for Job a, which failed"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, ""),
    ],
)
def test_a_job_waits_for_another(status: Object, why: str) -> None:
    first = fit("a")
    first["metadata"] |= {"uid": "a"}
    first["status"] = status
    jobs = {("default", "a"): home_job(first, SEAL)}
    assert why_waits(home_job(ordered("a"), SEAL), jobs) == why
    assert "does not exist" in why_waits(home_job(ordered("c"), SEAL), jobs)


async def test_it_is_started_once_and_never_against_another_client() -> None:
    stage = Served()
    stage.world.home.suspends = True
    first, second = fit("a"), created(annotated("b", after="a"))
    for body in (first, second):
        stage.submit(body)
    show(stage)
    await stage.service.round(acts=True)
    assert stage.mover.reasons["default", "b"] == "it waits for Job a"
    assert stage.world.home.jobs["default/b"]["spec"]["suspend"] is True
    stage.world.home.jobs["default/a"]["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    show(stage)
    await stage.service.round(acts=True)
    started = stage.world.home.jobs["default/b"]
    assert (started["spec"]["suspend"], started["metadata"]["annotations"][STARTED]) == (False, "started")
    started["spec"]["suspend"] = True  # an administrator's
    show(stage)
    await stage.service.round(acts=True)
    assert stage.world.home.jobs["default/b"]["spec"]["suspend"] is True


async def test_a_job_of_kueue_is_not_started() -> None:
    stage = Served()
    stage.world.home.suspends = True
    body = created(annotated("b", after="a"))
    body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    for one in (fit("a"), body):
        stage.submit(one)
    stage.world.home.jobs["default/a"]["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    show(stage)
    await stage.service.round(acts=True)
    assert stage.world.home.jobs["default/b"]["spec"]["suspend"] is True


def show(stage: Served) -> None:
    for found in stage.world.home.jobs.values():
        stage.mover.jobs["default", found["metadata"]["name"]] = home_job(found, SEAL)


def test_a_job_without_the_annotation_is_created_as_it_is() -> None:
    body = fit("a")
    assert created(body) is body
    assert AFTER not in str(body)
