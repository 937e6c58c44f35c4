"""Everything under deploy/ is applied to a real API server; what another version serves is refused, and looked at."""

import base64
import itertools
import os
import shutil
import ssl
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.node.pods.report_files import FILE, VOLUME
from carico_agent.settings import Settings, parse
from lab.support.control_plane import Plane, documents
from lab.support.extender_process import ExtenderProcess
from lab.support.kube_admin import Admin, AdminError
from lab.support.waiting import wait_for
from tests.conftest import TREE, AgentProcess
from tests.kube.schema import SCHEMAS, problems
from tests.kube.test_node import STEADY

DEPLOY = TREE / "deploy"
PARTS = [*sorted((DEPLOY / "base").glob("[0-9]*.yaml")), *sorted((DEPLOY / "federation").glob("[0-9]*.yaml"))]
PROGRESS = [DEPLOY / f"progress/{name}.yaml" for name in ("train-job", "train-jobs-rbac", "report-file")]
MANIFESTS = [*PARTS, *sorted((DEPLOY / "admission").glob("*.yaml")), *PROGRESS]


SERVED = {"add-place": ((1, 36), (2, 0)), "report-file": ((1, 36), (2, 0)), "add-place-v1beta1": ((1, 34), (1, 36))}
"""Manifests that not every supported version serves: from, and before."""


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_manifest_is_accepted(cluster: Plane, file: Path) -> None:
    since, before = SERVED.get(file.stem, ((1, 0), (2, 0)))
    refused = cluster.apply(file)
    assert bool(refused) != (since <= cluster.version < before), refused
    looked_at = documents(file) if refused else []
    assert [found for document in looked_at for found in problems(document)] == []


def test_policies_and_configurations_have_only_fields_that_exist() -> None:
    """Also without a control plane, and in forms that the one under test does not serve: by tests/kube/schema.py."""
    looked_at = [one for one in documents(*MANIFESTS) if (one["apiVersion"], one["kind"]) in SCHEMAS]
    assert len(looked_at) == 12
    assert [found for document in looked_at for found in problems(document)] == []
    broken: Any = yaml.safe_load((DEPLOY / "scheduler/extender-v1.yaml").read_text())
    broken["extenders"][0] |= {"enableHttps": True, "httpTimeout": 5, "weight": 1.5}
    assert [line.partition(": ")[0] for line in problems(broken)] == [
        ".extenders[0].weight",
        ".extenders[0].httpTimeout",
        ".extenders[0].enableHttps",
    ]


def test_both_forms_of_add_place_say_the_same() -> None:
    new, old = (list(documents(DEPLOY / f"admission/{name}.yaml")) for name in ("add-place", "add-place-v1beta1"))
    assert {one.pop("apiVersion") for one in new} == {"admissionregistration.k8s.io/v1"}
    assert {one.pop("apiVersion") for one in old} == {"admissionregistration.k8s.io/v1beta1"}
    assert new == old


def test_policies_of_one_test_do_not_judge_the_next(cluster: Plane) -> None:
    root = "/apis/admissionregistration.k8s.io/v1"
    assert cluster.apply(DEPLOY / "base/15-own-node.yaml") == {}
    cluster.admin.clear()
    assert cluster.admin.get(f"{root}/validatingadmissionpolicies")["items"] == []


PLACE = "carico.dev/pods"
DAEMON_OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "0", "controller": True}


