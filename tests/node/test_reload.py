"""SIGHUP on a real agent: what can be taken over is, what cannot is named, a broken file changes nothing."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from carico_agent.client import AgentError
from carico_agent.node.reload import LIVE, take_over
from carico_agent.settings import Settings, parse
from tests.conftest import AgentProcess

Start = Callable[..., AgentProcess]


def result(process: AgentProcess, text: str) -> str:
    """Wait until the agent's log says so."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        if found := [line for line in process.log.read_text().splitlines() if text in line]:
            return found[-1]
        time.sleep(0.05)
    raise AssertionError(f"{text!r} was not logged:\n{process.log.read_text()}")


@pytest.mark.long
def test_sighup(start_agent: Start, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[socket]\nttl_s = 5\n")
    process = start_agent("--config", str(config), "--node", "here")
    agent = process.wait()
    own, others = (
        "[socket]\nttl_s = 7\n[sampling]\nperiod_s = 0.5\n[model]\ncpu_limit = 1.5\n",
        "[aggregator]\nrank=1\n",
    )
    config.write_text(f"{own}{others}[burst]\nperiod_s = 9.0\n")
    process.process.send_signal(signal.SIGHUP)
    line = result(process, "configuration read again")
    assert "socket.ttl_s: 5.0 → 7.0" in line
    assert "sampling.period_s: 0.1 → 0.5" in line
    assert line.endswith("waiting for a restart: model.cpu_limit")
    process.wait(lambda a: a.status()["ttl_s"] == 7 and a.status()["sampling"]["period_s"] == 0.5)
    assert agent.status()["node"] == "here"  # flags still override the file

    config.write_text("[socket]\nttl_s = -1\n[sampling]\nperod_s = 1\n")
    process.process.send_signal(signal.SIGHUP)
    line = result(process, "the old one stays")
    assert "socket.ttl_s: -1 is not between" in line
    assert "did you mean period_s?" in line
    with pytest.raises(AgentError, match="did you mean period_s") as refused:
        agent.request("POST", "/v1/reload")
    assert refused.value.status == 400
    config.unlink()
    process.process.send_signal(signal.SIGHUP)
    result(process, "No such file")
    before = agent.status()["sequence"]
    status = process.wait(lambda a: a.status()["sequence"] > before + 1).status()
    assert status["ttl_s"] == 7


def test_sighup_without_a_file_ends_nothing(start_agent: Start) -> None:
    process = start_agent()
    process.wait()
    process.process.send_signal(signal.SIGHUP)
    before = process.client().status()["sequence"]
    process.wait(lambda agent: agent.status()["sequence"] > before)


def test_what_is_called_live_exists() -> None:
    for section, names in LIVE.items():
        assert all(hasattr(getattr(Settings(), section), name) for name in names)


def test_nothing_else_changes() -> None:
    old = Settings()
    new = parse({"model": {"max_pods": 7}, "reservations": {"most": 3}, "node": {"name": "other"}})
    effective, taken, waiting = take_over(old, new)
    assert effective.reservations.most == 3
    assert (effective.model.max_pods, effective.node.name) == (110, "")
    assert taken == ["reservations.most: 1000 → 3"]
    assert waiting == ["node.name", "model.max_pods"]
