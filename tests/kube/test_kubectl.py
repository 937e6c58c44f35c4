"""`kubectl carico` on a real control plane, run by kubectl where there is one: a real agent, extender and scheduler."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from tests.conftest import AgentProcess
from tests.kube.test_burst import extended
from tests.kube.test_node import TRACE, published

REPLAYED = ("--replay", TRACE, "--speed", "0.5")
"""The same numbers whatever else this machine does, and one often enough: they are valid for five seconds."""

SCRIPTS = Path(sys.executable).parent
COMMAND = ["kubectl", "carico"] if shutil.which("kubectl") else [str(SCRIPTS / "kubectl-carico")]


def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    return subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=120)


def asked(kubeconfig: Path, *arguments: str) -> Any:
    result = run(kubeconfig, *arguments, "-o", "json")
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def busy(
    cluster: Plane, start_agents: Callable[..., AgentProcess], start_extender: Callable[..., ExtenderProcess]
) -> ExtenderProcess:
    """n1 has an agent and a Pod, n2 has no agent and a Pod that waits for it and nothing else."""
    for name in ("n1", "n2"):
        cluster.admin.add_node(name)
    start_agents("n1", "--kubeconfig", str(cluster.kubeconfig("agent-token")), *REPLAYED)
    published(cluster, "n1")
    extender = start_extender()
    cluster.start_scheduler(extended(extender))
    cluster.admin.add_pod("runs", 0, nodeSelector={"kubernetes.io/hostname": "n1"})
    cluster.admin.add_pod("waits", 0, nodeSelector={"kubernetes.io/hostname": "n2"})
    wait_for(lambda: cluster.admin.bound() == {"n1": 1}, "one Pod is bound")
    wait_for(lambda: "FailedScheduling" in json.dumps(cluster.admin.get(EVENTS)), "the other one waits")
    return extender


EVENTS = "/api/v1/namespaces/default/events"


def test_nodes_fit_and_why(cluster: Plane, busy: ExtenderProcess) -> None:
    admin = cluster.kubeconfig("admin-token")
    n1, n2 = asked(admin)["nodes"]
    assert (n1["node"], n1["pods"], n2["state"], n2["pod_capacity"]) == ("n1", 1, "unpublished", None)
    assert n1["state"] in ("learning", "measured", "predicted") and n1["pod_capacity"] >= 0 and n1["age"] < 150
    assert [row["pod"] for row in asked(admin, "--pods", "-n", "default")["pods"]] == ["runs", "waits"]
    assert {row["node"]: row["basis"] for row in asked(admin, "fit", "shop/web")["nodes"]}["n2"] == "unpublished"
    by_extender = asked(admin, "why", "waits", "--extender", busy.url)
    unpublished = {"reason": "unknown: this node has published no capacity", "count": 1, "nodes": ["n2"]}
    assert by_extender["source"] == "the extender (policy pod-capacity)" and unpublished in by_extender["refuse"]
    assert "published no capacity" in by_extender["event"]
    computed = asked(admin, "why", "waits")  # there is no Service of the extender here
    assert computed["source"].startswith("annotations and Leases") and unpublished in computed["refuse"]
    assert run(admin, "why", "runs").stdout == "default/runs: pending on n1\n"


def test_a_user_of_one_namespace(cluster: Plane, busy: ExtenderProcess) -> None:
    """Who may read Pods and events there and nothing else, with credentials from an exec plugin."""
    group = "rbac.authorization.k8s.io"
    path, meta = f"/apis/{group}/v1/namespaces/default", {"name": "viewer", "namespace": "default"}
    rules = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]}]
    subject = {"kind": "User", "name": "nobody", "apiGroup": group}
    role = {"kind": "Role", "name": "viewer", "apiGroup": group}
    cluster.admin.post(f"{path}/roles", {"kind": "Role", "metadata": meta, "rules": rules})
    bound = {"kind": "RoleBinding", "metadata": meta, "subjects": [subject], "roleRef": role}
    cluster.admin.post(f"{path}/rolebindings", bound)
    try:
        answer = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
        token = json.dumps({**answer, "status": {"token": "nobody-token"}})
        plugin: Any = {"apiVersion": answer["apiVersion"], "command": "echo", "args": [token]}
        own = cluster.kubeconfig(exec=plugin)
        wait_for(lambda: run(own).returncode == 0, "the rights are known", 30)
        result = run(own, "-o", "json")
        assert [row["pod"] for row in json.loads(result.stdout)["pods"]] == ["runs", "waits"]
        assert 'nodes are not shown: missing right: "list" on "nodes"' in result.stderr
        why = run(own, "why", "waits")
        assert why.returncode == 1 and "published no capacity" in why.stdout
        assert run(own, "fit", "shop/web").returncode == 1
        assert run(own, "-n", "kube-system").returncode == 1
    finally:
        for workload in ("rolebindings", "roles"):
            cluster.admin.delete(f"{path}/{workload}/viewer")
