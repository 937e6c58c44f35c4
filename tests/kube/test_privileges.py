"""No account gets more than it needs, no Pod more than its level: by the manifests, and by a real API server."""

from typing import Any

import pytest

from lab.support.control_plane import Plane
from lab.support.kube_admin import AdminError
from lab.support.privileges import PAGE, needed, objects, renewed, rights

ALL = objects()
OURS = [one for one in ALL if one["metadata"].get("namespace", "").startswith("carico")]
WORKLOADS = [one for one in OURS if one["kind"] in ("Deployment", "DaemonSet") and "selector" in one["spec"]]
RESTRICTED = [one for one in WORKLOADS if one["metadata"]["name"] != "carico-agent"]


def test_no_account_has_a_right_without_a_reason() -> None:
    has = rights(ALL)
    assert sorted(has - needed()) == [], "rights that nobody has written a reason for (lab/support/privileges.py)"
    assert sorted(needed() - has) == [], "reasons for rights that the manifests do not give"


def test_the_test_sees_a_right_too_many() -> None:
    more = {
        "kind": "ClusterRole",
        "metadata": {"name": "x"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "x"},
        "roleRef": {"kind": "ClusterRole", "name": "x"},
        "subjects": [{"kind": "ServiceAccount", "name": "carico-agent", "namespace": "carico"}],
    }
    assert len(rights([*ALL, more, binding]) - needed()) == 1


def test_no_right_is_a_wildcard_or_rules_others() -> None:
    for right in rights(ALL):
        assert "*" not in right.what + right.verb, right
        assert right.verb not in ("escalate", "bind", "impersonate"), right
        assert not right.what.startswith(("pods/exec", "pods/ephemeralcontainers", "nodes/proxy")), right
        if right.where == "cluster":
            assert not right.what.startswith(("secrets", "configmaps", "jobs")), right


def test_the_page_has_the_table_of_today() -> None:
    text = PAGE.read_text()
    assert text == renewed(text), "python -m lab.support.privileges renews it"


def test_every_workload_has_a_network_policy() -> None:
    policies = [one for one in ALL if one["kind"] == "NetworkPolicy"]
    covered = {(one["metadata"]["namespace"], one["spec"]["podSelector"]["matchLabels"]["app"]) for one in policies}
    wanted = {(one["metadata"]["namespace"], one["spec"]["template"]["metadata"]["labels"]["app"]) for one in WORKLOADS}
    assert covered == wanted
    assert all("Ingress" in one["spec"]["policyTypes"] for one in policies)


def test_no_namespace_is_given_two_levels() -> None:
    """Issue 37, 19: burst's manifest took the label of the base's namespace away."""
    levels: dict[str, set[str]] = {}
    for one in ALL:
        if one["kind"] == "Namespace":
            level = (one["metadata"].get("labels") or {}).get("pod-security.kubernetes.io/enforce", "none")
            levels.setdefault(one["metadata"]["name"], set()).add(level)
    assert levels == {"carico": {"privileged"}, "carico-burst": {"restricted"}}


@pytest.mark.parametrize("workload", RESTRICTED, ids=lambda one: one["metadata"]["name"])
def test_all_but_the_agent_are_admitted_at_the_level_restricted(cluster: Plane, workload: Any) -> None:
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": level}}
    try:
        cluster.admin.post("/api/v1/namespaces", space)
    except AdminError as error:
        assert error.status == 409
    spec = {**workload["spec"]["template"]["spec"], "serviceAccountName": "default"}
    spec.pop("priorityClassName", None)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": spec}
    path = "/api/v1/namespaces/strict/pods?dryRun=All"
    cluster.admin.post(path, pod)
    spec["containers"][0]["securityContext"] = {}
    with pytest.raises(AdminError, match="violates PodSecurity"):
        cluster.admin.post(path, pod)
