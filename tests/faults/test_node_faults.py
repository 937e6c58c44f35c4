"""Faults of the node under a real agent: it goes on, says what is wrong, and recovers by itself."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from lab.support.containerd import PrivateContainerd, missing
from tests.conftest import AgentProcess
from tests.node.pods.trees import FakeRoot

Start = Callable[..., AgentProcess]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def goes_on(process: AgentProcess, updates: int = 2) -> dict[str, object]:
    """Numbers still come, and they are fresh."""
    before = process.client().status()["sequence"]
    status = process.wait(lambda agent: agent.status()["sequence"] >= before + updates).status()
    assert status["age_s"] <= status["ttl_s"]
    return status


def configured(folder: Path, text: str) -> tuple[str, str]:
    (folder / "config.toml").write_text(text)
    return "--config", str(folder / "config.toml")


# ---- containerd


@pytest.mark.long
def test_containerd_hung(start_agent: Start, tmp_path: Path) -> None:
    """SIGSTOP: the socket accepts, nobody answers. The last count stays; what happened meanwhile is caught up."""
    if reason := missing():
        pytest.skip(reason)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        containerd.run("a")
        process = start_agent("--containerd", containerd.socket)
        process.wait(lambda agent: agent.status()["pods"] == 1)
        assert containerd._process is not None
        containerd._process.send_signal(signal.SIGSTOP)
        try:
            assert goes_on(process, 3)["pods"] == 1
            late = start_in(tmp_path / "late", "--containerd", containerd.socket)  # one that begins while it hangs
            late.wait()
            goes_on(late)
        finally:
            containerd._process.send_signal(signal.SIGCONT)
        containerd.run("b")
        process.wait(lambda agent: agent.status()["pods"] == 2)
        late.wait(lambda agent: agent.status()["pods"] == 2)
        assert late.stop() == 0


def start_in(folder: Path, *arguments: str) -> AgentProcess:
    folder.mkdir()
    return AgentProcess(folder, *arguments)


# ---- disks


@contextmanager
def tmpfs(folder: Path, size: str = "64k") -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "carico-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
@needs_root
def test_full_disk(start_agent: Start, tmp_path: Path, roomy: list[str]) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        Path(roomy[-1]).write_text(f'[node]\nstate = "{disk}"\n')
        process = start_agent(*roomy)
        agent = process.wait(lambda a: a.status()["available"] >= 5)
        wish = {"pods": 1, "ttl_s": 300}
        assert agent.request("POST", "/v1/reservations", wish)["durable"] is True
        with suppress(OSError), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"x" * 512)
                filler.flush()
        answers = [agent.request("POST", "/v1/reservations", wish) for _ in range(3)]
        assert answers[-1]["durable"] is False  # reported, and still held in memory
        assert len(agent.request("GET", "/v1/reservations")["reservations"]) == 4
        goes_on(process)
        assert [path.name for path in disk.iterdir() if path.name.startswith(".")] == []
        assert process.log.read_text().count("are kept in memory only") == 1
        (disk / "filler").unlink()
        assert agent.request("POST", "/v1/reservations", wish)["durable"] is True
        assert "are kept on disk again" in process.log.read_text()


@pytest.mark.long
@needs_root
def test_read_only_state_folder(start_agent: Start, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        process = start_agent(*configured(tmp_path, f'[node]\nstate = "{disk}"\n'))
        process.wait()
        goes_on(process)
        assert process.stop() == 0
        assert process.log.read_text().count("cannot be saved") == 1


# ---- time


def faketime() -> Path | None:
    """Debian's libfaketime, installed or unpacked by `make tools`."""
    command = shutil.which("faketime")
    places = [Path(command).parent.parent] if command else []
    places.append(Path(os.environ.get("CARICO_CACHE", Path.home() / ".cache/carico")) / "tools/usr")
    return next((path for place in places for path in place.glob("lib/*/faketime/libfaketime.so.1")), None)


