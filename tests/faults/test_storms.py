"""Full disks under the journal and a trace, little memory, and a storm of container events: a real agent, real files, a
real containerd."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from carico_agent.node.plugin_host import cgroupfs
from carico_agent.node.plugin_host.journal import Journal, fold
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter
from carico_agent.node.pods.proto import payloads_pb2 as payloads
from carico_agent.plugin_api import Change
from lab.support.containerd import PrivateContainerd, missing
from tests.conftest import TREE, AgentProcess
from tests.faults.test_node_faults import Start, configured, goes_on, needs_root, node_root, pod_path, tmpfs
from tests.node.plugin_host.plugin_fakes import FakeKernel, make_cgroup

LIMIT_MB = 80
STORM_PER_S = 10_000 / 60
STORM = int(os.environ.get("CARICO_STORM", "2000"))
"""Containers that come and go; 10,000 take a minute."""


# ---- disks


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "filler").open("wb") as filler:
        while True:
            filler.write(b"x" * 512)
            filler.flush()


@needs_root
def test_a_full_disk_under_the_journal_stops_writes_to_cgroups_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be noted is not changed; what was noted before can be put back; with room again all goes on."""
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)  # the disk is real, the cgroup a folder
    pod = tmp_path / "pod"
    inode = make_cgroup(pod)
    with tmpfs(tmp_path / "disk") as disk:
        journal = Journal(disk / "journal", "boot")
        limits = WriteLimits(rewrite_after_s=0, min_step_ratio=0)
        writer = CgroupWriter(journal, False, limits, lambda key: None, FakeKernel(), time.monotonic)

        def write(value: str) -> str:
            return writer.write("p", [Change(str(pod), inode, "memory.high", value, "because")])[0].state

        assert write("8192") == "written"
        fill(disk)
        states = [write(str(4096 * number)) for number in range(3, 40)]  # the last page of the journal has some room
        assert states[-1] != "written"
        stands = (pod / "memory.high").read_text().strip()
        entry = next(iter(journal.entries.values()))
        assert stands in entry.ours and entry.original == "max"
        on_disk = next(iter(fold(disk / "journal").entries.values()))
        assert stands in on_disk.ours and on_disk.original == "max"
        (disk / "filler").unlink()
        assert write("81920") == "written" and (pod / "memory.high").read_text().strip() == "81920"
        journal.close()


@pytest.mark.long
@needs_root
def test_a_full_disk_under_a_trace_ends_the_recording_and_not_the_agent(start_agent: Start, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        process = start_agent("--record", str(disk / "day.trace"))
        process.wait()
        fill(disk)
        process.wait(lambda agent: "recording ends here" in process.log.read_text())
        goes_on(process, 3)
        assert process.log.read_text().count("recording ends here") == 1
        assert process.stop() == 0
        (disk / "filler").unlink()
        replayed = subprocess.run(
            [sys.executable, "-m", "carico_agent", "replay", str(disk / "day.trace")], cwd=TREE, capture_output=True
        )
        assert replayed.returncode == 0, replayed.stderr.decode()


# ---- memory


@contextmanager
def limited(mb: int) -> Iterator[Path]:
    """A group of this machine's memory controller with that much memory; cgroup v1 or v2."""
    v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    folder = Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory") / f"carico-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(mb * 2**20))
    except OSError as error:
        pytest.skip(f"no memory controller: {error}")
    try:
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.long
@needs_root
def test_80_mb_are_enough(tmp_path: Path) -> None:
    """A node with 110 Pods, clients that ask, and a limit at which a leak of some megabytes ends the agent."""
    fake = node_root(tmp_path)
    for number in range(110):
        fake.group(pod_path(number))
    with limited(LIMIT_MB) as group:
        process = AgentProcess(
            tmp_path, *configured(tmp_path, f'[node]\nroot = "{fake.root}"\n[containerd]\nenabled = false\n')
        )
        (group / "cgroup.procs").write_text(str(process.process.pid))  # from its first imports on
        try:
            agent = process.wait(lambda a: a.status()["pods"] == 110)
            for _ in range(20):
                assert len(agent.pods()) == 110
                agent.request("GET", "/v1/self")
            goes_on(process, 5)
            assert process.stop() == 0
        finally:
            process.process.kill()
            process.process.wait()


# ---- events


class Publisher:
    """Publishes events through containerd itself, as its shims do: no container is made."""

    def __init__(self, socket: str) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}")
        self._publish = self._channel.unary_unary("/containerd.services.events.v1.Events/Publish")

    def container(self, name: str) -> list[grpc.Future]:
        """One that comes, runs and goes."""
        task = {"container_id": name, "pid": 99_999_999}
        return [
            self._send("/containers/create", payloads.ContainerCreate(id=name)),
            self._send("/tasks/create", payloads.TaskCreate(**task)),
            self._send("/tasks/start", payloads.TaskStart(**task)),
            self._send("/tasks/delete", payloads.TaskDelete(**task)),
            self._send("/containers/delete", payloads.ContainerDelete(id=name)),
        ]

    def _send(self, topic: str, payload: object) -> grpc.Future:
        event = AnyMessage(
            type_url=payload.DESCRIPTOR.full_name,  # type: ignore[attr-defined]
            value=payload.SerializeToString(),  # type: ignore[attr-defined]
        ).SerializeToString()
        request = b"\x0a%c%s\x12%c%s" % (len(topic), topic.encode(), len(event), event)  # PublishRequest
        return self._publish.future(request, metadata=(("containerd-namespace", "default"),), timeout=60)

    def close(self) -> None:
        self._channel.close()


def publish_storm(socket: str, count: int, rates: list[float]) -> None:
    """At most STORM_PER_S; how many per second it really were goes to `rates`."""
    publisher, began_s = Publisher(socket), time.monotonic()
    for number in range(count):
        for sent in publisher.container(f"storm{number}"):
            sent.result()
        time.sleep(max(0.0, began_s + number / STORM_PER_S - time.monotonic()))
    rates.append(count / (time.monotonic() - began_s))
    publisher.close()


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.long
def test_a_storm_of_containers(start_agent: Start) -> None:
    """The agent goes on, takes no more memory, and counts who really runs during the storm and after it."""
    if reason := missing():
        pytest.skip(reason)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        containerd.run("a")
        process = start_agent("--containerd", containerd.socket)
        process.wait(lambda agent: agent.status()["pods"] == 1)
        before_mb, rates = resident_mb(process.process.pid), list[float]()
        storm = threading.Thread(target=publish_storm, args=(containerd.socket, STORM, rates))
        storm.start()
        counts = set()
        while storm.is_alive():
            counts.add(goes_on(process, 1)["pods"])
            time.sleep(0.5)
        storm.join()
        containerd.run("b")
        agent = process.wait(lambda a: a.status()["pods"] == 2)
        own = agent.request("GET", "/v1/self")
        grown_mb = resident_mb(process.process.pid) - before_mb
        print(
            f"{rates[0]:.0f} containers/s, {grown_mb:.1f} MB more, {own['missed_ticks']} of {own['ticks']} ticks missed"
        )
        assert counts <= {1, 2} and 1 in counts
        assert grown_mb < 16
        assert own["failed_ticks"] == 0 and "Traceback" not in process.log.read_text()