def test_pods_of_labelled_namespaces_get_a_place(cluster: Plane) -> None:
    """By the newest form of add-place.yaml that this server has."""
    forms = (DEPLOY / "admission/add-place.yaml", DEPLOY / "admission/add-place-v1beta1.yaml")
    refused = all(cluster.apply(form) for form in forms)
    assert refused == (cluster.version < (1, 34))
    if refused:
        pytest.skip("MutatingAdmissionPolicy is alpha before 1.34")
    pods, count = "/api/v1/namespaces/default/pods", itertools.count()

    def made(container: Any, init: list[Any] | None = None, **meta: Any) -> Any:
        """What the API server makes of the resources of a Pod's first container."""
        containers = {"containers": [{"name": "c", "image": "pause", **container}], "initContainers": init or []}
        spec = {**containers, "automountServiceAccountToken": False}
        metadata = {"name": f"p{next(count)}", **meta}
        pod = cluster.admin.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return pod["spec"]["containers"][0].get("resources") or {}

    one, cpu = {PLACE: "1"}, {"cpu": "100m"}
    labels = {"metadata": {"labels": {"carico.dev/places": "yes"}}}
    cluster.admin.merge("/api/v1/namespaces/default", labels)
    try:
        wait_for(lambda: made({}) == {"limits": one, "requests": one}, "the policy is in force")
        assert made({"resources": {"requests": cpu}}) == {"limits": one, "requests": cpu | one}
        assert made({"resources": {"limits": cpu}}) == {"limits": cpu | one, "requests": cpu | one}
        assert made({"resources": {"limits": {PLACE: "3"}}})["limits"] == {PLACE: "3"}
        assert made({}, ownerReferences=[DAEMON_OWNER]) == {}
        asks = {"name": "i", "image": "pause", "resources": {"limits": one}}
        for restarts in ({"restartPolicy": "Always"}, {}):  # a sidecar, or an init container, has the Pod's place
            assert made({}, init=[{**asks, **restarts}]) == {}
    finally:
        cluster.admin.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"carico.dev/places": None}}})


