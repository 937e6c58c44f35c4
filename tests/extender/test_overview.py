"""The cluster for people: states, totals of workloads, and where a workload fits."""

from math import nan
from typing import Any

import pytest

from carico_agent.extender import overview
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode
from lab.support.sample_cluster import sample_cluster

WEB = {"shop/web": WorkloadOnNode((0.5, 1e8, nan, nan), pods=2)}


@pytest.fixture
def cluster() -> Cluster:
    """Room for 3 web Pods on a, for none on b, an expired number on c, nothing on d."""
    made = sample_cluster()
    made.nodes_listed(
        [
            PublishedNode("a", 6.0, 10.0, 150.0, cpu=4.0, workloads=NodeWorkloads((1.6, 1e9, nan, nan), workloads=WEB)),
            PublishedNode("b", 2.0, 10.0, 150.0, cpu=4.0, workloads=NodeWorkloads((5.0, 5e7, nan, nan), workloads=WEB)),
            PublishedNode(
                "c", 9.0, 400.0, 150.0, cpu=4.0, workloads=NodeWorkloads((5.0, 1e9, nan, nan), workloads=WEB)
            ),
            PublishedNode("d"),
        ]
    )
    return made


def now_s(cluster: Cluster) -> float:
    """The time at which a and b are 10 s old."""
    return float(cluster.nodes["a"].published_s) + 10.0


def workloads(cluster: Cluster) -> list[dict[str, Any]]:
    return [workload for workload in overview.workloads(cluster, now_s(cluster)) if workload is not None]


def test_states_and_ages(cluster: Cluster) -> None:
    body = overview.nodes_body(cluster.table.all(), now_s(cluster))
    assert body["state"] == ["ok", "ok", "stale", "unknown"]
    assert body["age_s"] == [10.0, 10.0, 400.0, None]
    assert body["places"] == [6.0, 2.0, 9.0, None]
    assert {len(column) for column in body.values()} == {4}, "every column has every node"


def test_a_workload_fits_whole_times_on_nodes_whose_number_is_valid(cluster: Cluster) -> None:
    # the two web Pods that a and b count are not assigned, so their room is free again: (1.6 + 2 x 0.5) / 0.5
    (web,) = workloads(cluster)
    assert (web["workload"], web["known_on"], web["cost"][0]) == ("shop/web", 3, 0.5)
    assert (web["fits"], web["fits_nodes"], web["limiting"]) == (5 + 2, 2, "cpu")


def test_workloads_that_nobody_has_measured_come_last(cluster: Cluster) -> None:
    pods = [PodFacts(f"uid-{n}", f"p{n}", "x", "a", "Running", "kube-system/kube-proxy") for n in range(3)]
    cluster.pods_listed(pods)
    web, proxy = workloads(cluster)
    assert (web["workload"], proxy["workload"], proxy["pods"]) == ("shop/web", "kube-system/kube-proxy", 3)
    assert (proxy["fits"], proxy["fits_nodes"], proxy["cost"]) == (None, None, None)


def test_where_a_workload_fits(cluster: Cluster) -> None:
    found = overview.where(cluster, "shop/web", now_s(cluster))
    assert dict(zip(found["name"], found["fits"], strict=True)) == {"a": 5.2, "b": 2.5, "c": None, "d": None}
    named = [None if at is None else found["resources"][at] for at in found["limiting"]]
    assert named == ["cpu", "memory", None, None]


def test_a_workload_that_nobody_knows(cluster: Cluster) -> None:
    found = overview.where(cluster, "no/such", now_s(cluster))
    assert found["fits"] is None and found["limiting"] is None


def test_looking_keeps_no_columns(cluster: Cluster) -> None:
    """Else every node that publishes would pay for it, for ever."""
    workloads(cluster)
    overview.where(cluster, "shop/web", now_s(cluster))
    assert not cluster.table._workloads._columns
