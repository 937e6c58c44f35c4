"""The outlook in the agent: a real process as Pod, a week of memory across a restart, what is said about the hours."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico_agent.core import CapacityModel, ModelConfig, Outlook, PodSample
from carico_agent.node import outlook as outlook_state
from carico_agent.node.publish.status import from_json
from carico_agent.node.publish.words import ahead_sentence
from carico_agent.node.state import sealed
from tests.conftest import AgentProcess

RESOURCES = ("cpu", "memory")


def model() -> CapacityModel:
    return CapacityModel(RESOURCES, ModelConfig(cores=2))


def week(now_s: float, name: str) -> Outlook:
    """A week of one Pod that needs a quarter of the node every noon (UTC) and nearly nothing else."""
    outlook = Outlook(RESOURCES)
    for slot in range(2016, 0, -1):
        t = now_s - 300.0 * slot
        outlook.observe(t, [PodSample("old", name, (0.25 if t % 86400 // 3600 == 12 else 0.001, 0.01))])
    return outlook


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A Pod: a process that is counted as one, and hardly works."""
    code = "import time  # carico-outlook-test\nwhile True: time.sleep(0.05)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        yield process
        process.kill()


def write_config(tmp_path: Path) -> Path:
    config = tmp_path / "config.toml"
    processes = '[processes]\ncommands = ["*carico-outlook-test*"]\n[containerd]\nenabled = false\n'
    config.write_text(f'[node]\nstate = "{tmp_path}/state"\n{processes}')
    return config


@pytest.mark.long
@pytest.mark.usefixtures("sleeper")
def test_the_agent_learns_keeps_and_says_what_holds(start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    config = write_config(tmp_path)
    process = start_agent("--config", str(config))
    agent = process.wait(lambda one: one.status()["outlook"] == "first day")
    status = agent.status()
    assert status["horizon_s"] == 86400.0
    assert 0 <= status["pod_capacity_held"] <= status["pod_capacity"]
    assert "(estimated: less than one day observed)" in ahead_sentence(from_json(status))
    (name,) = [workload["workload"] for workload in status["workloads"]]
    assert process.stop() == 0
    kept = json.loads(json.loads((tmp_path / "state/outlook.json").read_bytes())["model"])
    assert kept["history"]["names"] == [name]
    (tmp_path / "state/outlook.json").write_bytes(sealed(week(time.time(), name).state()))
    again = start_agent("--config", str(config))
    agent = again.wait(lambda one: one.status()["outlook"] == "known" and one.status()["pods"] == 1)
    status = agent.status()
    assert status["peak_time"] is not None
    body = agent.request("GET", "/v1/outlook")
    assert len(body["next"]["time_s"]) == len(body["past"]["time_s"]) == 48
    assert max(x for x in body["next"]["cpu"]["high"] if x is not None) >= 0.24
    of_workload = agent.request("GET", f"/v1/workloads/{name}?horizon=86400")
    assert (of_workload["horizon_s"], of_workload["outlook"]) == (86400.0, "known")
    assert of_workload["fits_held"] < 5  # a quarter of the node each, at noon
    assert of_workload["fits"] > of_workload["fits_held"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", sealed({"version": 0}), sealed({"version": 1})])
def test_a_damaged_or_older_file_is_set_aside_with_a_reason(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outlook.json").write_bytes(content)
    begun = model()
    outlook_state.load(tmp_path / "outlook.json", begun)
    assert begun.outlook.mode == "unknown"
    assert (tmp_path / "outlook.damaged").read_bytes() == content
    assert len(caplog.records) == 1


def test_what_was_saved_is_loaded_and_other_resources_begin_anew(tmp_path: Path) -> None:
    learned = model()
    learned.outlook.observe(1e9, [PodSample("a", "shop/web", (0.1, 0.2))])
    (tmp_path / "outlook.json").write_bytes(outlook_state.encode(learned))
    again, other = model(), CapacityModel(("cpu",), ModelConfig(cores=2))
    for one in (again, other):
        outlook_state.load(tmp_path / "outlook.json", one)
    assert again.outlook.state() == learned.outlook.state()
    assert other.outlook.mode == "unknown"
