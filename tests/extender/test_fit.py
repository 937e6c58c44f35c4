"""What fits: manifests, workloads that are known and unknown, requests alone."""

import pytest

from carico_agent.lib.fit import BadManifest, Fit, Wanted, fit_by_requests, fit_on_node, wanted_of

CONTAINERS = [{"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}]
POD = {"spec": {"containers": CONTAINERS}}


@pytest.mark.parametrize(
    ("what", "spec", "workload"),
    [
        ("Pod", {"containers": CONTAINERS}, "shop/web"),
        ("Deployment", {"template": POD}, "shop/web"),
        ("StatefulSet", {"template": POD}, "shop/web"),
        ("Job", {"template": POD}, "shop/web"),
        ("CronJob", {"jobTemplate": {"spec": {"template": POD}}}, "shop/web"),
    ],
)
def test_manifests(what: str, spec: object, workload: str) -> None:
    document = {"kind": what, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    assert wanted_of(document) == Wanted(workload, 0.25, 256 * 2**20)


def test_a_label_names_the_workload() -> None:
    template = {"metadata": {"labels": {"carico.dev/workload": "frontend"}}, **POD}
    document = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}
    assert wanted_of(document).workload == "default/frontend"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "Service"},
        {"kind": "Pod"},
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {}},
        {"kind": "Deployment", "metadata": {"name": "x"}, "spec": {}},
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [1]}},
    ],
)
def test_what_is_no_manifest(document: object) -> None:
    with pytest.raises(BadManifest):
        wanted_of(document)


def test_a_pod_without_requests_asks_for_nothing() -> None:
    """It is not counted by requests that it never made: on a node that does not know its workload it is the prior."""
    wanted = wanted_of({"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c"}]}})
    node = {"fits": 2.0, "mode": "learning", "limiting": "cpu", "room": {"cpu": 0.5}, "sizes": {"cpu": 8.0}}
    assert wanted == Wanted("default/web") and fit_on_node(wanted, node).basis == "prior"
    assert fit_by_requests(wanted, {"status": {}}, []) is None


def test_running_pods_without_requests_hold_none() -> None:
    node = {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}}}
    silent = {"spec": {"containers": [{"name": "c"}]}}
    assert fit_by_requests(Wanted("shop/web", 0.25), node, [silent] * 4) == Fit(4.0, "cpu", "requests")


def test_what_is_measured_counts_and_requests_do_not() -> None:
    node = {"fits": 5.2, "mode": "measured", "limiting": "memory", "room": {"cpu": 1.0}, "sizes": {"cpu": 8.0}}
    assert fit_on_node(Wanted("shop/web", cpu=8.0), node) == Fit(5.2, "memory", "measured")


def test_an_unknown_workload_is_counted_by_its_requests_or_by_the_prior() -> None:
    room = {"cpu": 0.5, "memory": 0.25}
    node = {"fits": 2.0, "mode": "learning", "limiting": "cpu", "room": room, "sizes": {"cpu": 8.0, "memory": 1024.0}}
    assert fit_on_node(Wanted("shop/new", 0.5, 128.0), node) == Fit(2.0, "memory", "requests")
    assert fit_on_node(Wanted("shop/new"), node) == Fit(2.0, "cpu", "prior")
    full = node | {"room": {"cpu": -0.1, "memory": None}}
    assert fit_on_node(Wanted("shop/new", 0.5, 128.0), full).fits == 0.0


def test_requests_alone() -> None:
    node = {"status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}}}
    pods = [POD] * 3 + [{"spec": {"containers": [{}]}}]  # one requests nothing, and holds nothing
    assert fit_by_requests(Wanted("a/b", 0.5, 2.0**20), node, pods) == Fit(6.0, "cpu", "requests")
    assert fit_by_requests(Wanted("a/b", 0.01, 2.0**30), node, pods) == Fit(3.0, "memory", "requests")
    tight = {"status": {"allocatable": {"cpu": "400", "memory": "4Ti", "pods": "5"}}}
    assert fit_by_requests(Wanted("a/b", 0.01, 1.0), tight, pods) == Fit(1.0, "pods", "requests")
    assert fit_by_requests(Wanted("a/b"), node, pods) is None