@pytest.mark.long
def test_clock_set_back_and_forward(
    start_agent: Start, tmp_path: Path, roomy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours forward, hours back: numbers stay fresh, and a promise lasts as long as it was made for."""
    library = faketime()
    if library is None:
        pytest.skip("libfaketime is not here: `make tools` unpacks Debian's package")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    for name, value in {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }.items():
        monkeypatch.setenv(name, value)
    process = start_agent(*roomy)
    for name in ("LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE"):
        monkeypatch.delenv(name)
    agent = process.wait(lambda a: a.status()["available"] >= 5)
    held = agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 500})
    hour = agent.status()["time"][:13]
    for offset in ("+3600\n", "-3600\n", "+30000\n", "-30000\n", "+0\n"):
        clock.write_text(offset)
        status = goes_on(process)
        left_s = agent.request("GET", f"/v1/reservations/{held['id']}")["expires_in_s"]
        assert 0 < left_s <= 500
        assert status["reserved"] == 1
        if offset != "+0\n":
            assert str(status["time"])[:13] != hour  # the clock of the agent really was another one


@pytest.mark.long
def test_the_agent_frozen_and_thawed(start_agent: Start) -> None:
    """As a suspended machine does it: what was missed is skipped, never caught up in a burst."""
    process = start_agent()
    agent = process.wait()
    before = agent.status()["sequence"]
    process.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    process.process.send_signal(signal.SIGCONT)
    process.wait(lambda a: a.status()["sequence"] > before)
    assert agent.request("GET", "/v1/self")["missed_ticks"] >= 20
    goes_on(process)


# ---- the kernel's files


def node_root(folder: Path) -> FakeRoot:
    """A machine of cgroup v2 with this machine's CPU and memory, and without PSI."""
    fake = FakeRoot(folder / "root", "v2")
    (fake.root / "proc/stat").unlink()
    for name in ("stat", "meminfo"):
        (fake.root / "proc" / name).symlink_to(f"/proc/{name}")
    return fake


def pod_path(number: int) -> str:
    uid = f"0a1b2c3d-1111-2222-3333-{number:012d}"
    return f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"


@pytest.mark.long
def test_psi_switched_off(start_agent: Start, tmp_path: Path) -> None:
    fake = node_root(tmp_path)
    process = start_agent(*configured(tmp_path, f'[node]\nroot = "{fake.root}"\n[containerd]\nenabled = false\n'))
    status = process.wait(lambda agent: agent.status()["usage"]["cpu"] is not None).status()
    assert "psi=1" in status["absent"]["cpu.pressure"]
    goes_on(process)


@pytest.mark.long
def test_cgroup_tree_vanishes_and_comes_back(start_agent: Start, tmp_path: Path) -> None:
    fake = node_root(tmp_path)
    for number in range(5):
        fake.group(pod_path(number))
    process = start_agent(*configured(tmp_path, f'[node]\nroot = "{fake.root}"\n[containerd]\nenabled = false\n'))
    process.wait(lambda agent: agent.status()["pods"] == 5)
    shutil.rmtree(fake.root / "sys")
    process.wait(lambda agent: agent.status()["pods"] == 0)
    assert goes_on(process)["usage"]
    (fake.root / "sys/fs/cgroup").mkdir(parents=True)
    fake.group(pod_path(7))
    process.wait(lambda agent: agent.status()["pods"] == 1)
    assert "Traceback" not in process.log.read_text()


@pytest.mark.long
def test_500_pods_at_once(start_agent: Start, tmp_path: Path) -> None:
    fake = node_root(tmp_path)
    process = start_agent(*configured(tmp_path, f'[node]\nroot = "{fake.root}"\n[containerd]\nenabled = false\n'))
    process.wait()
    for number in range(500):
        fake.group(pod_path(number))
    status = process.wait(lambda agent: agent.status()["pods"] == 500).status()
    assert status["slots"] == pytest.approx(500 + status["pod_capacity"], abs=0.01)
    goes_on(process)
    agent = process.wait(lambda a: sum(pod["usage"] is not None for pod in a.pods()) == 500)
    assert agent.request("GET", "/v1/self")["failed_ticks"] == 0
    shutil.rmtree(fake.root / "sys/fs/cgroup/kubepods.slice")
    process.wait(lambda agent: agent.status()["pods"] == 0)
    opened = f"/proc/{process.process.pid}/fd"
    process.wait(lambda agent: len(os.listdir(opened)) < 100)


# ---- the process


@pytest.mark.long
def test_kill_9_at_random_moments(start_agent: Start, roomy: list[str], tmp_path: Path) -> None:
    """A reservation that was answered as durable survives; no file is ever half written."""
    moments, promised, survived = random.Random(8), set[str](), 0
    for _ in range(6):
        process = start_agent(*roomy)
        agent = process.wait()
        held = {r["id"] for r in agent.request("GET", "/v1/reservations")["reservations"]}
        assert promised <= held
        survived += len(held)
        for key in held:
            agent.request("DELETE", f"/v1/reservations/{key}")
        promised.clear()
        process.wait(lambda a: a.status()["available"] >= 15)
        killer = threading.Timer(moments.uniform(0.0, 0.05), process.process.kill)
        killer.start()
        with suppress(AgentUnavailable, AgentError):
            for _ in range(15):
                promised.add(agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 500})["id"])
        killer.join()
        process.process.wait()
    assert survived > 0
    assert not list((tmp_path / "state").glob("*.damaged"))


@pytest.mark.long
def test_file_descriptors_exhausted(tmp_path: Path) -> None:
    """Sampling has its files open already; those who ask have to wait until others have gone."""
    process = start_limited(tmp_path, 48)
    try:
        process.wait()
        ticks = process.client().request("GET", "/v1/self")["ticks"]
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(60)]
        for one in crowd:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(process.socket)
        opened = f"/proc/{process.process.pid}/fd"
        deadline_s = time.monotonic() + 60
        while len(os.listdir(opened)) < 48:
            assert time.monotonic() < deadline_s, "it never ran out of descriptors"
            time.sleep(0.01)
        time.sleep(3)
        for one in crowd:
            one.close()
        after = process.wait(lambda agent: agent.request("GET", "/v1/self")["ticks"] >= ticks + 20)
        own = after.request("GET", "/v1/self")
        assert own["failed_ticks"] == 0
        goes_on(process)
    finally:
        process.stop(signal.SIGKILL)


def start_limited(folder: Path, descriptors: int) -> AgentProcess:
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not here")
    process = AgentProcess(folder, *configured(folder, "[containerd]\nenabled = false\n"))
    subprocess.run(["prlimit", f"--pid={process.process.pid}", f"--nofile={descriptors}:{descriptors}"], check=True)
    return process


def test_a_client_of_a_stopped_agent_gets_an_error(start_agent: Start) -> None:
    process = start_agent()
    process.wait()
    process.stop(signal.SIGKILL)
    with pytest.raises(AgentUnavailable):
        AgentClient(process.socket).status()
