"""The agent as a process with a real containerd: counts, events, reservations of named Pods."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from carico_agent.client import AgentClient
from lab.support.containerd import PrivateContainerd, missing
from tests.conftest import AgentProcess
from tests.node.test_self_budget import idle_node

Start = Callable[..., AgentProcess]


@pytest.fixture
def containerd() -> Iterator[PrivateContainerd]:
    if reason := missing():
        pytest.skip(reason)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as private:
        yield private


def pods(agent: AgentClient) -> int:
    return int(agent.status()["pods"])


def start(start_agent: Start, containerd: PrivateContainerd, folder: Path, node: str = "") -> AgentProcess:
    config = folder / "config.toml"
    config.write_text(f'[node]\nstate = "{folder}/state"\n{node}')
    return start_agent("--containerd", containerd.socket, "--config", str(config))


@pytest.mark.long
def test_pods_events_and_restarts(start_agent: Start, containerd: PrivateContainerd, tmp_path: Path) -> None:
    containerd.run("before")
    process = start(start_agent, containerd, tmp_path)
    agent = process.wait(lambda a: pods(a) == 1)
    assert "containerd" in agent.status()["runtime"]
    containerd.run("second")
    process.wait(lambda a: pods(a) == 2)
    listed = process.wait(lambda a: all(p["usage"] for p in a.pods())).pods()
    assert {p["name"] for p in listed} == {"before", "second"}
    assert all(p["inode"] > 0 and p["usage"]["memory_current"] > 0 for p in listed)
    containerd.remove("before")
    process.wait(lambda a: pods(a) == 1)
    topics = [event["topic"] for event in islice(agent.lines("/v1/events"), 4)]
    assert topics[:2] == ["/carico/snapshot", "/containers/create"]
    process.process.send_signal(signal.SIGKILL)  # in the middle; what happens meanwhile is seen by the next one
    process.process.wait()
    containerd.run("third")
    containerd.run("fourth")
    start(start_agent, containerd, tmp_path).wait(lambda a: pods(a) == 3)


@pytest.mark.long
def test_containerd_killed_and_restarted(start_agent: Start, containerd: PrivateContainerd, tmp_path: Path) -> None:
    containerd.run("a")
    containerd.run("b")
    process = start(start_agent, containerd, tmp_path)
    process.wait(lambda a: pods(a) == 2)
    containerd.kill()
    process.wait(lambda a: "reconnecting" in a.status()["runtime"])
    assert pods(process.client()) == 2
    containerd.start()
    containerd.remove("a")
    containerd.run("c")
    containerd.run("d")
    process.wait(lambda a: pods(a) == 3 and "reconnecting" not in a.status()["runtime"])


def test_a_reservation_ends_when_its_pod_starts(
    start_agent: Start, containerd: PrivateContainerd, tmp_path: Path
) -> None:
    """On a node that idles whatever this machine does: there is room to reserve."""
    uid = "11111111-2222-3333-4444-555555555555"
    with idle_node(tmp_path) as root:
        process = start(start_agent, containerd, tmp_path, f'root = "{root}"\n')
        agent = process.wait(lambda a: a.status()["available"] >= 1)
        agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 300, "pod_uid": uid})
        assert agent.request("GET", "/v1/reservations")["reservations"][0]["pod_uid"] == uid
        labels = {
            "io.cri-containerd.kind": "sandbox",
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.pod.name": "web",
            "io.kubernetes.pod.namespace": "shop",
        }
        containerd.run("sandbox", namespace="k8s.io", labels=labels)
        process.wait(lambda a: pods(a) == 1 and a.status()["reserved"] == 0)
        pod = agent.pods()[0]
        assert (pod["name"], pod["namespace"], pod["uid"]) == ("web", "shop", uid)
