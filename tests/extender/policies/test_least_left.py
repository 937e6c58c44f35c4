"""least-left: pod-capacity's refusals, the node with the least work first, alone at the top."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender import policies
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.least_left import LeastLeft, shared_s
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.extender.published import read_node

POD = PendingPod("uid", "job")


def node(name: str, pods: int, jobs: int = 0, work_s: float = 0.0, cpu: float = 4.0, places: float = 20.0) -> NodeState:
    return NodeState(name, places, 0.0, 150.0, assigned=pods, cpu=cpu, work_jobs=jobs, work_s=work_s)


def first(*states: NodeState) -> str:
    scores = LeastLeft().scores(NodeColumns.of(states), POD, 10.0)
    assert scores.count(10) == 1
    return states[scores.index(10)].name


def test_it_is_found_by_its_name() -> None:
    assert isinstance(policies.load("least-left", {"least-left": {"least": 2.0}}), LeastLeft)


@pytest.mark.parametrize(
    ("states", "best"),
    [
        ((node("two-done", 2, 2, 10), node("one-long", 1, 1, 600)), "two-done"),
        ((node("one", 1, 1, 50), node("empty", 0)), "empty"),
        ((node("a", 3, 2, 0.0), node("b", 1, 1, 0.0)), "b"),
        ((node("a", 2, 1, 100), node("b", 2, 1, 100), node("c", 1, 1, 150)), "c"),
        ((node("small", 1, 1, 100, cpu=2), node("large", 1, 1, 300, cpu=16)), "large"),
        ((node("a", 3), node("b", 2)), "b"),
        ((node("a", 3, cpu=nan), node("b", 3, cpu=nan), node("c", 2, 2, 1, cpu=4)), "c"),
    ],
)
def test_who_comes_first(states: tuple[NodeState, ...], best: str) -> None:
    """Of the fourth: a Pod nobody knows counts as the mean job, so two Pods of which one is known lose."""
    assert first(*states) == best


def test_ten_pods_at_once_do_not_all_go_to_one_node() -> None:
    states = {name: node(name, 1, 1, work_s) for name, work_s in (("a", 100.0), ("b", 110.0), ("c", 120.0))}
    for _ in range(9):
        states[first(*states.values())].assigned += 1
    assert [state.assigned for state in states.values()] == [4, 4, 4]


def test_equal_work_goes_to_fewer_pods() -> None:
    assert first(node("more", 4, 4, 100), node("fewer", 2, 2, 100)) == "fewer"


def test_no_nodes() -> None:
    assert LeastLeft().scores(NodeColumns.of([]), POD, 10.0) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.floats(0, 1e9)), min_size=1, max_size=12))
def test_scores_are_whole_and_the_best_is_alone(raw: list[tuple[int, int, float]]) -> None:
    states = [node(f"n{at}", pods, min(pods, jobs), work_s) for at, (pods, jobs, work_s) in enumerate(raw)]
    scores = LeastLeft().scores(NodeColumns.of(states), POD, 10.0)
    assert scores.count(10) == 1
    assert all(0 <= score <= 10 for score in scores)


@given(st.floats(0, 30) | st.just(nan), st.integers(0, 30), st.floats(0, 400))
def test_refusals_are_those_of_pod_capacity(places: float, pods: int, now_s: float) -> None:
    state = node("n", pods, pods, 5.0, places=places)
    assert LeastLeft().refusal(state, POD, now_s) == PodCapacity().refusal(state, POD, now_s)


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ('{"jobs": 2, "sum_s": 90.5, "max_s": 60}', (2, 90.5)),
        ('{"jobs": "2", "sum_s": 90.5}', (0, 0.0)),
        ('{"jobs": 2, "sum_s": -1}', (0, 0.0)),
        ('{"jobs": 2, "sum_s": 1e999}', (0, 0.0)),
        ('"x"', (0, 0.0)),
        ("[]", (0, 0.0)),
    ],
)
def test_work_is_read_from_the_annotation(work: str, found: tuple[int, float]) -> None:
    """What is malformed costs the node its work, not its places."""
    status = f'{{"time":"2024-01-01T00:00:00Z","ttl_s":150,"places":7,"work":{work}}}'
    notes = {"carico.dev/slots": "8", "carico.dev/status": status}
    read = read_node({"metadata": {"name": "a", "annotations": notes}}, 1704067210.0)
    assert (read.work.jobs, read.work.left_s, read.places) == (*found, 7.0)


def test_a_long_job_delays_a_short_newcomer_by_no_more_than_the_newcomer_takes() -> None:
    """Σ of the work left would go to b, where the newcomer shares its core with three jobs for all of its 100 s."""
    long = NodeState(
        "a", 20.0, 0.0, 150.0, assigned=1, cpu=1.0, work_jobs=1, work_s=900.0, lefts_s=(900.0,), run_s=200.0
    )
    short = NodeState(
        "b", 20.0, 0.0, 150.0, assigned=3, cpu=1.0, work_jobs=3, work_s=300.0, lefts_s=(100.0,) * 3, run_s=200.0
    )
    assert LeastLeft().scores(NodeColumns.of([long, short]), POD, 10.0) == [10, 0]


def test_jobs_that_are_not_published_one_by_one_count_with_their_mean() -> None:
    many = NodeState("a", 90.0, 0.0, 150.0, work_jobs=4, work_s=340.0, lefts_s=(300.0,), run_s=100.0)
    assert shared_s(NodeColumns.of([many]), 50.0).tolist() == [50.0 + 3 * 40.0 / 3]
