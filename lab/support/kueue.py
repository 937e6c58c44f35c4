"""A real Kueue beside a control plane of the tests: its definitions from its Go module, its manager as a process.

Its admission webhooks are not installed: they would make Jobs suspended and fill in `managedBy`. A Job for it is
created as those webhooks would leave it (`queued`). Its conversion webhook is not installed either: all use v1beta2.

WorkloadRequestUseMergePatch is on. Without it Kueue 0.16 writes by server-side apply, which does not clear a
nomination that another field manager wrote, and the API server then refuses `clusterName` beside it.
"""

import json
import os
import subprocess
from pathlib import Path

from carico_agent.lib.kube.client import Object
from lab.support.burst_planes import BurstPlane
from lab.support.kube_admin import AdminError
from lab.support.kube_versions import part
from lab.support.module_files import module_folder
from lab.support.waiting import free_port, wait_for

API = "kueue.x-k8s.io/v1beta2"
QUEUE = "team"


def missing() -> str:
    """Why there is no Kueue here; empty when there is one."""
    program = part("kueue").bin / "kueue"
    return "" if os.access(program, os.X_OK) else f"no {program}: python -m lab.support.kube_build kueue"


class Kueue:
    """One manager. `dispatcher`: which controller nominates clusters, for the manager of MultiKueue.

    It reads certificates from a fixed path below /etc, so it has an /etc of its own, in a mount namespace.
    """

    def __init__(self, plane: BurstPlane, folder: Path, dispatcher: str = "") -> None:
        folder.mkdir()
        self.log, self._plane = folder / "kueue.log", plane
        plane.apply(*sorted((module_folder("kueue") / "config/components/crd/bases").glob("*.yaml")))
        wait_for(self._served, "Kueue's definitions are served")
        certificates = folder / "etc/kueue/metrics/certs"
        certificates.mkdir(parents=True)
        _certificate(certificates)
        config = folder / "config.json"
        config.write_text(json.dumps(configuration(certificates, dispatcher)))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation", "private", "sh", "-ec"),
                    f'mount --bind {folder}/etc /etc; exec "$@"',
                    "sh",
                    str(part("kueue").bin / "kueue"),
                    f"--config={config}",
                    f"--kubeconfig={plane.kubeconfig('admin-token')}",
                    "--feature-gates=VisibilityOnDemand=false,WorkloadRequestUseMergePatch=true",
                ],
                stdout=log,
                stderr=log,
            )

    def _served(self) -> bool:
        try:
            found = {one["name"] for one in self._plane.admin.get(f"/apis/{API}")["resources"]}
            return found >= {"workloads", "localqueues", "multikueueclusters"} and "items" in self._plane.admin.get(
                f"/apis/{API}/workloads"
            )
        except AdminError:
            return False

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _certificate(folder: Path) -> None:
    names = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"), "-subj", "/CN=kueue"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names]
    subprocess.run([*command, "-days", "2"], check=True, capture_output=True)


def configuration(certificates: Path, dispatcher: str) -> Object:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": free_port(), "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "resources": {"excludeResourcePrefixes": ["carico.dev"]},  # nodes count it, quotas do not: docs/kubernetes.md
        "multiKueue": {"gcInterval": "5s", **({"dispatcherName": dispatcher} if dispatcher else {})},
    }


def queue(checks: list[str], name: str = QUEUE, node_labels: dict[str, str] | None = None) -> list[Object]:
    """A flavor of nodes with these labels, a ClusterQueue with quota for everything, and a LocalQueue in `default`."""
    quotas = [{"name": one, "nominalQuota": "1000" if one == "cpu" else "1000Gi"} for one in ("cpu", "memory")]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quotas}]}
    strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": one} for one in checks]}} if checks else {}
    return [
        {
            "apiVersion": API,
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {"nodeLabels": node_labels or {}},
        },
        {
            "apiVersion": API,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group], **strategy},
        },
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


def worker(name: str, kubeconfig: Path) -> list[Object]:
    """MultiKueue with one worker cluster."""
    source = {"kubeConfig": {"location": str(kubeconfig), "locationType": "Path"}}
    config = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}
    return [
        {
            "apiVersion": API,
            "kind": "MultiKueueCluster",
            "metadata": {"name": name},
            "spec": {"clusterSource": source},
        },
        {"apiVersion": API, "kind": "MultiKueueConfig", "metadata": {"name": "workers"}, "spec": {"clusters": [name]}},
        {
            "apiVersion": API,
            "kind": "AdmissionCheck",
            "metadata": {"name": "elsewhere"},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": config},
        },
    ]


def queued(job: Object) -> Object:
    """A Job as Kueue's webhooks leave it."""
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    job["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    return job
