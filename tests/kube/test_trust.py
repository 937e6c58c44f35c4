"""Attacks with the tokens of carico's own accounts, on a real API server: played as they were found, and refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.extender.leader_label import LABEL
from lab.support.control_plane import Plane
from lab.support.kube_admin import Admin, AdminError
from lab.support.waiting import wait_for
from tests.conftest import TREE, AgentProcess
from tests.kube.test_node import STEADY

DEPLOY = TREE / "deploy"
PODS = "/api/v1/namespaces/carico/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/carico/leases"
YEARS_S = 2**31 - 1


def refusal(work: Callable[[], Any]) -> str:
    """What the server says to it; empty if it does it."""
    try:
        work()
    except AdminError as error:
        assert error.status in (403, 422), error
        return str(error)
    return ""


@pytest.fixture
def guarded(cluster: Plane) -> Iterator[Plane]:
    """The plane with two nodes, one of them without labels, and the policies of the base in force."""
    cluster.admin.add_node("n1")
    cluster.admin.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}})
    assert cluster.apply(DEPLOY / "base/15-own-node.yaml") == {}
    agent = Admin(cluster.server, cluster.ca, cluster.admin.agent_token("n1"))
    other = {"metadata": {"annotations": {"carico.dev/slots": "1"}}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "bare"}}
    probes = [
        lambda: agent.merge("/api/v1/nodes/bare/status?dryRun=All", other),
        lambda: agent.post(f"{LEASES}?dryRun=All", lease),
    ]
    for probe in probes:
        wait_for(lambda probe=probe: refusal(probe), "the policies are in force")  # type: ignore[misc]
    yield cluster
    cluster.admin.request("DELETE", f"{PODS}?gracePeriodSeconds=0")


def pod_token(cluster: Plane, account: str, pod: str) -> str:
    """As the kubelet mounts it: bound to the Pod."""
    uid = cluster.admin.get(f"{PODS}/{pod}")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600, "boundObjectRef": bound},
    }
    path = f"/api/v1/namespaces/carico/serviceaccounts/{account}/token"
    return str(cluster.admin.post(path, request)["status"]["token"])


def add_pod(cluster: Plane, name: str, account: str) -> None:
    spec = {
        "containers": [{"name": "c", "image": "carico:0.1.0"}],
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": name, "labels": {"app": account}}
    cluster.admin.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


@pytest.fixture
def extender(guarded: Plane) -> Admin:
    """A stolen token of the extender."""
    add_pod(guarded, "carico-agent-x", "carico-agent")
    add_pod(guarded, "carico-extender-0", "carico-extender")
    stolen = Admin(guarded.server, guarded.ca, pod_token(guarded, "carico-extender", "carico-extender-0"))
    probe = f"{PODS}/carico-agent-x?dryRun=All"
    wait_for(lambda: refusal(lambda: stolen.merge(probe, {"metadata": {"labels": {"x": "y"}}})), "carico-own-pod holds")
    return stolen


IMAGE = {"spec": {"containers": [{"name": "c", "image": "evil"}]}}
ATTACKS_ON_PODS: list[tuple[str, str, Any]] = [
    ("an agent's image", "carico-agent-x", IMAGE),
    ("an agent's labels", "carico-agent-x", {"metadata": {"labels": {LABEL: "yes"}}}),
    ("its own image", "carico-extender-0", IMAGE),
    ("its own selector", "carico-extender-0", {"metadata": {"labels": {"app": "carico-agent"}}}),
    ("its own selector, taken away", "carico-extender-0", {"metadata": {"labels": {"app": None}}}),
    ("its own annotations", "carico-extender-0", {"metadata": {"annotations": {"x": "y"}}}),
    ("its own finalizers", "carico-extender-0", {"metadata": {"finalizers": ["x.example/y"]}}),
]


def test_an_extender_writes_one_label_of_its_own_pod(extender: Admin, guarded: Plane) -> None:
    """Issue 37, 2: with the right to patch Pods it made an agent's Pod run its own image, as root on every node."""
    strategic = "application/strategic-merge-patch+json"
    for what, pod, patch in ATTACKS_ON_PODS:
        why = refusal(lambda pod=pod, patch=patch: extender.request("PATCH", f"{PODS}/{pod}", patch, strategic))
        assert "an extender of carico" in why, what
    assert guarded.admin.get(f"{PODS}/carico-agent-x")["spec"]["containers"][0]["image"] == "carico:0.1.0"
    for value in ("yes", None):  # as LeaderLabel writes it
        extender.merge(f"{PODS}/carico-extender-0", {"metadata": {"labels": {LABEL: value}}})


