"""What was learned survives a restart; what is damaged is set aside."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.node import state
from carico_agent.node.pipeline import model_config
from carico_agent.settings import Settings
from lab.sim.synthetic import SCENARIOS, samples
from tests.conftest import AgentProcess
from tests.faults.test_node_faults import node_root, pod_path

CONFIG = ModelConfig(cores=4)
RESOURCES = ("cpu", "memory")


def taught(config: ModelConfig = CONFIG) -> CapacityModel:
    model = CapacityModel(RESOURCES, config)
    for sample in samples(SCENARIOS[0], 1, 60):
        model.observe(sample.t, sample.usage, sample.pods)
    return model


def test_a_restarted_model_is_measured_within_two_seconds(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(state.encode(taught()))
    model = state.load(tmp_path / "m", RESOURCES, CONFIG)
    assert model is not None
    for tick in range(20):
        model.observe(5 + tick / 10, [0.01 + 0.125 * 3, 0.206], 3)
    e = model.estimate()
    assert e.mode == "measured"
    assert e.pod_capacity == pytest.approx(SCENARIOS[0].truth(3), abs=0.5)


def test_other_settings_begin_anew_and_keep_the_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(state.encode(taught()))
    assert state.load(tmp_path / "m", RESOURCES, ModelConfig(cores=8)) is None
    assert state.load(tmp_path / "m", ("cpu",), CONFIG) is None
    assert (tmp_path / "m").exists()


def test_other_limits_keep_what_was_learned(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(state.encode(taught()))
    other = ModelConfig(cores=4, limits={"cpu": 0.75}, service_limits={"cpu": 0.5})
    model = state.load(tmp_path / "m", RESOURCES, other)
    assert model is not None and model.config == other
    assert model.local_cost == taught().local_cost


@pytest.mark.parametrize("other", [{"forget": 0.03}, {"settle_s": 3.0}, {"halt_max_s": 9.0}])
def test_a_version_with_another_pace_keeps_what_was_learned(tmp_path: Path, other: dict[str, float]) -> None:
    """An upgrade over a changed default of `forget` began anew."""
    (tmp_path / "m").write_bytes(state.encode(taught(ModelConfig(cores=4, forget=0.1))))
    config = ModelConfig(cores=4, **{"forget": 0.1, **other})  # type: ignore[arg-type]
    model = state.load(tmp_path / "m", RESOURCES, config)
    assert model is not None and model.config == config
    assert model.local_cost == taught().local_cost
    for tick in range(20):
        model.observe(5 + tick / 10, [0.01 + 0.125 * 3, 0.206], 3)
    assert model.estimate().pod_capacity == pytest.approx(SCENARIOS[0].truth(3), abs=0.5)


def test_a_state_of_before_services_were_known_is_read(tmp_path: Path) -> None:
    outer = json.loads(state.encode(taught()))
    saved = json.loads(outer["model"])
    del saved["config"]["service_limits"]
    del saved["pods"]["serves"]
    outer["model"] = json.dumps(saved)
    outer["sha256"] = state._digest(outer["model"])
    (tmp_path / "m").write_text(json.dumps(outer))
    assert state.load(tmp_path / "m", RESOURCES, ModelConfig(cores=4, service_limits={"cpu": 0.5})) is not None


def test_missing_is_no_news(tmp_path: Path) -> None:
    assert state.load(tmp_path / "none", RESOURCES, CONFIG) is None


GOOD = state.encode(taught())


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3))
def test_any_damage_is_noticed(at: int, garbage: bytes) -> None:
    broken = GOOD[:at] + garbage + GOOD[at + 1 :]
    try:
        model = state.decode(broken)
    except ValueError:
        return
    assert json.loads(broken)["model"] == json.loads(GOOD)["model"]  # only white space or the like was touched
    assert model.resources == RESOURCES


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", GOOD[:500], b'{"carico_state": 7}'])
def test_damage_is_set_aside(content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "model.json").write_bytes(content)
    assert state.load(tmp_path / "model.json", RESOURCES, CONFIG) is None
    assert (tmp_path / "model.damaged").read_bytes() == content
    assert len(caplog.records) == 1


@pytest.mark.long
def test_the_agent_saves_on_stop_and_resumes(start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[node]\nstate = "{tmp_path}/state"\n[model]\nmethod = "carico"\n')
    process = start_agent("--config", str(config))
    process.wait(lambda agent: agent.status()["sequence"] >= 2)
    assert process.stop() == 0
    saved = state.decode((tmp_path / "state/model.json").read_bytes())
    assert saved.subspace.magnitude > 0
    again = start_agent("--config", str(config))
    again.wait()
    assert "beginning anew" not in again.log.read_text()
    assert "damaged" not in again.log.read_text()


@pytest.mark.alone
def test_a_restarted_agent_is_measured_at_once(start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    """Pods that run already are no churn: the first number counts them, and is a measured one."""
    fake = node_root(tmp_path)
    for number in range(3):
        fake.group(pod_path(number))
    config = tmp_path / "config.toml"
    config.write_text(f'[node]\nroot = "{fake.root}"\nstate = "{tmp_path}/state"\n[containerd]\nenabled = false\n')
    cores = os.cpu_count() or 1
    (tmp_path / "state").mkdir()
    (tmp_path / "state/model.json").write_bytes(state.encode(taught(model_config(Settings(), cores))))
    process = start_agent("--config", str(config))
    deadline_s = time.monotonic() + 60
    while not Path(process.socket).exists():
        assert time.monotonic() < deadline_s, process.log.read_text()
        time.sleep(0.01)
    started_s = time.monotonic()
    status = process.wait().status()
    took_s = time.monotonic() - started_s
    assert (status["mode"], status["pods"]) == ("measured", 3), status
    assert status["sequence"] == 1 or took_s <= 2, (took_s, status["sequence"])


def test_a_state_folder_that_cannot_be_written_stops_nothing(
    start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("not a folder")
    config = tmp_path / "config.toml"
    config.write_text(f'[node]\nstate = "{tmp_path}/state"\n')
    process = start_agent("--config", str(config))
    process.wait()
    assert process.stop() == 0
    assert process.log.read_text().count("cannot be saved") == 1


def test_another_limit_of_pods_keeps_what_was_learned(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(state.encode(taught(ModelConfig(cores=4, max_pods=110))))
    model = state.load(tmp_path / "m", RESOURCES, ModelConfig(cores=4, max_pods=5))
    assert model is not None
    for tick in range(30):
        model.observe(5 + tick / 10, [0.01 + 0.125 * 3, 0.206], 3)
    e = model.estimate()
    assert (e.mode, e.pod_capacity, e.limiting) == ("measured", 2.0, "pods")
    model.limit_pods(None)
    assert model.estimate().pod_capacity == pytest.approx(SCENARIOS[0].truth(3), abs=0.5)
