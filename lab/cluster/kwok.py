"""kwok nodes: Node objects whose Pods only pretend to run, each with a real agent that reads a pretended kernel."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.cluster.pretended_kernel import CORES, MEMORY_KB
from lab.support.control_plane import Plane

STAGES = Path(__file__).with_name("kwok.yaml")
ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
AGENT = """\
[node]
root = "{root}"
state = "{folder}/state"
[sampling]
period_s = 0.5 # the pretended kernel writes ten times a second
[socket]
path = "{folder}/agent.sock"
[containerd]
enabled = false
[budget]
cpu_ratio = 1.0
pressure_ratio = 1.0
"""

Start = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a process by the name of its log and its command."""


def node(name: str) -> dict[str, Any]:
    have = {"cpu": str(CORES), "memory": f"{MEMORY_KB}Ki", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": ANNOTATION},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": have, "allocatable": have},
    }


def start_kwok(plane: Plane, start: Start, binary: Path) -> "subprocess.Popen[bytes]":
    """One process for all nodes."""
    return start(
        "kwok",
        str(binary),
        f"--config={STAGES}",
        f"--kubeconfig={plane.kubeconfig('admin-token')}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
    )


def start_nodes(plane: Plane, start: Start, folder: Path, names: list[str]) -> None:
    """The Node objects, what their kernels would show, and an agent for each."""
    for name in names:
        plane.admin.post("/api/v1/nodes", node(name))
    roots = folder / "kwok"
    roots.mkdir()
    admin = str(plane.kubeconfig("admin-token"))
    start("pretended-kernel", sys.executable, "-m", "lab.cluster.pretended_kernel", admin, str(roots), *names)
    for name in names:
        own = folder / f"agent-{name}"
        own.mkdir()
        (own / "config.toml").write_text(AGENT.format(root=roots / name, folder=own))
        (own / "token").write_text(plane.admin.agent_token(name, expires_s=86400))
        kubeconfig = plane.kubeconfig(tokenFile=str(own / "token")).rename(own / "kubeconfig")
        carico = (sys.executable, "-m", "carico_agent", "agent", "--config", str(own / "config.toml"), "--quiet")
        start(f"agent-{name}", *carico, "--node", name, "--kubeconfig", str(kubeconfig))
