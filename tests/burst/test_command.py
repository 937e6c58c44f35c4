"""`carico burst` as a user meets it: wrong usage, settings and kubeconfigs are reported at once."""

import json
from pathlib import Path

import pytest

from carico_agent.burst.commands.burst import describe
from carico_agent.burst.multikueue import nominate, waits
from carico_agent.burst.overflow import NodeRoom
from carico_agent.burst.report import status
from carico_agent.cli import main
from carico_agent.lib.kube.leader import LeaderLease
from tests.burst.fake_client import FakeClient
from tests.burst.model import Cluster
from tests.burst.test_service import Served

KUBECONFIG = {
    "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}],
    "contexts": [{"name": "c", "context": {"cluster": "k"}}],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    path = tmp_path / "config.toml"
    path.write_text(
        f'[burst]\nkubeconfig = "{tmp_path}/kubeconfig"\nlisten = "127.0.0.1:0"\n'
        f'[burst.targets.cloud]\nkubeconfig = "{tmp_path}/kubeconfig"\n'
    )
    return path


def run(config: Path, *arguments: str) -> int:
    return main(["burst", *arguments, "--config", str(config)])


def test_forget_needs_the_word(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "forget", "default/a") == 2
    assert "--fenced" in capsys.readouterr().err


@pytest.mark.parametrize("arguments,why", [(["recall"], "which JOB?"), (["status", "a"], "takes no JOB")])
def test_wrong_usage(config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str) -> None:
    assert run(config, *arguments) == 2
    assert why in capsys.readouterr().err


def test_a_home_that_does_not_answer(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "status") == 1
    assert "cannot be reached" in capsys.readouterr().err


BAD = [
    ('kubeconfig = "/none"', "/none: No such file", 1),
    ('[burst.targets.cloud]\nkubeconfg = "x"', "burst.targets.cloud.kubeconfg: unknown key, did you mean", 2),
    ("[burst.targets.cloud]\nboot_s = -1", "boot_s: -1 is not between", 2),
    ("[burst.targets.cloud]", "burst.targets.cloud.kubeconfig: is missing", 2),
    ('prices = "/none.toml"', "/none.toml", 1),
    ('listen = "0.0.0.0:9760"', "is not loopback", 1),
    ('engine = "karmada"', "is not one of jobs, multikueue", 2),
]


@pytest.mark.parametrize("verb", [[], ["plan"]], ids=["service", "plan"])
@pytest.mark.parametrize("text,why,code", BAD, ids=[why for _, why, _ in BAD])
def test_bad_settings_are_an_error_at_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str, code: int, verb: list[str]
) -> None:
    config = tmp_path / "config.toml"
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    home = "" if "kubeconfig = " in text else f'kubeconfig = "{tmp_path}/kubeconfig"\n'
    config.write_text(f"[burst]\n{home}{text}\n")
    assert run(config, *verb) == code
    assert why in capsys.readouterr().err


def test_a_broken_kubeconfig_of_a_target_is_an_error_at_start(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("[]")
    config.write_text(config.read_text() + f'[burst.targets.other]\nkubeconfig = "{tmp_path}/broken"\n')
    assert run(config) == 1
    assert "not a kubeconfig" in capsys.readouterr().err


async def test_the_status_is_readable() -> None:
    stage = Served()
    stage.add_node("n")
    stage.wait_at_home("a")
    stage.wait_at_home("b", 1.0)
    await stage.service.round(acts=False)
    text = describe(status(stage.service), True)
    assert "target cloud: fine; 1 nodes, 0.5/h" in text
    assert "default/a: home → cloud" in text
    assert "default/b: home  (unschedulable for 1 s, of 5 s)" in text


async def test_one_leads_and_the_next_one_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    client, now_s = FakeClient(Cluster("home")), 100.0
    monkeypatch.setattr("carico_agent.lib.kube.leader.boottime_s", lambda: now_s)
    one = LeaderLease(client, "carico", "carico-burst", "one", 15.0)  # type: ignore[arg-type]
    other = LeaderLease(client, "carico", "carico-burst", "other", 15.0)  # type: ignore[arg-type]
    await one.hold(now_s)
    await other.hold(now_s)
    assert not other.leads
    assert other.holder == "one"
    now_s += 15.5  # not renewed since the other one saw it
    assert not one.leads
    await other.hold(now_s)
    assert other.leads
    assert other.holder == "other"
    again = LeaderLease(client, "carico", "carico-burst", "one", 15.0)  # type: ignore[arg-type]
    await again.hold(now_s)
    assert not again.leads


WORKLOAD = {
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {
        "podSets": [
            {"count": 2, "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}},
        ]
    },
    "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
}


def test_a_workload_waits_with_quota_and_without_cluster() -> None:
    assert waits(WORKLOAD)
    assert not waits({**WORKLOAD, "status": {}})
    assert not waits({**WORKLOAD, "status": {**WORKLOAD["status"], "clusterName": "cloud"}})  # type: ignore[dict-item]


def test_clusters_with_room_for_the_whole_workload_are_nominated() -> None:
    stage = Served()
    rooms = {"cloud": [NodeRoom("a", cpu=3.0), NodeRoom("b", cpu=2.0)]}
    assert nominate(WORKLOAD, stage.service, rooms, 0.0) == ["cloud"]
    assert nominate(WORKLOAD, stage.service, rooms, 0.0) == []  # that room is taken
