"""The packing policies: pod-capacity's refusals, the source's order, one best node."""

from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender import packing, policies
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.extender.policy import TOP_SCORE
from carico_agent.lib.kube.workloads import UNKNOWN, Amounts, NodeWorkloads, WorkloadOnNode

SOURCE = {
    "first-fit": "FF",
    "most-allocated": "KM",
    "balanced": "KR",
    "vector-dot": "VD",
    "packed": "KVD",
    "pairwise": "PP",
}
WHOLE: dict[str, Any] = {name: {name: {"memory_ceiling": 1.0}} for name in SOURCE}
GIB = 1024.0**3
POD = PendingPod("u", "k", cpu=0.5, memory=GIB)


def node(name: str, cpu: float, memory: float, size: float = 1.0, assigned: int = 1, places: float = 50.0) -> NodeState:
    """A node of 4 cores and 16 GiB times `size`, of which these shares are requested."""
    cores, gib = 4.0 * size, 16.0 * GIB * size
    made = NodeState(name, places, 0.0, 100.0, assigned, cpu=cores, memory=gib)
    made.cpu_requested, made.memory_requested = cpu * cores, memory * gib
    return made


SHARE = st.integers(0, 20).map(lambda twentieths: twentieths / 20)


@pytest.mark.parametrize("name", SOURCE)
@given(shares=st.lists(st.tuples(SHARE, SHARE), min_size=1, max_size=12))
def test_the_best_is_the_sources_and_it_is_alone(name: str, shares: list[tuple[float, float]]) -> None:
    states = [node(f"n{at:02}", *share) for at, share in enumerate(shares)]
    scores = policies.load(name, WHOLE[name]).scores(NodeColumns.of(states), POD, 0.0)
    used = np.array(shares)
    wanted = packing.SCORES[SOURCE[name]](used, np.array([POD.cpu / 4, POD.memory / (16 * GIB)]))
    best = scores.index(TOP_SCORE)
    assert scores.count(TOP_SCORE) == 1 and all(type(score) is int and 0 <= score <= TOP_SCORE for score in scores)
    assert wanted[best] >= wanted.max() - 1e-9
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(np.array(scores)[order[np.diff(wanted[order], prepend=-np.inf) > 1e-9]]) >= 0).all()


@pytest.mark.parametrize("name", SOURCE)
def test_an_empty_node_is_opened_last(name: str) -> None:
    states = [node("a", 0.0, 0.0, assigned=0), node("b", 0.1, 0.7), node("c", 0.0, 0.0, assigned=0)]
    policy = policies.load(name, {})
    assert policy.scores(NodeColumns.of(states), POD, 0.0)[1] == TOP_SCORE
    assert policy.scores(NodeColumns.of([states[0], states[2]]), POD, 0.0)[0] == TOP_SCORE
    assert policy.scores(NodeColumns.of([]), POD, 0.0) == []


@pytest.mark.parametrize("name", SOURCE)
def test_a_pod_that_prefers_to_be_spread_is_not_packed(name: str) -> None:
    """kube-scheduler has 200 points for spreading, and one of our steps is 50."""
    states, policy = [node("a", 0.0, 0.0, assigned=0), node("b", 0.5, 0.5)], policies.load(name, {})
    assert policy.scores(NodeColumns.of(states), replace(POD, spreads=True), 0.0) == [0, 0]


@pytest.mark.parametrize("name", SOURCE)
def test_refusals_are_those_of_pod_capacity(name: str) -> None:
    nodes = NodeColumns.of([node("full", 0.5, 0.5, assigned=8, places=8.0), node("room", 0.5, 0.5), NodeState("new")])
    for table in ({}, {"starting_ratio": 1.0, "open_when_unknown": True}):
        packed: Any = policies.load(name, {name: table})
        plain: Any = policies.load("pod-capacity", {"pod-capacity": table})
        assert packed.refusals(nodes, POD, 1.0) == plain.refusals(nodes, POD, 1.0)
    assert isinstance(packed, PodCapacity)


@pytest.mark.parametrize("name", [name for name in SOURCE if name != "first-fit"])
def test_a_node_of_unknown_size_comes_last(name: str) -> None:
    unknown = node("u", 0.9, 0.9)
    unknown.cpu = nan
    scores = policies.load(name, {}).scores(NodeColumns.of([unknown, node("b", 0.1, 0.1)]), POD, 0.0)
    assert scores == [0, TOP_SCORE]


def test_a_pod_is_another_share_of_a_larger_node() -> None:
    """0.5 cores and 1 GiB fill the small node better than the large one that is used alike."""
    states = [node("large", 0.5, 0.5, size=4.0), node("small", 0.5, 0.5)]
    assert policies.load("most-allocated", {}).scores(NodeColumns.of(states), POD, 0.0) == [0, TOP_SCORE]


def test_first_fit_does_not_depend_on_the_order_of_the_question() -> None:
    policy, states = policies.load("first-fit", {}), [node(name, 0.5, 0.5) for name in "cab"]
    assert policy.scores(NodeColumns.of(states), POD, 0.0) == [0, TOP_SCORE, 4]