def test_an_agent_writes_its_own_node_only(
    cluster: Plane, start_agents: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    for name in ("n1", "n2"):
        cluster.admin.add_node(name)
    token = cluster.admin.agent_token("n1")
    agent = Admin(cluster.server, cluster.ca, token)
    assert cluster.apply(DEPLOY / "base/15-own-node.yaml") == {}
    patch = {"metadata": {"annotations": {"carico.dev/slots": "1"}}}

    def refused(node: str) -> bool:
        try:
            agent.merge(f"/api/v1/nodes/{node}/status", patch)
        except AdminError as error:
            return "may write its own node only" in str(error)
        return False

    wait_for(lambda: refused("n2"), "the policy is in force")
    assert not refused("n1")
    # A real one publishes under both policies: its Node, and its Lease.
    (tmp_path / "token").write_text(token)
    kubeconfig = cluster.kubeconfig(tokenFile=str(tmp_path / "token"))
    real = start_agents("n1", "--kubeconfig", str(kubeconfig), *STEADY)
    real.wait(lambda client: client.status()["kubernetes"] == "published")
    leases = cluster.admin.get("/apis/coordination.k8s.io/v1/namespaces/carico/leases")["items"]
    assert [(lease["metadata"]["name"], bool(lease["spec"].get("holderIdentity"))) for lease in leases] == [
        ("n1", True)
    ]


def test_kustomize_has_every_object() -> None:
    listed = yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"]
    assert listed == [file.name for file in sorted((DEPLOY / "base").glob("[0-9]*.yaml"))]
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here: the list of files was compared, kustomize not run")
    built = subprocess.run([kubectl, "kustomize", str(DEPLOY)], capture_output=True, text=True, check=True).stdout
    names = sorted((d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(built))
    files = [*(DEPLOY / "base" / name for name in listed), DEPLOY / "admission/add-place.yaml"]
    wanted = sorted((d["kind"], d["metadata"]["name"]) for d in documents(*files))
    assert names == wanted


OVERLAYS = ("-k deploy", "-k deploy/federation", "-k deploy/progress", "-k deploy/plane", "-k deploy/taints")


@pytest.mark.parametrize("what", OVERLAYS)
def test_kubectl_applies_it_dry_and_for_real(cluster: Plane, what: str) -> None:
    """The namespace is there (the plane's fixture made it): a dry run makes none, and what lives in one needs it."""
    if what == "-k deploy" and cluster.version < (1, 36):
        what = "-k deploy/base"
    kubectl = [str(cluster.bin / "kubectl"), "--kubeconfig", str(cluster.kubeconfig("admin-token"))]
    for more in (["--dry-run=server"], []):
        command = [*kubectl, "apply", *what.split(), *more]
        done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "carico-" in done.stdout


def test_the_overlay_for_progress_changes_what_it_should() -> None:
    """Its patches name objects of the base; the extender's configuration is that of the base and one line more; the job
    writes where the agent reads."""
    overlay = DEPLOY / "progress"
    base = {(d["kind"], d["metadata"]["name"]): d for d in documents(*sorted((DEPLOY / "base").glob("[0-9]*.yaml")))}
    patches = [overlay / one["path"] for one in yaml.safe_load((overlay / "kustomization.yaml").read_text())["patches"]]
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents(*patches)}
    assert set(found) <= set(base)
    agent = found["DaemonSet", "carico-agent"]["spec"]["template"]["spec"]
    settings = parse({"node": {"root": "/host"}})
    folder = settings.node.root + settings.progress.kubelet_pods
    assert [one["mountPath"] for one in agent["containers"][0]["volumeMounts"]] == [folder]
    assert "hostPID" not in agent
    configs = [table["ConfigMap", "carico-extender"]["data"]["config.toml"] for table in (base, found)]
    assert configs[1].replace('policy = "least-left"\n', "") == configs[0]
    assert parse(tomllib.loads(configs[1])).extender.policy == "least-left"
    job = yaml.safe_load((overlay / "train-job.yaml").read_text())["spec"]["template"]["spec"]
    (mount,), (variable,) = job["containers"][0]["volumeMounts"], job["containers"][0]["env"]
    assert variable == {"name": "CARICO_PROGRESS_FILE", "value": f"{mount['mountPath']}/{FILE}"}
    assert [one["name"] for one in job["volumes"]] == [mount["name"]] == [VOLUME.rpartition("/")[2]]


@pytest.mark.parametrize("name", ["carico-agent", "carico-extender", "carico-aggregator"])
def test_configurations_are_valid(name: str) -> None:
    maps = {d["metadata"]["name"]: d for d in documents(*PARTS) if d["kind"] == "ConfigMap"}
    settings = parse(tomllib.loads(maps[name]["data"]["config.toml"]))
    assert settings != Settings(), "it configures something"


def test_arguments_exist() -> None:
    """What the containers run is something `carico` knows."""
    from carico_agent.cli import COMMANDS

    templates = [document.get("spec", {}).get("template", {}) for document in documents(*PARTS)]
    run = {one["args"][0] for template in templates for one in template.get("spec", {}).get("containers", ())}
    assert {"agent", "aggregator", "extender"} <= run <= set(COMMANDS)


def config_of(file: Path) -> Any:
    found = [one for one in documents(file) if one["kind"] == "ConfigMap"]
    return tomllib.loads(found[0]["data"]["config.toml"])


def test_without_federation_nothing_of_it_is_started_and_with_it_agents_are_configured() -> None:
    alone, together = config_of(DEPLOY / "base/20-agent.yaml"), config_of(DEPLOY / "federation/agent-config.yaml")
    assert "federation" not in alone
    assert together.pop("federation")["aggregators"] == ["carico-aggregator.carico.svc:7420"]
    assert together == alone
    assert "aggregator" not in (DEPLOY / "base/kustomization.yaml").read_text()
    parse(config_of(DEPLOY / "federation/agent-config.yaml"))


def test_certificates_of_federation_are_made_in_one_line(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    make = [str(DEPLOY / "federation/certificates.sh")]
    subprocess.run([*make, "node/n1"], cwd=tmp_path, check=True)
    first = (tmp_path / "n1.crt").read_bytes()
    subprocess.run([*make, "node/n1", "n2.example"], cwd=tmp_path, check=True)
    assert (tmp_path / "n1.crt").read_bytes() == first  # what is there stays
    for name, common_name in (("tls", "carico-aggregator"), ("n1", "n1"), ("n2.example", "n2.example")):
        verify = ["openssl", "verify", "-CAfile", "ca.crt", f"{name}.crt"]
        subprocess.run(verify, cwd=tmp_path, check=True, capture_output=True)
        show = ["openssl", "x509", "-in", f"{name}.crt", "-noout", "-subject"]
        assert subprocess.check_output(show, cwd=tmp_path, text=True).strip().endswith(f"CN = {common_name}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    assert {file.stat().st_mode & 0o077 for file in tmp_path.glob("*.key")} == {0}


def agent_pod() -> Any:
    found = [one for one in documents(DEPLOY / "base/20-agent.yaml") if one["kind"] == "DaemonSet"]
    return found[0]["spec"]["template"]["spec"]


def test_the_agent_mounts_containerds_folder_and_not_its_socket() -> None:
    """The socket is another file after a restart; tests/node/pods/test_containerd.py shows what happens then."""
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in agent_pod()["volumes"]}
    assert paths["containerd"] == "/run/containerd"
    mount = next(one for one in agent_pod()["containers"][0]["volumeMounts"] if one["name"] == "containerd")
    assert (mount["mountPath"], mount["mountPropagation"]) == ("/run/containerd", "HostToContainer")
    assert config_of(DEPLOY / "base/20-agent.yaml")["containerd"]["socket"].startswith(mount["mountPath"] + "/")


@pytest.mark.parametrize(("age_s", "alive"), [(5, True), (200, False), (None, False)])
def test_the_liveness_probe_is_a_shell_and_looks_at_the_status_file(
    tmp_path: Path, age_s: int | None, alive: bool
) -> None:
    command = agent_pod()["containers"][0]["livenessProbe"]["exec"]["command"]
    file = config_of(DEPLOY / "base/20-agent.yaml")["socket"]["status_file"]
    assert command[0] == "sh" and file in command[-1]
    if age_s is not None:
        (tmp_path / "status.json").touch()
        os.utime(tmp_path / "status.json", (time.time() - age_s,) * 2)
    probe = [*command[:-1], command[-1].replace(file, str(tmp_path / "status.json"))]
    assert (subprocess.run(probe, capture_output=True, check=False).returncode == 0) == alive


def sample(version: str) -> Any:
    return yaml.safe_load((DEPLOY / f"scheduler/{version}.yaml").read_text())


def test_the_packing_profile_has_the_shape_of_the_source() -> None:
    """Rising to 85 %, nothing beyond; balance twice."""
    assert problems(sample("v1")) == problems(sample("extender-v1")) == problems(sample("packing-v1")) == []
    profile = sample("packing-v1")["profiles"][0]
    shape = profile["pluginConfig"][0]["args"]["scoringStrategy"]["requestedToCapacityRatio"]["shape"]
    assert [(point["utilization"], point["score"]) for point in shape] == [(0, 1), (85, 10), (86, 0), (100, 0)]
    assert [plugin["weight"] for plugin in profile["plugins"]["score"]["enabled"]] == [1, 2]


def test_the_packing_profile_packs(cluster: Plane) -> None:
    """Four Pods that together need two of four cores go to one of three empty nodes; by default they are spread."""
    cluster.start_scheduler({"profiles": sample("packing-v1")["profiles"]})
    for name in ("n1", "n2", "n3"):
        cluster.admin.add_node(name)
    asks = {"requests": {"cpu": "500m", "memory": "2Gi"}}
    for number in range(4):
        cluster.admin.add_pod(f"p{number}", 0, containers=[{"name": "c", "image": "pause", "resources": asks}])
        wait_for(lambda count=number + 1: sum(cluster.admin.bound().values()) == count, "it is bound")  # type: ignore[misc]
    assert list(cluster.admin.bound().values()) == [4]


def test_the_default_profile_prefers_the_node_with_more_slots_free(cluster: Plane) -> None:
    """Eight Pods, nodes with 3 and 12 slots and the same cores: kube-scheduler alone would give each of them four."""
    cluster.start_scheduler({"profiles": sample("v1")["profiles"]})
    for name, slots in (("small", "3"), ("large", "12")):
        cluster.admin.add_node(name)
        amount = {PLACE: slots}
        cluster.admin.merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amount, "allocatable": amount}})
    for number in range(8):
        cluster.admin.add_pod(f"p{number}", 1)
        wait_for(lambda count=number + 1: sum(cluster.admin.bound().values()) == count, "it is bound")  # type: ignore[misc]
    assert cluster.admin.bound()["large"] >= 6


