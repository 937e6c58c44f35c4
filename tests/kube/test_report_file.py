"""A Pod of a namespace that enforces Pod Security reports its progress: no hostPath, no socket, no hostPID.

A real API server decides what the namespace allows and adds the volume; a real kubelet mounts it; a shell in the
container writes the report, and a real agent reads it where the kubelet has the volume.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.support.control_plane import Plane
from lab.support.kube_admin import AdminError
from lab.support.waiting import wait_for
from tests.conftest import TREE, AgentProcess
from tests.kube import kubelet as real

DEPLOY = TREE / "deploy/progress"
SCRIPT = """\
i=1
while [ $i -le 10 ]; do
  echo "{\\"done\\": $i, \\"total\\": 10}" > $CARICO_PROGRESS_FILE
  i=$((i+1)); /bin/busybox sleep 1
done
/bin/busybox sleep 10000
"""
CONFIG = """\
[node]
state = "{folder}/state"
[containerd]
socket = "{socket}"
namespaces = ["k8s.io"]
[progress]
kubelet_pods = "{pods}"
[budget]
cpu_ratio = 1.0
pressure_ratio = 1.0
"""


@pytest.fixture(params=["baseline", "restricted"])
def namespace(request: pytest.FixtureRequest, cluster: Plane) -> Iterator[str]:
    """A namespace that enforces this level."""
    if cluster.version < (1, 36):
        pytest.skip("MutatingAdmissionPolicy is v1 from Kubernetes 1.36 on")
    level = request.param
    labels = {"pod-security.kubernetes.io/enforce": level}
    if not any(one["metadata"]["name"] == f"train-{level}" for one in cluster.admin.get("/api/v1/namespaces")["items"]):
        cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": f"train-{level}", "labels": labels}})
    assert not cluster.apply(DEPLOY / "report-file.yaml")
    yield f"train-{level}"
    for pod in cluster.admin.get(f"/api/v1/namespaces/train-{level}/pods")["items"]:
        cluster.admin.delete(f"/api/v1/namespaces/train-{level}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
    for what in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        cluster.admin.delete(f"/apis/admissionregistration.k8s.io/v1/{what}/carico-progress")


def job(node: str = "", **labels: str) -> dict[str, Any]:
    """As strict as "restricted" wants it, and not a word about volumes."""
    pod = real.pod("train", 0, node)
    container, spec = pod["spec"]["containers"][0], pod["spec"]
    pod["metadata"]["labels"] = labels
    container["command"] = ["/bin/busybox", "sh", "-c", SCRIPT]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    del spec["hostNetwork"], container["resources"]
    spec["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return pod


def create(cluster: Plane, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Once the API server has taken in the policy, which it does within seconds."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        made: dict[str, Any] = cluster.admin.post(f"{path}?dryRun=All", pod)
        if made["spec"].get("volumes"):
            break
        time.sleep(0.2)
    created: dict[str, Any] = cluster.admin.post(path, pod)
    return created


def test_a_label_brings_the_volume_and_the_namespace_allows_it(cluster: Plane, namespace: str) -> None:
    with pytest.raises(AdminError, match="hostPath"):  # what every training Pod needed before
        old = job()
        old["spec"]["volumes"] = [{"name": "p", "hostPath": {"path": "/run/carico/progress"}}]
        cluster.admin.post(f"/api/v1/namespaces/{namespace}/pods", old)
    spec = create(cluster, namespace, job(**{"carico.dev/progress": "yes"}))["spec"]
    assert [one["name"] for one in spec["volumes"]] == ["carico-progress"]
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Ki"}
    (container,) = spec["containers"]
    assert container["env"] == [{"name": "CARICO_PROGRESS_FILE", "value": "/run/carico-progress/report.json"}]
    assert container["volumeMounts"][0]["mountPath"] == "/run/carico-progress"
    other = job()
    other["metadata"]["name"] = "unlabelled"
    made = cluster.admin.post(f"/api/v1/namespaces/{namespace}/pods", other)
    assert "volumes" not in made["spec"]


@pytest.mark.parametrize("namespace", ["baseline"], indirect=True)
def test_its_report_arrives_from_a_real_kubelet(cluster: Plane, namespace: str, tmp_path: Path) -> None:
    if why := real.missing():
        pytest.skip(f"no kubelet: {why}")
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:  # short: containerd's socket lies in it
        kubelet = real.Kubelet(cluster, Path(folder), "real")
        config = tmp_path / "config.toml"
        config.write_text(CONFIG.format(folder=tmp_path, socket=kubelet.containerd.socket, pods=kubelet.pods_folder))
        agent = AgentProcess(tmp_path, "--config", str(config), "--node", "real", "--quiet")
        try:
            client = agent.wait()
            create(cluster, namespace, job("real", **{"carico.dev/progress": "yes"}))

            def seen() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = client.request("GET", "/v1/progress")["jobs"]
                return found

            def status() -> Any:
                return cluster.admin.get(f"/api/v1/namespaces/{namespace}/pods/train")["status"]

            wait_for(lambda: bool(seen()), f"a report of the Pod has arrived: {status()}", 60)
            wait_for(lambda: seen()[0]["ratio"] == 1.0, "it has reported its end", 60)
            (found,) = seen()
            assert (found["namespace"], found["name"], found["runs"]) == (namespace, "train", 1)
        finally:
            agent.stop()
            kubelet.stop()
