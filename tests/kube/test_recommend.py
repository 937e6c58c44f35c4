"""Every command that `carico recommend` prints is accepted by a real API server, and leaves the QoS class as it was."""

import json
import subprocess
from typing import Any

import pytest

from carico_agent.lib.kube.declared import declared
from carico_agent.recommend.advice import Recommendation, advise
from carico_agent.recommend.commands._output import patch, resize
from carico_agent.recommend.history import ContainerHistory, MinuteSample
from carico_agent.recommend.workload import OwnerObject, Resources
from lab.support.control_plane import Plane, binaries

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