def test_one_script_makes_the_certificates_and_the_webhook(cluster: Plane, tmp_path: Path) -> None:
    """Also a second time, which renews nothing; the names of the certificates are those that the webhook checks."""
    kubectl = f"{cluster.bin}/kubectl --kubeconfig {cluster.kubeconfig('admin-token')}"
    for _ in range(2):
        command, environment = [str(DEPLOY / "webhook.sh")], {**os.environ, "KUBECTL": kubectl}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    secret = cluster.admin.get("/api/v1/namespaces/carico/secrets/carico-extender-tls")["data"]
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    client = cluster.admin.get(f"{hooks}/carico-bindings")["webhooks"][0]["clientConfig"]
    assert client["caBundle"] == secret["ca.crt"]
    assert client["service"]["path"] == f"/admit/{base64.b64decode(secret['token']).decode().strip()}"
    (tmp_path / "served.crt").write_bytes(base64.b64decode(secret["tls.crt"]))
    name = f"{client['service']['name']}.{client['service']['namespace']}.svc"
    check = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", name, "served.crt"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    cluster.admin.delete("/api/v1/namespaces/carico/secrets/carico-extender-tls")
    cluster.admin.delete(f"{hooks}/carico-bindings")


def test_the_overlays_for_kueue_and_taints_add_one_line_to_the_configuration() -> None:
    base = config_of(DEPLOY / "base/30-extender.yaml")
    for overlay, key in (("kueue", "kueue"), ("taints", "taint_full_nodes")):
        found = config_of(DEPLOY / overlay / "extender-config.yaml")
        assert found["extender"].pop(key) is True
        assert found == base
        parse(config_of(DEPLOY / overlay / "extender-config.yaml"))