CLOSED = {"pods": "0"}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
ATTACKS_ON_A_NODE: list[tuple[str, Any]] = [
    ("addresses", {"status": {"addresses": [{"type": "InternalIP", "address": "6.6.6.6"}]}}),
    ("conditions", {"status": {"conditions": []}}),
    ("Pods of the kubelet", {"status": {"capacity": CLOSED, "allocatable": CLOSED}}),
    ("a resource of others", {"status": {"allocatable": {"example.com/gpu": "8"}}}),
    ("daemon endpoints", {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
    ("images", {"status": {"images": [{"names": ["evil"], "sizeBytes": 1}]}}),
    ("labels", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    ("annotations of others", {"metadata": {"annotations": {"example.com/x": "y"}}}),
    ("finalizers", {"metadata": {"finalizers": ["x.example/y"]}}),
    ("owners", {"metadata": {"ownerReferences": [OWNER]}}),
]
OURS = {
    "metadata": {"annotations": {"carico.dev/slots": "3"}},
    "status": {"capacity": {"carico.dev/pods": "3"}, "allocatable": {"carico.dev/pods": "3"}},
}


@pytest.mark.parametrize("node", ["n1", "bare"])
def test_an_agent_writes_what_is_caricos_on_its_own_node(guarded: Plane, node: str) -> None:
    """Issue 37, 5 and 38, 9; a node without labels is a node, too."""
    agent = Admin(guarded.server, guarded.ca, guarded.admin.agent_token(node))
    for what, patch in ATTACKS_ON_A_NODE:
        if what == "conditions" and node == "bare":
            continue  # it has none to take away
        why = refusal(lambda patch=patch: agent.merge(f"/api/v1/nodes/{node}/status", patch))
        assert "carico changes" in why, what
    agent.merge(f"/api/v1/nodes/{node}/status", OURS)
    other = "bare" if node == "n1" else "n1"
    assert "its own node only" in refusal(lambda: agent.merge(f"/api/v1/nodes/{other}/status", OURS))


def test_an_extender_takes_back_the_resource_of_a_node_and_nothing_else(extender: Admin, guarded: Plane) -> None:
    for what, patch in ATTACKS_ON_A_NODE:
        why = refusal(lambda patch=patch: extender.merge("/api/v1/nodes/n1/status", patch))
        assert "carico changes" in why, what
    extender.merge("/api/v1/nodes/n1/status", OURS)


def test_an_agent_writes_no_lease_but_its_own_and_for_no_years(guarded: Plane) -> None:
    """The leader's Lease with a duration of 68 years closed every extender."""
    agent = Admin(guarded.server, guarded.ca, guarded.admin.agent_token("n1"))

    def lease(name: str, duration_s: int, **notes: str) -> Any:
        spec = {"holderIdentity": "evil", "leaseDurationSeconds": duration_s}
        meta = {"name": name, "annotations": notes}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    assert "its own node's" in refusal(lambda: agent.post(LEASES, lease("carico-extender", 8)))
    assert "an hour at most" in refusal(lambda: agent.post(LEASES, lease("n1", YEARS_S)))
    assert "who was placed" in refusal(lambda: agent.post(LEASES, lease("n1", 8, **{"carico.dev/placed": "{}"})))
    agent.post(LEASES, lease("n1", 150))
    guarded.admin.post(LEASES, lease("carico-extender", 8))
    longer = {"spec": {"leaseDurationSeconds": YEARS_S}}
    assert "its own node's" in refusal(lambda: agent.merge(f"{LEASES}/carico-extender", longer))


@pytest.mark.parametrize("node", ["n1", "bare"])
def test_a_real_agent_publishes_under_the_policies(
    guarded: Plane, start_agents: Callable[..., AgentProcess], tmp_path: Path, node: str
) -> None:
    (tmp_path / "token").write_text(guarded.admin.agent_token(node))
    kubeconfig = guarded.kubeconfig(tokenFile=str(tmp_path / "token"))
    real = start_agents(node, "--kubeconfig", str(kubeconfig), *STEADY)
    real.wait(lambda client: client.status()["kubernetes"] == "published")


def test_the_plane_creates_its_own_priority_level_only(cluster: Plane) -> None:
    root = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    cluster.apply(DEPLOY / "plane/10-rbac.yaml", DEPLOY / "plane/15-own-level.yaml")
    plane = Admin(cluster.server, cluster.ca, "plane-token")

    def level(name: str) -> Any:
        limited = {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}
        return {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": limited},
        }

    def attack() -> str:
        why = refusal(lambda: plane.post(root, level("evil")))
        if not why:
            cluster.admin.delete(f"{root}/evil")
        return why

    wait_for(lambda: "carico-own-level" in attack(), "the policy is in force")
    plane.post(root, level("carico-reserve"))
    plane.delete(f"{root}/carico-reserve")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "carico-extender"}}
    assert "carico-own-level" in refusal(lambda: plane.post(LEASES, lease))
