"""procon: algorithm 2 of the document over what agents publish, and the refusals of pod-capacity."""

import json

from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender import policies
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.procon import ProCon
from carico_agent.extender.published import read_node
from carico_agent.node.publish.node_offer import _work
from carico_agent.node.publish.status import WorkStatus

POD = PendingPod("uid-1")


def node(name: str, now_s: float, later_s: float, at_limit: int) -> NodeState:
    return NodeState(
        name, 20.0, 0.0, 150.0, contention_s=now_s, expected_contention_s=later_s, at_limit=at_limit, assigned=1
    )


def scores(*nodes: NodeState) -> list[int]:
    return ProCon().scores(NodeColumns.of(nodes), POD, 10.0)


def test_it_is_found_by_its_name() -> None:
    assert isinstance(policies.load("procon", {}), ProCon)


def test_below_the_limit_the_contention_of_now_counts_however_large() -> None:
    assert scores(node("a", 500, 10, 0), node("b", 400, 20, 0), node("c", 0, 0, 1)) == [0, 10, 0]


def test_where_all_are_at_their_limit_the_contention_with_the_newcomer_counts() -> None:
    assert scores(node("a", 0, 300, 1), node("b", 400, 20, 1)) == [0, 10]


def test_its_flaw_an_empty_worker_and_one_with_a_single_job_tie() -> None:
    assert scores(NodeState("empty", 20.0, 0.0, 150.0), node("one", 0, 0, 0)) == [10, 10]


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(0, 1)), max_size=12))
def test_scores_are_whole_and_one_is_best(given_nodes: list[tuple[float, float, int]]) -> None:
    found = scores(*(node(str(at), *one) for at, one in enumerate(given_nodes)))
    assert all(0 <= score <= 10 for score in found)
    assert not found or max(found) == 10


def test_what_an_agent_publishes_is_what_the_extender_reads() -> None:
    work = WorkStatus(
        2, 0, 0, 90.5, 60.0, lefts_s=(60, 30), run_s=80.0, contention_s=5.0, expected_contention_s=7.0, at_limit=True
    )
    status = json.dumps({"time": "2024-01-01T00:00:00Z", "ttl_s": 150, "places": 7, "work": _work(work)})
    notes = {"carico.dev/slots": "8", "carico.dev/status": status}
    read = read_node({"metadata": {"name": "a", "annotations": notes}}, 1704067210.0).work
    assert (read.jobs, read.left_s, read.lefts_s, read.run_s) == (2, 90.5, (60.0, 30.0), 80.0)
    assert (read.contention_s, read.expected_contention_s, read.at_limit) == (5.0, 7.0, 1)
