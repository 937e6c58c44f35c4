"""A workload whose Pods suddenly take twice as much is a surprise, for a while and for all nodes."""

from math import inf, nan

from carico_agent.extender.workload_costs import REFERENCE_S, ClusterCosts
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode


def publish(costs: ClusterCosts, now_s: float, cpu: float, node: str = "a", memory: float = 1e8) -> None:
    costs.put(node, NodeWorkloads(workloads={"job": WorkloadOnNode((cpu, memory, nan, nan), pods=1)}), now_s)


def test_twice_the_cost_is_a_surprise() -> None:
    costs = ClusterCosts()
    publish(costs, 0.0, 0.2)
    publish(costs, 60.0, 0.3)
    assert costs.surprised_for_s("job", 60.0) == inf
    publish(costs, 62.0, 0.5)  # in two steps
    assert costs.surprised_for_s("job", 72.0) == 10.0
    assert costs.surprised_for_s("other", 72.0) == inf
    known = costs.of("job", 62.0)
    assert known is not None and known[0] == 0.5


def test_a_cost_that_rises_over_an_hour_or_falls_is_none() -> None:
    costs = ClusterCosts()
    for step in range(20):
        publish(costs, step * REFERENCE_S, 0.2 * 1.2**step)
    publish(costs, 21 * REFERENCE_S, 0.1)
    assert costs.surprised_for_s("job", 22 * REFERENCE_S) == inf


def test_more_memory_is_a_surprise_too_and_a_first_cost_is_not() -> None:
    costs = ClusterCosts()
    publish(costs, 0.0, 0.2)
    publish(costs, 1.0, 5.0, node="b")  # a larger Pod of this workload elsewhere: that node knows no other
    assert costs.surprised_for_s("job", 1.0) == inf
    publish(costs, 2.0, 0.2, memory=3e8)
    assert costs.surprised_for_s("job", 2.0) == 0.0


def test_a_node_that_is_gone_is_forgotten() -> None:
    costs = ClusterCosts()
    publish(costs, 0.0, 0.2)
    costs.put("a", None, 1.0)
    publish(costs, 2.0, 2.0)
    assert costs.surprised_for_s("job", 2.0) == inf
