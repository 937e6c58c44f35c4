"""capacity: filter, score and reserve of *CARICO* 3.6; against the rule written for one node in plain Python."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender import policies
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.capacity import Capacity
from carico_agent.extender.published import read_node

POD = PendingPod("uid-1")
states = st.builds(
    NodeState,
    st.just("a"),
    places=st.just(8.0),
    published_s=st.just(0.0),
    ttl_s=st.just(150.0),
    pod_capacity=st.just(nan) | st.floats(0, 20),
    assigned=st.integers(0, 20),
    starting=st.integers(0, 12),
)


@given(st.lists(states, min_size=1, max_size=8))
def test_the_rule_of_the_document(nodes: list[NodeState]) -> None:
    policy, columns = Capacity(), NodeColumns.of(nodes)
    fits = policy.fits(columns, POD, now_s=10.0).tolist()
    assert fits == [node.pod_capacity - node.starting >= 1 for node in nodes]  # NaN is never at least 1
    left = [node.pod_capacity - node.starting for node, fit in zip(nodes, fits, strict=True) if fit]
    scores = [score for score, fit in zip(policy.scores(columns, POD, 10.0), fits, strict=True) if fit]
    for a, one in zip(scores, left, strict=True):
        assert 0 <= a <= 10 and all(a >= b for b, other in zip(scores, left, strict=True) if one >= other)


def test_it_is_found_and_closed_when_stale() -> None:
    policy = policies.load("capacity", {"capacity": {"least": 2}})
    node = NodeState("a", 8, 0, 150, pod_capacity=2.4, starting=1)
    assert policy.refusal(node, POD, 10) == "no room: Pod-Capacity 2.4, 1 reserved"
    assert policy.refusal(node, POD, 200) == "stale: published 200 s ago, valid for 150 s"


@pytest.mark.parametrize(("text", "read"), [("3.25", 3.25), ("inf", None), ("nan", None), (None, None)])
def test_pod_capacity_is_read_from_the_node(text: str | None, read: float | None) -> None:
    notes = {"carico.dev/slots": "8", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150,"places":7}'}
    notes |= {} if text is None else {"carico.dev/pod-capacity": text}
    found = read_node({"metadata": {"name": "a", "annotations": notes}}, 1704067210.0)
    assert found.places == 7 and (found.pod_capacity == read if read else found.pod_capacity != found.pod_capacity)
