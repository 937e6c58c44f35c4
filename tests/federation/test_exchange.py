"""When a node sends and when a view is pushed: on change, by what the change is worth, and on the heartbeat."""

import numpy as np
import pytest

from carico_agent.core import WorkloadCost
from carico_agent.core.subspace import Subspace
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.exchange import ExchangeSchedule, cost_ratio, moved, view_moved
from carico_agent.federation.moments import Moments

TWO = ("cpu", "memory")


def given(cpu: float = 0.5, **more) -> Contribution:
    parts = {"cost": [0.1, 0.2], "precision": [400.0, 400.0], **more}
    return Contribution(TWO, Subspace.of_batch([[cpu], [0.2]]), 10, **parts)


def workload(cost: float, pods: int = 5) -> WorkloadCost:
    return WorkloadCost("shop/web", (cost, float("nan")), (0.0, 0.0), pods, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (given(), given(), False),
        (given(), given(0.505), False),
        (given(), given(0.515), True),
        (given(), given(cost=[0.1005, 0.2]), False),
        (given(), given(cost=[0.102, 0.2]), True),
        (given(), given(precision=[700.0, 400.0]), False),
        (given(), given(precision=[900.0, 400.0]), True),
        (given(), given(cost=(), precision=()), True),
        (given(room=(0.5, 0.5)), given(room=(0.52, 0.5)), False),
        (given(room=(0.5, 0.5)), given(room=(0.6, 0.5)), True),
        (given(), given(room=(0.5, 0.5)), True),
        (given(workloads=[workload(0.1)]), given(workloads=[workload(0.105)]), False),
        (given(workloads=[workload(0.1)]), given(workloads=[workload(0.12)]), True),
        (given(workloads=[workload(0.1)]), given(workloads=[workload(0.1, pods=11)]), True),
        (given(workloads=[workload(0.1)]), given(), True),
    ],
)
def test_what_counts_as_a_change(before, after, changed):
    assert moved(before, after, tolerance=0.01, nodes=10) is changed


def test_a_large_cluster_sends_less():
    schedules = {nodes: ExchangeSchedule(1.0, 5.0, 0.01) for nodes in (10, 5000)}
    for nodes, schedule in schedules.items():
        schedule.nodes = nodes
        schedule.on_sent(given(), 0.0)
    assert {n: s.is_due(given(cost=[0.105, 0.2]), 1.0) for n, s in schedules.items()} == {10: True, 5000: False}


def test_the_heartbeat_and_a_new_connection():
    schedule = ExchangeSchedule(1.0, 5.0, 0.01)
    assert schedule.is_due(given(), 0.0)
    schedule.on_sent(given(), 0.0)
    assert not schedule.is_due(given(), 4.0)
    assert schedule.is_due(given(), 5.0)
    schedule.restart()
    assert schedule.is_due(given(), 1.0)


def sums(*nodes: Contribution):
    cluster = Moments()
    for i, one in enumerate(nodes):
        cluster.put(str(i), one)
    return cluster.sums()


@pytest.mark.parametrize(
    ("before", "after", "pushed"),
    [
        ([given()] * 100, [given()] * 100, False),
        ([given()] * 100, [given()] * 99, False),
        ([given()] * 100, [given()] * 90, True),
        ([given()] * 100, [given(0.9)] * 100, True),
        ([given()] * 100, [given(0.9)] + [given()] * 99, False),
        ([given()] * 10, [given(cost=[0.11, 0.2])] * 10, True),
        ([given()] * 10, [given(cost=[0.10001, 0.2])] * 10, False),
        ([], [given()], True),
        ([given()], [given(cost=(), precision=())], True),
    ],
)
def test_when_a_view_is_pushed(before, after, pushed):
    assert view_moved(sums(*before), sums(*after)) is pushed


def test_thresholds_grow_with_the_root_of_the_cluster():
    ratios = [cost_ratio(n) for n in (0, 25, 100, 400, 2500, 10**6)]
    assert ratios == pytest.approx([0.007, 0.007, 0.014, 0.028, 0.07, 0.1])
    assert np.all(np.diff(ratios) >= 0)
