"""Which Pod a process is in, and every way we know to pass for another one. The processes are real, their groups are
files in a fake root."""

import contextlib
import os
import shutil
import socket
import subprocess
from asyncio.trsock import TransportSocket
from collections.abc import Iterator
from pathlib import Path

import pytest

from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.peer_pod import NotInPod, PeerPods
from carico_agent.node.pods.pods import Member, Pod
from tests.node.pods.trees import ID, POD_PATHS, UID, FakeRoot

OTHER_UID = "ffffffff-9999-8888-7777-666655554444"
OTHER = f"/kubepods/burstable/pod{OTHER_UID}"


class Node:
    """Two Pods: the one of `trees`, and another one."""

    def __init__(self, tmp_path: Path, workload: str = "v2", driver: str = "cgroupfs") -> None:
        self.root = FakeRoot(tmp_path, workload)
        self.path, self.inside = POD_PATHS[driver]
        self.root.group(f"{self.path}/{self.inside}")
        self.root.group(self.path)
        self.root.group(f"{OTHER}/c")
        self.pods = {UID: self.pod(UID, self.path), OTHER_UID: self.pod(OTHER_UID, OTHER)}
        self.peers = PeerPods(tmp_path, lambda: self.pods)

    def pod(self, uid: str, path: str) -> Pod:
        group = Locator(self.root.root).at(path)
        assert group is not None
        return Pod(uid, "job", "lab", uid=uid, cgroup=path, inode=group.inode)

    def put(self, pid: int, path: str) -> None:
        shutil.rmtree(self.root.root / f"proc/{pid}", ignore_errors=True)
        self.root.process(pid, path)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[socket.socket, TransportSocket]]:
    """A client and the agent's end of its connection."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))
        accepted, _ = server.accept()
        with accepted:
            yield client, TransportSocket(accepted)


Pair = tuple[socket.socket, TransportSocket]


@pytest.mark.parametrize("workload", ["v2", "v1", "hybrid"])
@pytest.mark.parametrize("driver", POD_PATHS)
def test_the_pod_of_a_process(tmp_path: Path, pair: Pair, workload: str, driver: str) -> None:
    node = Node(tmp_path / "root", workload, driver)
    node.put(os.getpid(), f"{node.path}/{node.inside}")
    process, pod = node.peers.accept(pair[1])
    assert pod.uid == UID
    assert process.pid == os.getpid()
    assert node.peers.again(process).uid == UID


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/user.slice/user-1000.slice",
        f"/user.slice/user-1000.slice/user@1000.service/pod{UID}",  # a user's systemd lets it make groups of any name
        f"/docker/kubepods/burstable/pod{UID}/x",
        "/kubepods/burstable",
        f"/kubepods/burstable/pod{UID}x",
        f"/kubepods/burstable/pod{UID[:-1]}",
    ],
)
def test_a_name_is_not_a_pod(tmp_path: Path, pair: Pair, path: str) -> None:
    node = Node(tmp_path / "root")
    if path != "/":
        node.root.group(path)
    node.put(os.getpid(), path)
    with pytest.raises(NotInPod, match="in no Pod"):
        node.peers.accept(pair[1])


def test_a_group_inside_a_pod_with_another_ones_name_is_still_the_pod(tmp_path: Path, pair: Pair) -> None:
    """A container with a writable tree calls one of its groups like the other Pod's."""
    node = Node(tmp_path / "root")
    inner = f"{node.path}/{ID}{OTHER}"
    node.root.group(inner)
    node.put(os.getpid(), inner)
    assert node.peers.accept(pair[1])[1].uid == UID


def test_a_group_that_came_back_under_the_same_name_is_another_one(tmp_path: Path, pair: Pair) -> None:
    node = Node(tmp_path / "root")
    node.put(os.getpid(), f"{node.path}/{ID}")
    assert node.peers.accept(pair[1])[1].uid == UID
    folder = node.root.mounts[""] / node.path.lstrip("/")
    folder.rename(folder.parent / "moved-away")  # it keeps its inode, so that the new one gets another
    node.root.group(node.path)
    with pytest.raises(NotInPod):
        node.peers.accept(pair[1])


def test_a_process_that_moves_to_another_pod_is_refused(tmp_path: Path, pair: Pair) -> None:
    node = Node(tmp_path / "root")
    node.put(os.getpid(), f"{node.path}/{ID}")
    process, _ = node.peers.accept(pair[1])
    (node.root.root / f"proc/{os.getpid()}/cgroup").write_text(f"0::{OTHER}/c\n")
    with pytest.raises(NotInPod, match="moved"):
        node.peers.again(process)


def test_a_pid_that_was_used_again_is_refused(tmp_path: Path, pair: Pair) -> None:
    """Its connection was handed on, and the pid belongs to a process of the other Pod now."""
    node = Node(tmp_path / "root")
    node.put(os.getpid(), f"{node.path}/{ID}")
    process, _ = node.peers.accept(pair[1])
    node.put(os.getpid(), f"{node.path}/{ID}")
    stat = node.root.root / f"proc/{os.getpid()}/stat"
    stat.write_text(stat.read_text().replace("4200", "9999"))
    with pytest.raises(NotInPod, match="another one"):
        node.peers.again(process)
    shutil.rmtree(stat.parent)
    with pytest.raises(NotInPod, match="gone"):
        node.peers.again(process)


def test_a_process_that_connected_and_ended_is_refused(tmp_path: Path) -> None:
    """Its pid may be anybody's by now: here one of the other Pod. Linux 6.5 and later show it."""
    node = Node(tmp_path / "root")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        child = os.fork()
        if child == 0:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(tmp_path / "s"))
            os._exit(0)
        os.waitpid(child, 0)
        node.put(child, f"{OTHER}/c")
        accepted, _ = server.accept()
        with accepted:
            if not kernel_has_peerpidfd():
                pytest.skip("SO_PEERPIDFD needs Linux 6.5")
            with pytest.raises(NotInPod):
                node.peers.accept(TransportSocket(accepted))


def kernel_has_peerpidfd() -> bool:
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor)) >= (6, 5)


def test_descriptors_do_not_pile_up(tmp_path: Path, pair: Pair) -> None:
    node = Node(tmp_path / "root")
    before = len(os.listdir("/proc/self/fd"))
    for path in (f"{node.path}/{ID}", "/"):
        node.put(os.getpid(), path)
        for _ in range(20):
            with contextlib.suppress(NotInPod):
                node.peers.again(node.peers.accept(pair[1])[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_containers_without_a_group_around_them(tmp_path: Path, pair: Pair) -> None:
    """Plain containerd: two containers of one Pod, each with a group of its own."""
    node = Node(tmp_path / "root")
    other = subprocess.Popen(["sleep", "60"])
    try:
        for pid, path in ((os.getpid(), "/plain/a"), (other.pid, "/plain/b")):
            node.root.group(path)
            node.put(pid, path)
        members = (Member("a", "a", other.pid), Member("b", "b", os.getpid()))
        first = Locator(tmp_path / "root").at("/plain/b")
        assert first is not None
        node.pods = {"p": Pod("p", "p", "default", containers=members, cgroup="/plain/b", inode=first.inode)}
        assert node.peers.accept(pair[1])[1].key == "p"
    finally:
        other.kill()
        other.wait()
