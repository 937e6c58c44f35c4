"""Workloads from the names and labels that Kubernetes really makes."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.core.workload_names import _WORDS, MAX_CHARS, UNNAMED, WORKLOAD_LABEL, is_per_node, workload_of

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
DEPLOYMENT = {"pod-template-hash": "6c5d9b7f8d", "app": "x"}
DAEMON = {"controller-revision-hash": "7d9c4b8f5", "pod-template-generation": "3"}


@pytest.mark.parametrize(
    ("name", "labels", "workload"),
    [
        # Deployments
        ("web-6c5d9b7f8d-x7k2p", DEPLOYMENT, "web"),
        ("web-https-6c5d9b7f8d-x7k2p", DEPLOYMENT, "web-https"),
        ("coredns-558bd4d5db-mhv4k", {}, "coredns"),
        ("nginx-deployment-75675f5897-7ci7o", {"pod-template-hash": "75675f5897"}, "nginx-deployment-75675f5897-7ci7o"),
        ("metrics-server-v2-7df6b9589-4dslv", {"pod-template-hash": "7df6b9589"}, "metrics-server-v2"),
        ("worker-2-5d59d67564-4dslv", {"pod-template-hash": "5d59d67564"}, "worker-2"),
        ("worker-2-5d59d67564-4dslv", {}, "worker-2"),
        # the name was cut to make room for the suffix, in the hash and before it
        ("a" * 52 + "-6c5d9" + "x7k2p", DEPLOYMENT, "a" * 52),
        ("a" * 58 + "x7k2p", DEPLOYMENT, "a" * 58),
        # ReplicaSets of one's own, generateName
        ("web-x7k2p", {}, "web"),
        # StatefulSets
        ("kafka-0", {"statefulset.kubernetes.io/pod-name": "kafka-0", "apps.kubernetes.io/pod-index": "0"}, "kafka"),
        ("kafka-12", {"statefulset.kubernetes.io/pod-name": "kafka-12"}, "kafka"),
        ("shard-2-0", {"statefulset.kubernetes.io/pod-name": "shard-2-0"}, "shard-2"),
        ("shard-2-0", {}, "shard-2"),
        ("kafka-0", {"controller-revision-hash": "kafka-6c5d9b7f8d", "apps.kubernetes.io/pod-index": "0"}, "kafka"),
        # Jobs, Indexed Jobs, rows of Jobs, generateName
        ("train-lq8zd", {"job-name": "train", "batch.kubernetes.io/job-name": "train"}, "train"),
        ("train-lq8zd", {"batch.kubernetes.io/job-name": "train"}, "train"),
        ("train-17-lq8zd", {"job-name": "train", "batch.kubernetes.io/job-completion-index": "17"}, "train"),
        ("pi-931-lq8zd", {"job-name": "pi-931"}, "pi"),
        ("train-x7k2p-lq8zd", {"job-name": "train-x7k2p"}, "train"),
        ("train-x7k2p-lq8zd", {}, "train"),
        # CronJobs: minutes since 1970, before 1.21 seconds
        ("report-28391040-lq8zd", {"job-name": "report-28391040"}, "report"),
        ("report-28391040-lq8zd", {}, "report"),
        ("report-1622505600-lq8zd", {"job-name": "report-1622505600"}, "report"),
        # DaemonSets and OpenKruise's CloneSets
        ("kube-proxy-4dslv", DAEMON, "kube-proxy"),
        ("node-2-4dslv", DAEMON, "node-2"),
        ("clone-4dslv", {"controller-revision-hash": "clone-7d9c4b8f5"}, "clone"),
        # Argo
        ("steps-x7k2p-whalesay-1234567890", {"workflows.argoproj.io/workflow": "steps-x7k2p"}, "steps-whalesay"),
        ("steps-x7k2p-whalesay-1234567890", {}, "steps-whalesay"),
        ("steps-x7k2p-1234567890", {"workflows.argoproj.io/workflow": "steps-x7k2p"}, "steps"),
        ("steps-x7k2p-1234567890", {}, "steps"),
        # bare Pods, and names that only look generated
        ("web", {}, "web"),
        ("db-mssql", {}, "db-mssql"),
        ("proxy-https", {}, "proxy-https"),
        ("web-cache", {}, "web-cache"),
        ("app-nginx", {}, "app-nginx"),
        ("x7k2p", {}, "x7k2p"),
        ("-x7k2p", {}, "-x7k2p"),
        ("spark-0a1b2c3d-1111-2222-3333-444455556666", {}, "spark"),
        # labels that do not belong to the name
        ("web-x7k2p", {"job-name": "other"}, "web"),
        ("web-x7k2p", {"workflows.argoproj.io/workflow": "other"}, "web"),
        # nothing but an id
        ("0a1b2c3d-1111-2222-3333-444455556666", {}, UNNAMED),
        ("f" * 64, {}, UNNAMED),
        ("f" * 12, {}, UNNAMED),
        ("", {}, UNNAMED),
        # chosen by the user
        ("web-6c5d9b7f8d-x7k2p", {**DEPLOYMENT, WORKLOAD_LABEL: "front"}, "front"),
    ],
)
def test_workloads(name, labels, workload):
    assert workload_of("shop", name, labels) == f"shop/{workload}"


def test_two_versions_of_a_deployment_are_one_workload():
    old = workload_of("shop", "web-6c5d9b7f8d-x7k2p", {"pod-template-hash": "6c5d9b7f8d"})
    assert old == workload_of("shop", "web-558bd4d5db-4dslv", {"pod-template-hash": "558bd4d5db"})


@pytest.mark.parametrize(
    ("image", "workload"),
    [
        ("docker.io/library/nginx:1.25", "default/nginx"),
        ("localhost/web", "default/web"),
        ("registry.local:5000/team/web@sha256:" + "a" * 64, "team/web"),
        ("team/web:2", "team/web"),
        ("", "default/c"),
        ("@", "default/c"),
    ],
)
def test_outside_kubernetes_the_image_decides(image, workload):
    assert workload_of("default", "c-1", {}, image=image) == workload


def test_the_labels_of_compose_name_the_workload():
    labels = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
    assert workload_of("default", "shop-web-1", labels, image="team/web:2") == "shop/web"
    assert workload_of("default", "shop-web-1", {**labels, "carico.dev/workload": "mine"}) == "default/mine"
    assert workload_of("default", "c-1", {**labels, "com.docker.compose.service": ""}, image="team/web") == "team/web"


def test_the_labels_of_compose_on_a_pod_name_no_workload_of_another_namespace():
    """Who may label Pods of one namespace would teach nodes what the workload of another one costs."""
    labels = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
    assert workload_of("evil", "x", labels) == "evil/x"


def test_no_namespace():
    assert workload_of("", "web-x7k2p", {}) == "web"


@pytest.mark.parametrize(
    ("name", "labels", "more", "per_node"),
    [
        ("kube-proxy-4dslv", DAEMON, {}, True),
        ("kube-proxy-4dslv", {}, {"owner_kind": "DaemonSet"}, True),
        ("web-x7k2p", DAEMON, {"owner_kind": "ReplicaSet"}, False),
        ("kafka-0", {"controller-revision-hash": "kafka-7d9c4b8f5"}, {}, False),
        ("etcd-n1", {"component": "etcd"}, {"node_name": "n1"}, True),
        ("etcd-n1", {"component": "etcd"}, {"node_name": "n2"}, False),
        ("etcd-n1", {}, {"owner_kind": "Node"}, True),
        ("etcd-n1", {}, {"annotations": {"kubernetes.io/config.source": "file"}}, True),
        ("etcd-n1", {}, {"annotations": {"kubernetes.io/config.mirror": "ab"}}, True),
        ("web", {}, {"annotations": {"kubernetes.io/config.source": "api"}}, False),
        ("kafka-0", {"statefulset.kubernetes.io/pod-name": "kafka-0"}, {"node_name": "0"}, False),
        ("web-6c5d9b7f8d-x7k2p", DEPLOYMENT, {"node_name": "x7k2p"}, False),
        ("web", {}, {}, False),
    ],
)
def test_per_node(name, labels, more, per_node):
    assert is_per_node(name, labels, **more) is per_node


def test_a_static_pod_is_one_workload_on_all_nodes():
    workloads = {
        workload_of("kube-system", f"etcd-{node}", {}, node_name=node) for node in ("n1", "ip-10-0-0-7.ec2.internal")
    }
    assert workloads == {"kube-system/etcd"}


words = st.lists(st.text(string.ascii_lowercase, min_size=4, max_size=8).map("{}e".format), min_size=1, max_size=3).map(
    "-".join
)
suffixes = st.text(ALPHABET, min_size=5, max_size=5).filter(lambda text: text not in _WORDS)
hashes = st.integers(10**8, 2**32 - 1).map(lambda n: "".join(ALPHABET[ord(digit) % 27] for digit in str(n)))


@given(words, hashes, suffixes)
def test_a_deployment_with_and_without_labels(base, template_hash, suffix):
    name = f"{base}-{template_hash}-{suffix}"
    assert workload_of("n", name, {"pod-template-hash": template_hash}) == workload_of("n", name, {}) == f"n/{base}"


@given(words, st.integers(0, 99_999), st.integers(26_000_000, 31_000_000), suffixes)
def test_jobs_with_and_without_labels(base, index, minutes, suffix):
    for job, name in (
        (base, f"{base}-{suffix}"),
        (base, f"{base}-{index}-{suffix}"),
        (f"{base}-{minutes}", f"{base}-{minutes}-{suffix}"),
    ):
        assert workload_of("n", name, {"job-name": job}) == workload_of("n", name, {}) == f"n/{base}"


@given(words, st.integers(0, 99_999))
def test_stateful_sets_with_and_without_labels(base, ordinal):
    name = f"{base}-{ordinal}"
    labelled = {"statefulset.kubernetes.io/pod-name": name}
    assert workload_of("n", name, labelled) == workload_of("n", name, {}) == f"n/{base}"


LABELS = st.sampled_from(
    [
        WORKLOAD_LABEL,
        "pod-template-hash",
        "job-name",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
        "workflows.argoproj.io/workflow",
    ]
)


@pytest.mark.long
@given(st.text(), st.text(max_size=300), st.dictionaries(LABELS, st.text(max_size=300)), st.text(), st.text())
def test_hostile_names_are_harmless(namespace, name, labels, image, node):
    for given_image in ("", image):
        workload = workload_of(namespace, name, labels, image=given_image, node_name=node)
        assert 0 < len(workload) <= MAX_CHARS
        assert workload.isascii() and workload.isprintable() and " " not in workload
        assert workload.count("/") <= 1 and not workload.endswith("/")
    is_per_node(name, labels, node_name=node)


def test_long_names_stay_apart():
    one, other = (workload_of("n" * 300, "w" * 400 + end, {}) for end in ("aa", "ee"))
    assert one != other and len(one) == len(other) == MAX_CHARS
