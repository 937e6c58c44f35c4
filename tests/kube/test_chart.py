"""The Helm chart and `kubectl apply -k deploy` make the same objects, on a real API server."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent import __version__
from lab.release.chart import CHART
from lab.support.control_plane import documents, running
from lab.support.kube_build import built
from tests.conftest import TREE

pytestmark = pytest.mark.kube
DEPLOY = TREE / "deploy"
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def helm() -> Path:
    return built("helm") / "helm"


def run(program: Path, *words: str, namespace: str = "carico") -> str:
    command = [program, *words, "--namespace", namespace]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def by_name(found: list[dict[str, Any]]) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in found if one["kind"] != "Namespace"}


def plain() -> Objects:
    names = yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"]
    return by_name([one for name in names for one in documents(DEPLOY / "base" / name)])


def rendered(helm: Path, *values: str) -> Objects:
    text = run(helm, "template", "carico", str(CHART), *values)
    return by_name([one for one in yaml.safe_load_all(text) if one])


def test_helm_finds_nothing_wrong_with_it(helm: Path) -> None:
    assert "0 chart(s) failed" in run(helm, "lint", "--strict", str(CHART))


def test_with_its_defaults_it_is_what_kustomize_makes(helm: Path) -> None:
    assert rendered(helm) == plain()


def test_its_values_do_what_they_say(helm: Path) -> None:
    alone = rendered(helm, "--set", "extender.enabled=false")
    assert not [name for _, name in alone if "extender" in name]
    assert ("DaemonSet", "carico-agent") in alone
    chosen = ["image.repository=example/carico", "image.digest=sha256:0", "extender.replicas=3"]
    other = rendered(helm, *(word for one in chosen for word in ("--set", one)))
    extender = other["Deployment", "carico-extender"]["spec"]
    assert extender["replicas"] == 3
    assert extender["template"]["spec"]["containers"][0]["image"] == "example/carico@sha256:0"
    none = rendered(helm, "--set", "admissionPolicies.enabled=false,networkPolicies.enabled=false")
    assert plain().keys() - none.keys() == {key for key in plain() if "Policy" in key[0]}


def test_another_namespace_is_refused(helm: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run(helm, "template", "carico", str(CHART), namespace="other")
    assert "its Leases are in the namespace carico" in refused.value.stderr


def test_it_is_installed_and_removed(helm: Path, tmp_path: Path) -> None:
    """On a server of its own: the others' has the objects of deploy/base already, which Helm would not take over."""
    for plane in running(tmp_path):
        kubeconfig = ("--kubeconfig", str(plane.kubeconfig("admin-token")))
        run(helm, "install", "carico", str(CHART), "--create-namespace", *kubeconfig)
        assert json.loads(run(helm, "status", "carico", "-o", "json", *kubeconfig))["info"]["status"] == "deployed"
        sets = "/apis/apps/v1/namespaces/carico/daemonsets"
        (agents,) = plane.admin.request("GET", sets)["items"]
        assert agents["spec"]["template"]["spec"]["containers"][0]["image"] == f"carico:{__version__}"
        run(helm, "uninstall", "carico", *kubeconfig)
        assert plane.admin.request("GET", sets)["items"] == []
