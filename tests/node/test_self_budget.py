"""A real agent above its budget, or on a node under pressure: it samples slower, says so, and comes back.

Its looks at its own cost come every second here, not every five: what they see and do is the same.
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carico_agent.client import AgentClient
from tests.conftest import AgentProcess
from tests.node.pods.trees import FakeRoot

Start = Callable[..., AgentProcess]
LOOKING = (
    "from carico_agent.lib.supervise import budget; budget.LOOK_S = 1.0; from carico_agent.cli import main; main()"
)

pytestmark = pytest.mark.alone  # a tick that a busy machine misses is a reason to sample slower


@pytest.fixture
def looking(start_agent: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(AgentProcess, "PROGRAM", ("-c", LOOKING))
    return start_agent


@contextmanager
def idle_node(folder: Path) -> Iterator[Path]:
    """A root whose CPUs idle whatever this machine does, and whose memory is what `remember` says."""
    fake, ended = FakeRoot(folder / "root", "v2"), threading.Event()
    remember(fake.root, available_kb=900)

    def idle() -> None:
        file = os.open(fake.root / "proc/stat", os.O_WRONLY)
        while not ended.wait(0.02):
            ticks = int(100 * time.monotonic())
            os.pwrite(file, b"cpu  1 0 1 %020d 0 0 0 0 0 0\nbtime 1700000000\nprocs_running 1\n" % ticks, 0)
        os.close(file)

    clock = threading.Thread(target=idle)
    clock.start()
    try:
        yield fake.root
    finally:
        ended.set()
        clock.join()


def remember(root: Path, available_kb: int) -> None:
    """In place: the agent keeps the file open."""
    text = (
        f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {available_kb:4d} kB\nBuffers: 0 kB\nCached: 0 kB\n"
        "Shmem: 0 kB\n"
    )
    with open(root / "proc/meminfo", "r+" if (root / "proc/meminfo").exists() else "w") as file:
        file.write(text)


def configure(folder: Path, root: Path, cpu_ratio: float) -> list[str]:
    (folder / "c.toml").write_text(
        f'[node]\nroot = "{root}"\n[containerd]\nenabled = false\n[budget]\ncpu_ratio = {cpu_ratio}\ncalm_s = 1\n'
    )
    return ["--config", str(folder / "c.toml")]


def periods(process: AgentProcess, *last_s: float) -> list[float]:
    """The sampling periods since the start, as they were logged, once the status shows one of `last_s`."""
    process.wait(lambda agent: agent.status()["sampling"]["period_s"] in last_s, timeout_s=180)
    logged = re.findall(r"sampling every (\S+) s now", process.log.read_text())
    return [0.1, *map(float, logged)]


def test_above_its_budget_and_back(looking: Start, tmp_path: Path) -> None:
    """0.1 % of a core is less than any agent takes; then SIGHUP allows it more."""
    with idle_node(tmp_path) as root:
        process = looking(*configure(tmp_path, root, cpu_ratio=0.001))
        assert periods(process, 1.0) == [0.1, 0.2, 0.5, 1.0]
        agent = process.client()
        slowed = agent.status()["sampling"]["slowed"]
        assert "of a core, 0.1% are allowed" in slowed
        assert agent.request("GET", "/v1/self")["sampling"] == {"period_s": 1.0, "slowed": slowed}
        assert "sampling every 1 s now: the agent takes" in process.log.read_text()
        curl = ["curl", "-sS", "--unix-socket", process.socket, "http://localhost/metrics"]
        text = subprocess.run(curl, capture_output=True, check=True, text=True).stdout
        assert "carico_sampling_period_seconds 1" in text
        assert seconds_of(process, 4) > 2.5, "really once a second"

        configure(tmp_path, root, cpu_ratio=1.0)
        process.process.send_signal(signal.SIGHUP)
        assert periods(process, 0.1) == [0.1, 0.2, 0.5, 1.0, 0.5, 0.2, 0.1]
        assert agent.request("GET", "/v1/self")["sampling"] == {"period_s": 0.1, "slowed": None}
        assert "sampling every 0.1 s now: all is well again" in process.log.read_text()


def seconds_of(process: AgentProcess, ticks: int) -> float:
    """How long the agent takes for so many ticks."""

    def done(agent: AgentClient) -> int:
        return int(agent.request("GET", "/v1/self")["ticks"])

    before, began_s = done(process.client()), time.monotonic()
    process.wait(lambda agent: done(agent) >= before + ticks)
    return time.monotonic() - began_s


def test_a_node_under_pressure_and_out_of_it(looking: Start, tmp_path: Path) -> None:
    with idle_node(tmp_path) as root:
        process = looking(*configure(tmp_path, root, cpu_ratio=1.0))
        process.wait()
        remember(root, available_kb=5)
        assert periods(process, 0.2, 0.5, 1.0)[:2] == [0.1, 0.2]
        assert "the node is under pressure" in process.client().status()["sampling"]["slowed"]
        remember(root, available_kb=900)
        assert periods(process, 0.1)[-1] == 0.1
        assert process.client().status()["sampling"]["slowed"] is None