@pytest.mark.parametrize("name", SOURCE)
def test_memory_above_the_ceiling_comes_after_empty_nodes(name: str) -> None:
    """1 GiB of 16 lifts the first node from 80 % to 86 %, the last one to 84 %."""
    states = [node("a", 0.5, 0.80), node("b", 0.0, 0.0, assigned=0), node("c", 0.5, 0.78)]
    policy = policies.load(name, {})
    assert policy.scores(NodeColumns.of(states), POD, 0.0) == [0, 0, TOP_SCORE]
    assert policy.scores(NodeColumns.of(states[:2]), POD, 0.0) == [0, TOP_SCORE]
    assert policy.scores(NodeColumns.of(states[:1]), POD, 0.0) == [TOP_SCORE], "it refuses nothing"
    assert policies.load(name, WHOLE[name]).scores(NodeColumns.of(states[:2]), POD, 0.0)[0] == TOP_SCORE


def measured(name: str, left_cpu: float, left_gib: float, cost: Amounts = UNKNOWN) -> NodeState:
    """A node of 4 cores and 16 GiB whose Pods request next to nothing, and which says what is left."""
    state = node(name, 0.01, 0.01)
    state.prior_places, state.left = 8.0, (left_cpu, left_gib * GIB, nan, nan)
    state.workloads = NodeWorkloads(state.left, workloads={POD.workload: WorkloadOnNode(cost)})
    return state


def test_measured_room_counts_where_it_is_published() -> None:
    """By requests all are alike; by measurement the second one is the fullest."""
    states = [measured("a", 7.0, 12.0), measured("b", 2.0, 4.0), node("c", 0.01, 0.01)]
    assert policies.load("most-allocated", {}).scores(NodeColumns.of(states), POD, 0.0).index(TOP_SCORE) == 1


def test_what_the_workload_takes_is_as_measured() -> None:
    """The Pod requests CPU and memory alike, but its workload takes CPU only: it goes where only CPU is left."""
    states = [measured(name, cpu, gib, (2.0, 0.01 * GIB, nan, nan)) for name, cpu, gib in (("a", 4, 12), ("b", 4, 1))]
    policy: Any = policies.load("vector-dot", {})
    assert policy.scores(NodeColumns.of(states), POD, 0.0).index(TOP_SCORE) == 1
    unknown = [measured(state.name, state.left_cpu, state.left_memory / GIB) for state in states]
    used, share = policy.shares(NodeColumns.of(unknown), POD)
    assert share[0] == pytest.approx([0.5 / 8, 1 / (16 * 0.85)]), "requests where nobody has measured"
    elsewhere = replace(POD, elsewhere=(1.0, nan, nan, nan))
    assert policy.shares(NodeColumns.of(unknown), elsewhere)[1][0] == pytest.approx([1 / 8, 1 / (16 * 0.85)])
    assert used[1] == pytest.approx([0.5, 1 - 1 / (16 * 0.85)])


@pytest.mark.parametrize("resource", [2, 3])
@pytest.mark.parametrize("name", ["balanced", "most-allocated", "vector-dot", "packed"])
def test_io_and_network_are_scored_where_they_are_published(resource: int, name: str) -> None:
    """CPU and memory are alike on both nodes; the Pod takes I/O, or network, of which the second has more left. There
    it is more even, which `balanced` prefers; the others answer as their formula does for three resources."""
    cost = [1.0, 2.0 * GIB, nan, nan]
    states = []
    for node_name, free in (("a", 0.15), ("b", 0.6)):
        left = [4.0, 8.0 * GIB, nan, nan]
        left[resource], cost[resource] = free, 0.1
        state = measured(node_name, 4.0, 8.0)
        state.left = tuple(left)
        state.workloads = NodeWorkloads(state.left, workloads={POD.workload: WorkloadOnNode(tuple(cost))})
        states.append(state)
    policy: Any = policies.load(name, {})
    best = policy.scores(NodeColumns.of(states), POD, 0.0).index(TOP_SCORE)
    whole = 16 * 0.85
    by_hand = [[0.5, 1 - 8 / whole, 0.85], [0.5, 1 - 8 / whole, 0.4]]
    used, share = policy.shares(NodeColumns.of(states), POD)
    assert used == pytest.approx(np.array(by_hand)) and share[0] == pytest.approx([1 / 8, 2 / whole, 0.1])
    assert best == int(np.argmax(packing.SCORES[SOURCE[name]](np.array(by_hand), share[0])))
    assert name != "balanced" or best == 1
    alike = [measured(state.name, 4.0, 8.0) for state in states]
    assert policy.shares(NodeColumns.of(alike), POD)[0].shape == (2, 2)
    mixed = NodeColumns.of([states[1], alike[0], node("c", 0.01, 0.01)])
    assert np.isfinite(policy.preference(mixed, *policy.shares(mixed, POD))).all()
