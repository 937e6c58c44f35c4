"""What is read from Pod objects: the same workload as on the node. No control plane is needed."""

from typing import Any

import pytest

from carico_agent.core import workload_names
from carico_agent.lib.kube.pods import facts, per_node_of, workload_of


def meta(name: str, owner: str = "", **labels: str) -> dict[str, Any]:
    owners = [{"controller": True, "kind": owner, "name": "x"}] if owner else []
    named = {key.replace("_", "-"): value for key, value in labels.items()}
    return {"namespace": "shop", "name": name, "labels": named, "ownerReferences": owners}


ROWS = [
    (meta("web-6c5d9b7f8d-x7k2p", "ReplicaSet", pod_template_hash="6c5d9b7f8d"), "shop/web", False),
    (meta("web-558bd4d5db-4dslv", "ReplicaSet", pod_template_hash="558bd4d5db"), "shop/web", False),
    (
        {**meta("kafka-2", "StatefulSet"), "labels": {"statefulset.kubernetes.io/pod-name": "kafka-2"}},
        "shop/kafka",
        False,
    ),
    (meta("report-28391040-lq8zd", "Job", job_name="report-28391040"), "shop/report", False),
    (
        meta("agent-x7k2p", "DaemonSet", controller_revision_hash="7d9c4b8f5", pod_template_generation="1"),
        "shop/agent",
        True,
    ),
    (meta("agent-x7k2p", "DaemonSet"), "shop/agent", True),
    (meta("etcd-n1", "Node"), "shop/etcd", True),
    (meta("alone"), "shop/alone", False),
    ({**meta("a1"), "labels": {"carico.dev/workload": "heavy"}}, "shop/heavy", False),
]


@pytest.mark.parametrize(("given", "workload", "per_node"), ROWS)
def test_workloads_and_daemons(given: dict[str, Any], workload: str, per_node: bool) -> None:
    found = facts({"metadata": given, "spec": {"nodeName": "n1"}})
    assert (
        (found.workload, found.per_node) == (workload, per_node) == (workload_of(given, "n1"), per_node_of(given, "n1"))
    )
    # what the node makes of the same labels: it sees no owner
    assert workload_names.workload_of("shop", given["name"], given["labels"], node_name="n1") == workload


def test_a_pod_that_waits_is_of_the_workload_that_it_will_be_on_its_node() -> None:
    given = meta("web-6c5d9b7f8d-x7k2p", "ReplicaSet", pod_template_hash="6c5d9b7f8d")
    assert workload_of(given) == workload_of(given, "any-node")


def test_metadata_without_anything() -> None:
    assert workload_of({}) == workload_names.UNNAMED and not per_node_of({})
