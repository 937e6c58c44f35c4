"""What several tests share: a real agent process on a private socket."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from carico_agent.client import AgentClient, AgentError, AgentUnavailable

TREE = Path(__file__).parent.parent

settings.register_profile("carico", deadline=None)  # no test depends on the speed of the machine
settings.load_profile("carico")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden; read the diff afterwards")


class AgentProcess:
    """`carico agent` as a user would start it."""

    PROGRAM: tuple[str, ...] = ("-m", "carico_agent")

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.socket = str(folder / "agent.sock")
        self.log = folder / "agent.log"
        command = [sys.executable, *self.PROGRAM, "agent", "--socket", self.socket, *arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=TREE, stdout=log, stderr=log, env={**os.environ, "STATE_DIRECTORY": str(folder / "state")}
            )

    def client(self) -> AgentClient:
        return AgentClient(self.socket)

    def wait(self, ready: Callable[[AgentClient], bool] | None = None, timeout_s: float = 60.0) -> AgentClient:
        """Until the agent has published and `ready` holds; the bound is generous, only a hang reaches it."""
        agent, deadline_s = self.client(), time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, f"the agent ended:\n{self.log.read_text()}"
            try:
                agent.status()
                if ready is None or ready(agent):
                    return agent
            except (AgentUnavailable, AgentError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {timeout_s} s:\n{self.log.read_text()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Start agents; they are gone after the test."""
    started: list[AgentProcess] = []

    def start(*arguments: str) -> AgentProcess:
        started.append(AgentProcess(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def roomy(tmp_path: Path) -> list[str]:
    """An agent whose node looks empty: room for about 20 Pods, whatever this machine is doing."""
    trace = tmp_path / "idle.trace"
    lines = [{"carico_trace": 1, "node": "n", "cores": 10, "resources": ["cpu", "memory"]}]
    lines += [
        {
            "t": i / 10,
            "cores": 10,
            "cpu_total": 1000 + 100 * i,
            "cpu_idle": 100 * i,
            "cpu_pressure_usec": 0,
            "memory_total_kb": 1000,
            "memory_available_kb": 900,
            "pods": 0,
            "churn": False,
        }
        for i in range(300)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = tmp_path / "config.toml"
    config.write_text(f'[node]\nstate = "{tmp_path}/state"\n')
    return ["--replay", str(trace), "--repeat", "--config", str(config)]
