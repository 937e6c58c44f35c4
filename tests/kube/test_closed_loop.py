"""The whole loop on real containers: a kubelet runs them, the agent measures them, `recommend apply` resizes them.

The agent reads each container every second instead of every minute, so that its hundred readings come in two minutes.
CARICO_LOOP_REPORT=FILE writes what was reserved and used before and after (`make lab-resize`).
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.client import AgentError
from carico_agent.lib.kube.pod_requests import asked_of
from lab.bench.machine import conditions
from lab.support.code_hash import code_hash, files_of
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for
from tests.conftest import AgentProcess
from tests.kube import kubelet as real
from tests.kube.test_apply import Apply, add_pod, in_force, node, runs
from tests.kube.test_kubelet import CONFIG, kubelet

__all__ = ["kubelet", "node"]
MIB = 2**20
FAST = (
    "from carico_agent.node import container_history as kept;"
    "from carico_agent.node.pods import container_history as r;"
    "kept.LOOK_S = r.LOOK_S = 0.5; r.ContainerReader.__init__.__defaults__ = (1.0,);"
    "from carico_agent.cli import main; raise SystemExit(main())"
)
HOLDS = (
    "head -c {mib}m /dev/zero > /dev/shm/held;"
    "while :; do i=0; while [ $i -lt {work} ]; do i=$((i+1)); done; sleep 0.2; done"
)
LOADS: dict[str, tuple[Any, str]] = {
    "roomy": (
        {"requests": {"cpu": "400m", "memory": "600Mi"}, "limits": {"cpu": "1", "memory": "800Mi"}},
        HOLDS.format(mib=30, work=200),
    ),
    "exact": ({"limits": {"cpu": "500m", "memory": "512Mi"}}, HOLDS.format(mib=20, work=200)),
    "idle": ({"requests": {"cpu": "300m", "memory": "400Mi"}}, HOLDS.format(mib=10, work=0)),
}
"""By Pod: resources as their owner guessed them, and what it does."""


class FastAgent(AgentProcess):
    """`carico agent` with seconds for minutes in the histories of containers."""

    PROGRAM = ("-c", FAST)


@pytest.fixture
def agent(cluster: Plane, kubelet: real.Kubelet, tmp_path: Path) -> Iterator[AgentProcess]:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(folder=tmp_path, socket=kubelet.containerd.socket))
    words = ("--config", str(config), "--node", "real", "--quiet")
    one = FastAgent(tmp_path, *words, "--kubeconfig", str(cluster.kubeconfig("agent-token")))
    yield one
    one.stop(signal.SIGKILL)


def used(agent: AgentProcess, over_s: float = 10.0) -> tuple[float, float]:
    """CPU [cores] and memory [bytes] of all Pods, by the agent's counters."""
    wait_for(lambda: all(pod["usage"] for pod in agent.client().pods()), "the counters are read", every_s=1.0)
    first, begun_s = cpu_usec(agent), time.monotonic()
    time.sleep(over_s)
    cores = (cpu_usec(agent) - first) / 1e6 / (time.monotonic() - begun_s)
    return cores, float(sum(pod["usage"]["memory_current"] for pod in agent.client().pods()))


def cpu_usec(agent: AgentProcess) -> int:
    return sum(int(pod["usage"]["cpu_usage_usec"]) for pod in agent.client().pods())


def reserved(plane: Plane) -> tuple[float, float]:
    """Cores and bytes that kube-scheduler counts as taken."""
    asked = [asked_of(pod) for pod in plane.admin.pods()]
    return sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked)


def restarts(plane: Plane) -> int:
    return sum(one["restartCount"] for pod in plane.admin.pods() for one in pod["status"]["containerStatuses"])


def resources(plane: Plane) -> dict[str, Any]:
    return {name: in_force(plane, name) for name in LOADS}


def has_samples(agent: AgentProcess) -> bool:
    try:
        containers = agent.client().request("GET", "/v1/history/containers")["containers"]
    except AgentError:  # "the histories are being read; ask again"
        return False
    return len(containers) == len(LOADS) and all(one["history"]["samples"] >= 100 for one in containers)


@pytest.mark.long
def test_requests_come_down_to_what_is_used(node: Plane, agent: AgentProcess, tmp_path: Path) -> None:
    """Three Pods whose owners guessed. The loop runs until it changes nothing more, and is then stopped."""
    for name, (guessed, command) in LOADS.items():
        add_pod(node, name, guessed, command)
    wait_for(lambda: runs(node, *LOADS), "they run", 120)
    agent.wait(lambda client: client.status()["pods"] == len(LOADS), 120)
    wait_for(lambda: has_samples(agent), "there are a hundred readings of each", 400, every_s=3.0)
    asked, took, guessed = reserved(node), used(agent), resources(node)

    least = ("--floor-memory", "64Mi", "--min-cpu", "50m")
    apply = Apply(node, tmp_path, "--socket", agent.socket, "--max-changes", "60", *least)
    daemon = apply.daemon("--yes", "--every", "5s")
    try:
        wait_for(lambda: len(apply.events()) >= 6, "every Pod is resized, twice: by half at a time", 120)
        settle(apply)
        wait_for(lambda: reserved(node)[1] < asked[1] / 2, "the kubelet has resized them", 60)
        after, took_after = reserved(node), used(agent)
    finally:
        daemon.terminate()
        said = daemon.communicate(timeout=60)[1]
    assert daemon.returncode == 0, said
    wait_for(lambda: resources(node) == guessed, "everything is as before", 60)

    events = [one["event"] for one in apply.events()]
    assert "rolled-back" not in events and events.count("restored") == len(LOADS)
    assert restarts(node) == 0  # no OOM kill, and no container was started again
    assert took_after[1] <= after[1] and took[1] <= asked[1]  # what is reserved covers what is used
    assert after[0] / took_after[0] < asked[0] / took[0] and after[1] / took_after[1] < asked[1] / took[1]
    report(asked, took, after, took_after, events)


def settle(apply: Apply, quiet_s: float = 12.0) -> None:
    """Two rounds without a change."""
    last, since_s = -1, time.monotonic()
    while time.monotonic() - since_s < quiet_s:
        if len(apply.events()) != last:
            last, since_s = len(apply.events()), time.monotonic()
        time.sleep(0.5)


def report(*rows: Any) -> None:
    asked, took, after, took_after, events = rows
    lines = [
        f"# Closed loop: {len(LOADS)} real containers, resized by `carico recommend apply --every 5s`",
        "",
        "`make lab-resize` writes this file. A real kubelet 1.36, a real API server; the agent reads each container",
        f"every second instead of every minute. Code {code_hash(files_of(['carico_agent/recommend']))}. {conditions()}",
        "",
        "| | reserved CPU [cores] | used | reserved/used | reserved memory [MiB] | used | reserved/used |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (cores, held), (cores_used, bytes_used) in (("before", asked, took), ("after", after, took_after)):
        lines.append(
            f"| {name} | {cores:.3f} | {cores_used:.3f} | {cores / cores_used:.1f} | {held / MIB:.0f} | "
            f"{bytes_used / MIB:.0f} | {held / bytes_used:.1f} |"
        )
    changes = events.count("change")
    lines += [
        "",
        f"{changes} resizes in place, 0 restarts, 0 OOM kills, {events.count('rolled-back')} rollbacks. After the stop "
        f"all {events.count('restored')} Pods had their own resources again.",
    ]
    print("\n".join(lines))
    if path := os.environ.get("CARICO_LOOP_REPORT"):
        Path(path).write_text("\n".join(lines) + "\n")
