"""`make cluster` and `make cluster-down`: the commands, what they promise, and that they leave nothing."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import node_image, processes
from lab.cluster.cluster import kwok_binary
from lab.support.control_plane import binaries
from lab.support.waiting import wait_for
from tests.cluster.conftest import unavailable
from tests.conftest import TREE

pytestmark = pytest.mark.cluster

RESOURCE, CAPACITY = "carico.dev/pods", "carico.dev/pod-capacity"


def cluster(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lab.cluster", *arguments], cwd=TREE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the cluster lives. Nothing is left when it is down, also after a test that failed."""
    try:
        binaries()
    except LookupError as error:
        unavailable(f"no control plane: {error}")
    if not kwok_binary().exists():
        unavailable("no kwok (python -m lab.support.kube_build kwok)")
    with tempfile.TemporaryDirectory(prefix="carico-") as parent:
        one = Path(parent) / "run"
        yield one
        cluster("down", "--folder", str(one))


def kubectl(folder: Path, *arguments: str) -> Any:
    config = f"--kubeconfig={folder}/kubeconfig"
    done = subprocess.run([binaries() / "kubectl", config, *arguments, "-o", "json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def held(folder: Path) -> dict[str, int]:
    """Sample Pods per node."""
    pods = kubectl(folder, "-n", "shop", "get", "pods")["items"]
    return dict(Counter(name for pod in pods if (name := pod["spec"].get("nodeName"))))


def check_numbers(folder: Path, names: set[str]) -> None:
    """Every node has a number and places, and the stock scheduler has filled them and no more."""
    nodes = {node["metadata"]["name"]: node for node in kubectl(folder, "get", "nodes")["items"]}
    assert nodes.keys() == names
    assert all(float(node["metadata"]["annotations"][CAPACITY]) >= 0.0 for node in nodes.values())
    kubectl(folder, "-n", "shop", "scale", "deployment", "web", "--replicas=100")

    def full() -> bool:
        """No place is left, and no Pod is beyond them; numbers move while Pods start."""
        places = {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(RESOURCE, "0"))
            for node in kubectl(folder, "get", "nodes")["items"]
        }
        return held(folder) == places

    wait_for(full, "every place is taken, and no Pod is bound beyond them", 180, 2.0)


@pytest.mark.parametrize("real", [0, 1], ids=["kwok", "kwok-and-real"])
def test_it_comes_up_schedules_by_the_number_and_leaves_nothing(folder: Path, real: int) -> None:
    if real and (why := node_image.missing()):
        unavailable(f"no virtual node: {why}")
    said = cluster("up", "--folder", str(folder), "--kwok-nodes", "2", "--real-nodes", str(real))
    names = {"kwok-1", "kwok-2", *(["real-1"] if real else [])}
    page = re.search(r"page of the cluster: (http://\S+)", said)
    assert page is not None, said
    with urllib.request.urlopen(page[1], timeout=30) as answer:
        assert b"<html" in answer.read()
    check_numbers(folder, names)

    api = json.loads((folder / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    ended = cluster("down", "--folder", str(folder))
    assert re.match(r"cluster: \d+ processes ended", ended), ended
    assert not folder.exists()
    assert processes.running(folder) == []
    for url in (api, page[1]):
        host, port = url.split("//")[1].strip("/").split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
