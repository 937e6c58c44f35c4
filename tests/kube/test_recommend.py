"""Every command that `carico recommend` prints is accepted by a real API server, and leaves the QoS class as it was."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.lib.kube.declared import declared
from carico_agent.recommend.advice import Recommendation, advise
from carico_agent.recommend.commands._output import patch, resize
from carico_agent.recommend.history import ContainerHistory, MinuteSample
from carico_agent.recommend.workload import OwnerObject, Resources
from lab.support.control_plane import Plane, binaries
from tests.recommend.test_command import trace

MIB = 2**20
RESOURCES: dict[str, Any] = {
    "guaranteed": {"limits": {"cpu": "1", "memory": "300Mi"}},
    "throttled": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    "burstable": {"requests": {"cpu": "100m"}},
    "besteffort": {},
}
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/default/daemonsets",
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "Pod": "/api/v1/namespaces/default/pods",
}


def manifest(kind: str, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = {"containers": [{"name": "app", "image": "web", "resources": RESOURCES[name]}]}
    labels = {"app": f"{kind.lower()}-{name}"}
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": pod}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    if kind in ("Job", "CronJob"):
        pod["restartPolicy"] = "Never"
        spec = {"template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "app"
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    version = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    spec = pod if kind == "Pod" else spec
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def recommendation(kind: str, name: str, pod: Any) -> Recommendation:
    """Of a container that is throttled in 60 % of its periods, and by memory just below its limit."""
    history = ContainerHistory()
    for n in range(200):
        history.observe(MinuteSample(1.7e9 + 60 * n, 0.45 + 0.05 * (n % 2), (500.0 + n % 7) * MIB, 0, 600, 360))
    said = declared(pod)
    one = said.containers["app"]
    current = Resources(one.request_cores, one.request_bytes, one.limit_cores, one.limit_bytes, said.qos)
    return advise(OwnerObject("default", kind, name), "app", (pod["metadata"]["name"],), (history,), current)


def dry_run(plane: Plane, line: str) -> Any:
    command, body = line.split(" -p ")
    words = [*command.split()[1:], "-p", body.strip("'"), "--dry-run=server", "-o", "json"]
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(plane.kubeconfig("admin-token"))]
    done = subprocess.run([*kubectl, *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RESOURCES)
def test_every_command_is_accepted(cluster: Plane, name: str) -> None:
    pod = cluster.admin.post(PATHS["Pod"], manifest("Pod", name))
    qos = pod["status"]["qosClass"]
    alone = recommendation("Pod", name, pod)
    for output in (patch, resize):
        (line,) = output([alone]).splitlines()
        if qos == "BestEffort":
            assert line.startswith("# default/besteffort: its Pods are BestEffort")
        else:
            assert dry_run(cluster, line)["status"]["qosClass"] == qos
    for kind in PATHS.keys() - {"Pod"}:
        cluster.admin.post(PATHS[kind], manifest(kind, name))
        try:
            (line,) = patch([recommendation(kind, name, pod)]).splitlines()
            if kind == "Job":
                assert line.startswith(f"# default/{name}: a Job's template cannot be changed")
            else:
                made = dry_run(cluster, line)["spec"]
                template = (made["jobTemplate"]["spec"] if kind == "CronJob" else made)["template"]["spec"]
                resources = template["containers"][0]["resources"]
                assert (resources["requests"] == resources.get("limits")) == (qos == "Guaranteed")
        finally:
            cluster.admin.delete(f"{PATHS[kind]}/{name}")


def with_sidecar(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "initContainers": [{"name": "side", "image": "proxy", "restartPolicy": "Always"}]}


def live_pod(plane: Plane, deployment: str) -> str:
    """A Pod as a Deployment's ReplicaSet would make it; no controller runs here."""
    template = with_sidecar(manifest("Deployment", "throttled")["spec"]["template"]["spec"])
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{deployment}-7d4b9c6f5d", "uid": "u"}
    labels = {"pod-template-hash": "7d4b9c6f5d", "app": deployment}
    meta = {"name": POD, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    plane.admin.post(PATHS["Pod"], {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template})
    return POD


POD = "web-7d4b9c6f5d-x2xkz"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


def test_the_cluster_completes_a_trace(cluster: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace knows no limits of `app`; the API server does. Each rule of limits is accepted as each sort of patch."""
    deployment = manifest("Deployment", "throttled")
    deployment["metadata"]["name"] = "web"
    template = deployment["spec"]["template"]
    template["spec"] = with_sidecar(template["spec"])
    cluster.admin.post(PATHS["Deployment"], deployment)
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": scaled, "maxReplicas": 3, "metrics": metrics}
    cluster.admin.post(HPAS, {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec})
    try:
        live_pod(cluster, "web")
        kubeconfig = str(cluster.kubeconfig("admin-token"))
        given = ["recommend", "--trace", trace(tmp_path / "t", POD), "--kubeconfig", kubeconfig]

        def said(*more: str) -> str:
            assert main([*given, "web", "-n", "default", *more]) == 0, capsys.readouterr().err
            return capsys.readouterr().out

        # The trace says namespace shop, where the API server has no such Pod.
        assert main([*given, "-l", "app=web"]) == 1
        assert "belongs to a Pod with these labels" in capsys.readouterr().err
        given[2] = trace(tmp_path / "d", POD, namespace="default")
        (row,) = [one for one in json.loads(said("--json"))["recommendations"] if one["container"] == "app"]
        assert (row["kind"], row["qos"], row["cpu"]["current_limit_cores"]) == ("Deployment", "Burstable", 0.5)
        assert row["hpa"] == "HorizontalPodAutoscaler web scales by 80 % of the requested cpu" and row["replicas"] == 1
        assert said("-o", "patch").startswith("# default/web: HorizontalPodAutoscaler web scales by")
        for output in ("patch", "json-patch"):
            for rule in ("keep", "proportional", "none"):
                text = said("-o", output, "--allow-hpa", "-l", "app=web", "--cpu-limit", rule, "--memory-limit", rule)
                (line,) = [one for one in text.splitlines() if one.startswith("kubectl")]
                spec = dry_run(cluster, line)["spec"]["template"]["spec"]
                assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "13m", "memory": "125Mi"}
                made = spec["containers"][0]["resources"]
                assert set(made.get("limits", {})) == (set() if rule == "none" else {"cpu", "memory"})
                assert made["requests"]["cpu"] == row["cpu"]["recommended"]
    finally:
        cluster.admin.delete(f"{PATHS['Deployment']}/web")
        cluster.admin.delete(f"{HPAS}/web")
