"""With a real kubelet: what it makes of our number, and what we make of its Pods.

Everywhere else in these tests nodes are API objects. Here one has a kubelet, a containerd and running Pods.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.support.control_plane import Plane
from lab.support.waiting import wait_for
from tests.conftest import AgentProcess
from tests.kube import kubelet as real
from tests.kube.test_node import RESOURCE, amounts, annotations

PODS = "/api/v1/namespaces/default/pods"

CONFIG = """\
[node]
state = "{folder}/state"
[containerd]
socket = "{socket}"
namespaces = ["k8s.io"]
[model]
prior_cost = {{ cpu = 0.02 }} # this machine also runs the control plane and the tests: still there shall be places
[budget]
cpu_ratio = 1.0
pressure_ratio = 1.0
"""


@pytest.fixture
def kubelet(cluster: Plane) -> Iterator[real.Kubelet]:
    if why := real.missing():
        pytest.skip(f"no kubelet: {why}")
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:  # short: containerd's socket lies in it
        one = real.Kubelet(cluster, Path(folder), "real")
        yield one
        one.stop()


@pytest.fixture
def agent(cluster: Plane, kubelet: real.Kubelet, tmp_path: Path) -> Iterator[AgentProcess]:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(folder=tmp_path, socket=kubelet.containerd.socket))
    one = AgentProcess(
        tmp_path,
        "--config",
        str(config),
        "--node",
        "real",
        "--quiet",
        "--kubeconfig",
        str(cluster.kubeconfig("agent-token")),
    )
    yield one
    one.stop()


def test_a_real_kubelet_and_its_pods(cluster: Plane, kubelet: real.Kubelet, agent: AgentProcess) -> None:
    def node() -> Any:
        return cluster.admin.node("real")

    def amount() -> int:
        return int(amounts(node())[1] or 0)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in cluster.admin.pods()}

    cluster.start_scheduler()
    wait_for(lambda: amount() >= 6, "there are places")
    assert "carico.dev/slots" in annotations(node())

    # An unmodified kube-scheduler, a real kubelet, real containers: the agent counts them by the same UIDs.
    for name in ("p1", "p2", "p3"):
        cluster.admin.post(PODS, real.pod(name, 1))
    wait_for(lambda: list(phases().values()) == ["Running"] * 3, "three Pods run")
    agent.wait(lambda client: client.status()["pods"] == 3)
    time.sleep(12)  # a kubelet copies capacity to allocatable every ten seconds
    assert amount() >= 6
    assert len(set(amounts(node()))) == 1

    # It starts again, and the number is there, whatever it made of it.
    kubelet.end()
    kubelet.start()
    wait_for(lambda: amount() >= 6, "the number is there, still or again", 30)
    assert list(phases().values()) == ["Running"] * 3
    # It takes in Pods again. One that had to wait for its start would be held before it is judged, and what is held is
    # published.
    cluster.admin.post(PODS, real.pod("p4", 1))
    wait_for(lambda: phases()["p4"] == "Running", "the kubelet takes in Pods again")

    # The last word is the kubelet's: a Pod beyond allocatable does not run, whoever bound it.
    cluster.admin.post(PODS, real.pod("too-big", 1000, node="real"))
    wait_for(lambda: phases()["too-big"] == "Failed", "it is refused")
    refused = cluster.admin.get(f"{PODS}/too-big")["status"]
    assert refused["reason"] == f"OutOf{RESOURCE}", refused

    # Ended Pods are ended here, too, and nothing stays held.
    for name in ("p1", "p2", "p3", "p4", "too-big"):
        cluster.admin.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    agent.wait(lambda client: client.status()["pods"] == 0)
    wait_for(lambda: amount() >= 6, "there are as many places as before")  # measured: this machine has other work, too
    assert agent.stop() == 0
    assert amounts(node()) == ("0", "0")
