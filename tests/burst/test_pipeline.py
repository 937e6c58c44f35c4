"""The document's pipeline over two clusters, with a real kubelet in each: ARPU is trained at home, Saved (from ARPU's
inference) and Fraud in the cloud, and an inference reads all three there. Each waits for the one before it.

The containers, the steps that fetch and publish, and scikit-learn really run. The registry is a folder that both nodes
mount, since the Pods of this kubelet have no network; tests/burst/test_data_steps.py runs the same program against S3.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.burst.registry import open_registry
from carico_agent.burst.steps import jobs_path
from lab.support.burst_planes import BurstPlane, ended
from lab.support.burst_process import BurstProcess
from lab.support.waiting import wait_for
from tests.burst.python_image import PYTHON, make_python_image
from tests.conftest import TREE
from tests.kube import kubelet as real

Planes = tuple[BurstPlane, BurstPlane]
SITE = next(Path(path) for path in sys.path if path.endswith("site-packages"))
NODE = "localhost"
"""Of both: under this name the API server finds the kubelet, for logs."""
CHAIN = ["arpu", "saved", "fraud", "infer"]


@pytest.fixture
def kubelets(planes: Planes) -> Iterator[tuple[real.Kubelet, real.Kubelet]]:
    if why := real.missing():
        pytest.skip(f"no kubelet: {why}")
    pytest.importorskip("sklearn")
    with tempfile.TemporaryDirectory(prefix="ca-h-") as one, tempfile.TemporaryDirectory(prefix="ca-c-") as two:
        made: list[real.Kubelet] = []
        try:
            for plane, folder in zip(planes, (one, two), strict=True):
                kubelet = real.Kubelet(plane, Path(folder), NODE)
                made.append(kubelet)
                image = Path(folder, "python.tar")
                make_python_image(image)
                kubelet.containerd.ctr("images", "import", str(image), namespace="k8s.io")
                image.unlink()
            yield made[0], made[1]
        finally:
            for kubelet in made:
                kubelet.stop()


def body(name: str, reads: list[str], makes: list[str], after: str, pool: str) -> dict[str, Any]:
    """As a user writes it."""
    annotations = {
        **({"carico.dev/data": "; ".join(f"model={one}@latest" for one in reads)} if reads else {}),
        **({"carico.dev/produces": "; ".join(f"model={one}" for one in makes)} if makes else {}),
        **({"carico.dev/after": after} if after else {}),
    }
    container = {
        "name": "work",
        "image": PYTHON,
        "command": ["python3", "/job/pipeline_job.py", name],
        "env": [{"name": "PYTHONPATH", "value": "/site"}, {"name": "OPENBLAS_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [
            {"name": "site", "mountPath": "/site", "readOnly": True},
            {"name": "job", "mountPath": "/job", "readOnly": True},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"carico.dev/burst": "yes"},
            "annotations": annotations,
        },
        "spec": {
            "backoffLimit": 1,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "nodeSelector": {"pool": pool},
                    "containers": [container],
                    "volumes": [
                        {"name": "site", "hostPath": {"path": str(SITE)}},
                        {"name": "job", "hostPath": {"path": str(TREE / "tests/burst")}},
                    ],
                }
            },
        },
    }


def jobs() -> list[dict[str, Any]]:
    return [
        body("arpu", [], ["arpu"], "", "home"),
        body("saved", ["arpu"], ["saved"], "arpu", "cloud"),
        body("fraud", [], ["fraud"], "saved", "cloud"),
        body("infer", ["arpu", "saved", "fraud"], [], "fraud", "cloud"),
    ]


@pytest.mark.long
async def test_the_documents_pipeline_over_two_clusters(
    planes: Planes, kubelets: tuple[real.Kubelet, real.Kubelet], tmp_path: Path
) -> None:
    home, cloud = planes
    for plane, name in ((home, "home"), (cloud, "cloud")):
        plane.admin.merge(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"pool": name}}})
    with tempfile.TemporaryDirectory(prefix="ca-reg-") as folder:
        store, cache = Path(folder, "models"), Path(folder, "cache")
        store.mkdir()
        registry = f'{{ url = "file://{store}", image = "{PYTHON}", node_cache = "{cache}" }}'
        target = {"host_paths": [str(SITE), str(TREE / "tests/burst"), folder]}
        service = BurstProcess(tmp_path, home, cloud, target, unschedulable_s=1.0, namespaces=["default"])
        service.config.write_text(
            service.config.read_text().replace("[burst]\n", f"[burst]\nregistry = {registry}\n", 1)
        )
        (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all(jobs()))
        made = service.command("inject", str(tmp_path / "jobs.yaml"))
        assert made.returncode == 0, made.stderr
        try:
            service.start()
            for one in yaml.safe_load_all(made.stdout):
                home.admin.post(jobs_path("default"), one)
            await asyncio.to_thread(wait_for, lambda: _ended(home), "the pipeline has ended", 300, 0.5)
            judge(home, cloud, store, service)
        finally:
            service.kill()
            print(service.log.read_text()[-3000:])
            for plane in planes:
                print([(pod["metadata"]["name"], pod["status"]) for pod in plane.admin.get("/api/v1/pods")["items"]])


def _ended(home: BurstPlane) -> bool:
    found = home.admin.get(jobs_path("default"))["items"]
    states = {one["metadata"]["name"]: ended(one) for one in found}
    assert "Failed" not in states.values(), states
    return all(states.values()) and not any(one["metadata"].get("finalizers") for one in found)


def judge(home: BurstPlane, cloud: BurstPlane, store: Path, service: BurstProcess) -> None:
    found = {one["metadata"]["name"]: one for one in home.admin.get(jobs_path("default"))["items"]}
    ends = [found[name]["status"]["completionTime"] for name in CHAIN]
    assert ends == sorted(ends)
    moved = {name for name in CHAIN if "burst-ledger" in str(found[name]["metadata"].get("annotations"))}
    assert moved == {"saved", "fraud", "infer"}
    registry = open_registry(f"file://{store}", "default")
    assert {name: len(registry.versions(name)) for name in CHAIN[:3]} == dict.fromkeys(CHAIN[:3], 1)
    logs = service.command("logs", "infer", "--kubeconfig", str(home.kubeconfig("admin-token"))).stdout
    assert "arpu error 0.0" in logs, logs
    assert "saved right 0.9" in logs
    assert "fraud right 0.9" in logs
    arpu = registry.find("arpu")
    assert f"arpu@{arpu.version}: {arpu.size_bytes} bytes from this node's cache" in logs
    saved = service.command("logs", "saved", "--kubeconfig", str(home.kubeconfig("admin-token"))).stdout
    assert f"arpu from {arpu.url}" in saved
    assert f"bytes from {arpu.url}" in saved
    assert not cloud.admin.get(jobs_path("default"))["items"]
