"""A real agent above its budget, or on a node under pressure: it samples slower, says so, and comes back."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico_agent.client import AgentClient
from tests.conftest import AgentProcess
from tests.runtime.trees import FakeRoot

Start = Callable[..., AgentProcess]


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


def periods(process: AgentProcess, last_s: float) -> list[float]:
    """The sampling periods that the status shows, one after the other, until `last_s`."""
    seen: list[float] = []

    def look(agent: AgentClient) -> bool:
        period_s = agent.status()["sampling"]["period_s"]
        if period_s not in seen[-1:]:
            seen.append(period_s)
        return bool(period_s == last_s)

    process.wait(look, timeout_s=180)
    return seen


def test_above_its_budget_and_back(start_agent: Start, tmp_path: Path) -> None:
    """0.1 % of a core is less than any agent takes; then SIGHUP allows it more."""
    with idle_node(tmp_path) as root:
        process = start_agent(*configure(tmp_path, root, cpu_ratio=0.001))
        assert periods(process, 1.0) == [0.1, 0.2, 0.5, 1.0]
        agent = process.client()
        slowed = agent.status()["sampling"]["slowed"]
        assert "of a core, 0.1% are allowed" in slowed
        assert agent.request("GET", "/v1/self")["sampling"] == {"period_s": 1.0, "slowed": slowed}
        assert "sampling every 1 s now: the agent takes" in process.log.read_text()
        curl = ["curl", "-sS", "--unix-socket", process.socket, "http://localhost/metrics"]
        text = subprocess.run(curl, capture_output=True, check=True, text=True).stdout
        assert "carico_sampling_period_seconds 1" in text
        ticks = agent.request("GET", "/v1/self")["ticks"]
        time.sleep(5)
        assert 3 <= agent.request("GET", "/v1/self")["ticks"] - ticks <= 7  # really once a second

        configure(tmp_path, root, cpu_ratio=0.5)
        process.process.send_signal(signal.SIGHUP)
        assert periods(process, 0.1) == [1.0, 0.5, 0.2, 0.1]
        assert agent.request("GET", "/v1/self")["sampling"] == {"period_s": 0.1, "slowed": None}
        assert "sampling every 0.1 s now: all is well again" in process.log.read_text()


def test_a_node_under_pressure_and_out_of_it(start_agent: Start, tmp_path: Path) -> None:
    with idle_node(tmp_path) as root:
        process = start_agent(*configure(tmp_path, root, cpu_ratio=0.5))
        process.wait()
        remember(root, available_kb=5)
        assert periods(process, 0.2) == [0.1, 0.2]
        assert "the node is under pressure" in process.client().status()["sampling"]["slowed"]
        remember(root, available_kb=900)
        assert periods(process, 0.1)[-1] == 0.1
        assert process.client().status()["sampling"]["slowed"] is None
