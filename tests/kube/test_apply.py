"""`carico recommend apply` with a real kubelet: Pods are resized in place, rolled back after an OOM kill, restored."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.lib.trace.containers import ContainerReading, PodsRow
from carico_agent.node.sampling import Reading, TraceRow, TraceWriter
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for
from tests.kube import kubelet as real
from tests.kube.test_kubelet import PODS, kubelet
from tests.recommend.test_command import trace

__all__ = ["kubelet"]
MIB = 2**20
SMALL = {"cpu": "500m", "memory": "300Mi"}
ALLOCATES = "until [ -e /flag/go ]; do sleep 0.2; done; rm /flag/go; exec dd if=/dev/zero of=/dev/null bs=250M"


def add_pod(plane: Plane, name: str, resources: Any, command: str, flag: Path | None = None) -> None:
    body = real.pod(name, 0, node="real")
    container = body["spec"]["containers"][0]
    container.update(name="app", resources=resources, command=["/bin/busybox", "sh", "-c", command])
    body["spec"]["restartPolicy"] = "Always"
    if flag is not None:
        flag.mkdir()
        container["volumeMounts"] = [{"name": "flag", "mountPath": "/flag"}]
        body["spec"]["volumes"] = [{"name": "flag", "hostPath": {"path": str(flag)}}]
    plane.admin.post(PODS, body)


def calm(path: Path, pod: str) -> str:
    """Five hours of a container that takes a tenth of a core and 20 MiB."""
    writer = TraceWriter(path, node=pod, cores=4, resources=("cpu",))
    writer.write(TraceRow(Reading(0.0, cores=4, memory_total_kb=8 << 20), 1, False))
    for n in range(300):
        one = ContainerReading(
            "default", pod, "app", cpu_usage_usec=int(6e6 * n + 1e5 * (n % 2)), memory_bytes=(20 + n % 2) * MIB
        )
        writer.write_pods(PodsRow(60.0 * n, 1.7e9 + 60 * n, (one,)))
    writer.write(TraceRow(Reading(18001.0, cores=4), 1, False))
    writer.close()
    return str(path)


def in_force(plane: Plane, name: str) -> Any:
    """What the kubelet reads from the runtime."""
    statuses = plane.admin.get(f"{PODS}/{name}")["status"].get("containerStatuses") or [{}]
    return statuses[0].get("resources")


def runs(plane: Plane, *names: str) -> bool:
    return all(plane.admin.get(f"{PODS}/{name}")["status"].get("phase") == "Running" for name in names)


class Apply:
    """The command with a journal of its own."""

    def __init__(self, plane: Plane, folder: Path, *given: str) -> None:
        self.journal = folder / "resizes.jsonl"
        more = ["--kubeconfig", str(plane.kubeconfig("admin-token")), "--journal", str(self.journal)]
        self._words = [sys.executable, "-m", "carico_agent", "recommend", "apply", *more, *given]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=60)

    def daemon(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([*self._words, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []


@pytest.fixture
def node(cluster: Plane, kubelet: real.Kubelet) -> Iterator[Plane]:
    yield cluster
    cluster.admin.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    wait_for(lambda: not cluster.admin.pods(), "the Pods are gone")


def test_a_pod_is_resized_where_its_node_has_room(node: Plane, tmp_path: Path) -> None:
    """First a dry run, then too little measured room, then for real; --restore puts it back. No container restarts."""
    add_pod(node, "web", {"requests": SMALL, "limits": {"cpu": "1", "memory": "400Mi"}}, "sleep 999")
    wait_for(lambda: runs(node, "web"), "it runs", 60)
    apply = Apply(node, tmp_path, "--trace", trace(tmp_path / "t", "web", namespace="default"))
    dry = apply()
    assert dry.returncode == 0 and "nothing was changed (--yes does it)" in dry.stdout, dry.stderr
    assert "fits now" in dry.stdout and in_force(node, "web")["requests"] == SMALL and not apply.events()

    room = json.dumps({"room": {"cpu": 0.1, "memory": 2**33}, "next": {}, "workloads": {}})
    node.admin.merge("/api/v1/nodes/real", {"metadata": {"annotations": {"carico.dev/workloads": room}}})
    (said,) = json.loads(apply("--yes", "--json").stdout)["pods"]
    assert said["verdict"] == "would wait" and "free as measured" in said["why"] and not apply.events()
    room = json.dumps({"room": {"cpu": 2.0, "memory": 2**33}, "next": {}, "workloads": {}})
    node.admin.merge("/api/v1/nodes/real", {"metadata": {"annotations": {"carico.dev/workloads": room}}})

    done = apply("--yes")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: in_force(node, "web")["requests"] == {"cpu": "1100m", "memory": "879Mi"}, "it is resized", 60)
    assert in_force(node, "web")["limits"] == {
        "cpu": "1101m",
        "memory": "879Mi",
    }  # it was throttled, and stays Burstable
    assert [one["event"] for one in apply.events()] == ["change"]
    assert apply("--restore").returncode == 0
    wait_for(lambda: in_force(node, "web")["requests"] == SMALL, "it is as before", 60)
    assert in_force(node, "web")["limits"] == {"cpu": "1", "memory": "400Mi"}
    assert [one["event"] for one in apply.events()] == ["change", "restored"]
    assert node.admin.get(f"{PODS}/web")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_an_oom_kill_is_rolled_back_and_a_stop_restores_the_rest(node: Plane, tmp_path: Path) -> None:
    """Two Guaranteed Pods that used 20 MiB are cut to half. One of them then wants 250 MiB."""
    for name in ("grows", "stays"):
        add_pod(node, name, {"limits": SMALL}, ALLOCATES, tmp_path / f"flag-{name}")
    wait_for(lambda: runs(node, "grows", "stays"), "they run", 60)
    traces = [calm(tmp_path / name, name) for name in ("grows", "stays")]
    least = ("--min-memory", "145Mi", "--min-cpu", "300m", "--floor-memory", "16Mi")
    apply = Apply(node, tmp_path, "--trace", *traces, *least)
    daemon = apply.daemon("--yes", "--every", "1s")  # halves the memory; what is left to cut then is below 10 %
    try:
        for name in ("grows", "stays"):
            wait_for(lambda name=name: in_force(node, name)["limits"]["memory"] == "150Mi", f"{name} is cut", 60)
        held = {name: in_force(node, name)["requests"] for name in ("grows", "stays")}
        assert held["grows"] == held["stays"] == {"cpu": "300m", "memory": "150Mi"}
        (tmp_path / "flag-grows/go").touch()
        wait_for(lambda: [one for one in apply.events() if one["event"] == "rolled-back"], "it is rolled back", 60)
        wait_for(lambda: in_force(node, "grows")["limits"] == SMALL, "it has its memory back", 60)
        assert in_force(node, "stays")["limits"]["memory"] == "150Mi"
    finally:
        daemon.terminate()
        said = daemon.communicate(timeout=60)[1]
    assert daemon.returncode == 0, said
    wait_for(lambda: in_force(node, "stays")["limits"] == SMALL, "the other one is as before", 60)
    (back,) = [one for one in apply.events() if one["event"] == "rolled-back"]
    assert back["pod"] == "default/grows" and back["why"] == "app was OOM-killed"
    (restored,) = [one for one in apply.events() if one["event"] == "restored"]
    assert restored["pod"] == "default/stays" and "rolled-back to app" in said
