"""A virtual machine with a kubelet 1.36, containerd 2 and cgroup v2 is a node, and carico runs there as users run it.

The number is on the machine's Node object, and an unmodified kube-scheduler places Pods by it: as many as it says are
bound, the next one waits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.container_image import BUSYBOX
from lab.cluster.node_image import NodeImage
from lab.cluster.plane import ClusterPlane
from lab.cluster.real_node import RealNode
from lab.support.waiting import wait_for

pytestmark = pytest.mark.cluster

NAME = "real-1"
RESOURCE, CAPACITY = "carico.dev/pods", "carico.dev/pod-capacity"
DAEMON_SET = "/apis/apps/v1/namespaces/carico/daemonsets/carico-agent"
PODS = "/api/v1/namespaces/default/pods"
SLOW_S = 600
"""An emulated machine on a busy one: only a hang reaches it."""


@pytest.fixture
def node(plane: ClusterPlane, image: NodeImage, tmp_path: Path) -> Iterator[RealNode]:
    one = RealNode(plane, image, tmp_path / NAME, NAME)
    yield one
    one.stop()


def places(plane: ClusterPlane) -> int:
    """What the scheduler may give away there in all."""
    return int(plane.admin.node(NAME)["status"]["allocatable"].get(RESOURCE, "0"))


def publishes(plane: ClusterPlane) -> bool:
    return CAPACITY in plane.admin.node(NAME)["metadata"].get("annotations", {}) and places(plane) > 0


def sleeper(name: str, places: int) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": BUSYBOX,
        "command": ["/bin/busybox", "sleep", "100000"],
        "resources": {"limits": {RESOURCE: str(places)}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def phase(plane: ClusterPlane, name: str) -> str:
    return str(plane.admin.get(f"{PODS}/{name}")["status"].get("phase"))


def scheduled(plane: ClusterPlane, name: str) -> str:
    """Where it is, or why it is nowhere yet."""
    pod = plane.admin.get(f"{PODS}/{name}")
    conditions = {one["type"]: one for one in pod["status"].get("conditions", ())}
    return str(pod["spec"].get("nodeName") or conditions.get("PodScheduled", {}).get("message", ""))


def scheduler_obeys(plane: ClusterPlane) -> None:
    """A Pod that asks for more than there is waits, and says why; one that asks for one place runs."""
    plane.admin.post(PODS, sleeper("too-much", places(plane) + 100))
    wait_for(lambda: f"Insufficient {RESOURCE}" in scheduled(plane, "too-much"), "the scheduler refuses", 60)
    plane.admin.post(PODS, sleeper("fits", 1))
    wait_for(lambda: phase(plane, "fits") == "Running", "a Pod that fits runs in a container there", SLOW_S)
    assert scheduled(plane, "fits") == NAME
    assert places(plane) >= 1  # what is held is never taken back
    assert phase(plane, "too-much") == "Pending"


def test_as_its_daemon_set(plane: ClusterPlane, node: RealNode) -> None:
    node.start()
    info = node.wait_ready()["status"]["nodeInfo"]
    assert info["kubeletVersion"].startswith("v1.36.")
    assert info["containerRuntimeVersion"].startswith("containerd://2.")
    wait_for(
        lambda: plane.admin.get(DAEMON_SET)["status"].get("numberReady") == 1, "the DaemonSet's Pod is ready", SLOW_S
    )
    wait_for(lambda: publishes(plane), "the number is on the Node object", SLOW_S)
    scheduler_obeys(plane)


def test_as_the_service(plane: ClusterPlane, node: RealNode) -> None:
    plane.admin.delete(DAEMON_SET)
    plane.admin.post(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
    )  # a token names it
    node.install_service(plane.admin.agent_token(NAME, expires_s=86400))
    node.start()
    node.wait_ready()
    wait_for(lambda: publishes(plane), "the number is on the Node object", SLOW_S)
    scheduler_obeys(plane)
