"""Figures 4.6 and 4.7 of *CARICO* with real processes: an aggregator, and agents that replay telemetry."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico_agent.client import AgentClient, AgentError, AgentUnavailable, StatusBody

TREE = Path(__file__).resolve().parents[2]
CORES = 4
QUIET_S, HEAVY_S = 300, 3000  # of the trace; at 20× the quiet part is 15 s, time enough to look at it
SPEED = "20"


def trace(path: Path, phases: list[tuple[int, float, float]]) -> Path:
    """Telemetry of a 4-core node: (seconds, cpu usage, memory usage) one after the other, at 2 Hz."""
    rows = [{"carico_trace": 1, "node": "n", "cores": CORES, "resources": ["cpu", "memory"]}]
    t, total, idle, pressure = 0.0, 1000, 1000, 0
    for seconds, cpu, memory in phases:
        busy = min(1.0, 2 * cpu)  # usage is (utilisation + pressure)/2: the cores fill first
        for _ in range(2 * seconds):
            t, total, idle = t + 0.5, total + 200, idle + round(200 * (1 - busy))
            pressure += round(5e5 * max(0.0, 2 * cpu - 1))
            rows.append(
                {
                    "t": t,
                    "cores": CORES,
                    "cpu_total": total,
                    "cpu_idle": idle,
                    "cpu_pressure_usec": pressure,
                    "memory_total_kb": 1000,
                    "memory_available_kb": round(1000 * (1 - memory)),
                    "pods": 0,
                    "churn": False,
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Cluster:
    """An aggregator and agents, each a process of its own, over unix sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder}/a"
        self._processes: list[subprocess.Popen[bytes]] = []

    def carico(self, *arguments: str) -> None:
        with (self.folder / "log").open("ab") as log:
            environment = {**os.environ, "STATE_DIRECTORY": str(self.folder / "state")}
            command = [sys.executable, "-m", "carico_agent", *arguments]
            self._processes.append(subprocess.Popen(command, cwd=TREE, stdout=log, stderr=log, env=environment))

    def agent(self, name: str, *phases: tuple[int, float, float]) -> AgentClient:
        path = trace(self.folder / f"{name}.trace", list(phases))
        (self.folder / "config").write_text('[model]\nmethod = "carico"\n')
        self.carico(
            "agent",
            "--config",
            f"{self.folder}/config",
            "--quiet",
            "--node",
            name,
            "--socket",
            f"{self.folder}/{name}",
            "--replay",
            str(path),
            "--speed",
            SPEED,
            "--aggregator",
            self.address,
        )
        return AgentClient(f"{self.folder}/{name}")

    def wait(self, agent: AgentClient, ready: Callable[[StatusBody], bool]) -> StatusBody:
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            try:
                if ready(status := agent.status()):
                    return status
            except (AgentUnavailable, AgentError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"did not happen:\n{(self.folder / 'log').read_text()[-3000:]}")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.carico("aggregator", "--listen", made.address)
    yield made
    made.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    "own,quiet,heavy,rises",
    [
        ((0.25, 0.10), (0.20, 0.10), (0.95, 0.15), False),  # figure 4.6: lightly loaded, its peers turn CPU-heavy
        ((0.05, 0.60), (0.05, 0.30), (0.95, 0.15), True),  # figure 4.7: memory-heavy, its peers turn CPU-heavy
    ],
)
def test_capacity_follows_what_the_peers_run(
    cluster: Cluster, own: tuple[float, float], quiet: tuple[float, float], heavy: tuple[float, float], rises: bool
) -> None:
    peers = [cluster.agent(f"peer{i}", (QUIET_S, *quiet), (HEAVY_S, *heavy)) for i in range(2)]
    measured = cluster.agent("measured", (QUIET_S + HEAVY_S, *own))
    cluster.wait(measured, lambda s: s["federation"]["peers"] == 2)
    before = cluster.wait(measured, lambda s: peers[0].status()["usage"]["cpu"] == pytest.approx(quiet[0], abs=0.02))
    assert "connected" in before["federation"]["condition"]
    assert all(peer.status()["usage"]["cpu"] < 0.5 for peer in peers)

    def turned(status: StatusBody) -> bool:
        ratio = status["capacity"] / before["capacity"]
        return bool(ratio > 1.15) if rises else bool(ratio < 0.75)

    def peers_are_heavy() -> bool:  # they started one after the other, so one turns before the other
        return all(peer.status()["usage"]["cpu"] > 0.9 for peer in peers)

    after = cluster.wait(measured, lambda s: turned(s) and peers_are_heavy())
    assert after["usage"]["cpu"] == pytest.approx(own[0], abs=0.02)  # nothing happened on the node itself
