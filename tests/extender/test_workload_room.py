"""Places for one workload by what is left on a node: a margin against noise, and no workload that fits nowhere for
ever."""

from math import nan

import pytest

from carico_agent.extender.nodes import NodeState, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode


def node(left_cores: float, left_gb: float, cost_cores: float) -> NodeState:
    """Four cores, so that demand for eight fills it."""
    workloads = NodeWorkloads(workloads={"shop/web": WorkloadOnNode((cost_cores, 1e9, nan, nan), pods=1)})
    return NodeState(
        "a", 8.0, 0.0, 150.0, assigned=1, cpu=4.0, workloads=workloads, left_cpu=left_cores, left_memory=1e9 * left_gb
    )


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        (node(1.3, 10, 1.0), None),
        (node(1.1, 10, 1.0), "no room for shop/web: 1.1 of cpu left"),
        (node(5.0, 1.1, 1.0), "no room for shop/web: 1100 MB of memory left"),
        (node(6.3, 10, 64.0), "no room for shop/web: 6.3 of cpu left"),
        (node(7.9, 10, 64.0), None),
        (node(7.9, 10, 7.5), None),
        (node(7.9, 0.5, 64.0), "no room for shop/web: 500 MB of memory left"),
    ],
)
def test_refusal_of_a_workload(state: NodeState, refused: str | None) -> None:
    assert PodCapacity().refusal(state, PendingPod("uid", "shop/web"), now_s=10.0) == refused