def test_the_sample_works_with_mutual_tls(cluster: Plane, tmp_path: Path) -> None:
    """The sample as it is, but for paths and addresses: only Pods that ask for a place are sent, over mTLS."""
    f = cluster.folder
    certificate, key = cluster.client_certificate("scheduler-of-extender", "kube-scheduler")
    extender = ExtenderProcess(
        tmp_path,
        cluster.kubeconfig("extender-token"),
        tls_ca=str(cluster.ca),
        tls_cert=f"{f}/server.crt",
        tls_key=f"{f}/server.key",
    )
    config = sample("extender-v1")["extenders"][0]
    config |= {
        "urlPrefix": f"https://127.0.0.1:{extender.port}",
        "tlsConfig": {"certFile": str(certificate), "keyFile": str(key), "caFile": str(cluster.ca)},
    }
    context = ssl.create_default_context(cafile=str(cluster.ca))
    context.load_cert_chain(certificate, key)
    try:
        # Before the first Pod: kube-scheduler's events of one workload for one Pod keep the words of the first.
        extender.ready(context)
        pace = {key: sample("extender-v1")["clientConnection"][key] for key in ("qps", "burst")}
        connection = {"kubeconfig": str(cluster.kubeconfig("scheduler-token")), **pace}
        cluster.start_scheduler({"extenders": [config], "clientConnection": connection})
        cluster.admin.add_node("n1")
        amount = {"carico.dev/pods": "2"}
        cluster.admin.merge("/api/v1/nodes/n1/status", {"status": {"capacity": amount, "allocatable": amount}})
        cluster.admin.add_pod("asks-for-none", 0)
        wait_for(lambda: cluster.admin.bound() == {"n1": 1}, "others are not sent to the extender")
        cluster.admin.add_pod("asks-for-one", 1)

        def why() -> str:
            events = cluster.admin.get("/api/v1/namespaces/default/events")["items"]
            return " ".join(event["message"] for event in events if event["involvedObject"]["name"] == "asks-for-one")

        wait_for(lambda: "published no capacity" in why(), "the extender refused", 180)
        status = '{"time":"2999-01-01T00:00:00Z","ttl_s":150,"places":2}'
        notes = {"carico.dev/slots": "2", "carico.dev/status": status}
        # An annotation alone wakes a Pod that the extender refused.
        cluster.admin.merge("/api/v1/nodes/n1/status", {"metadata": {"annotations": notes}})
        wait_for(lambda: cluster.admin.bound() == {"n1": 2}, "the extender bound it")
    finally:
        extender.stop()
