"""Nodes as columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender.nodes import COLUMNS, NodeColumns, NodeState, NodeTable


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 99)), max_size=200))
def test_a_table_is_a_dictionary_of_nodes(changes: list[tuple[int, int | None]]) -> None:
    table, states = NodeTable(2), dict[str, NodeState]()
    for number, assigned in changes:
        name = str(number)
        if assigned is None:
            table.drop(name)
            states.pop(name, None)
        else:
            state = states.setdefault(name, NodeState(name, places=float(number)))
            state.assigned = assigned
            table.put(state)
        found = table.of(list(states))
        assert found.places.tolist() == [state.places for state in states.values()]
        assert found.assigned.tolist() == [state.assigned for state in states.values()]
        assert sorted(table.all().places.tolist()) == sorted(found.places.tolist())
        with pytest.raises(KeyError):
            table.of([*states, "none such"])


def test_columns_for_one_question_are_the_tables() -> None:
    states = [NodeState("a", 8.0, 1.0, 2.0, 3, 4, 5, 6, (), 0.5, 7, 9.0), NodeState("b", known={"x"})]
    table = NodeTable()
    for state in states:
        table.put(state)
    made, kept = NodeColumns.of(states), table.of(["a", "b"])
    for column in COLUMNS:
        assert repr(getattr(made, column).tolist()) == repr(getattr(kept, column).tolist())
    assert len(NodeColumns.of([])) == 0


def test_workloads_are_asked_only_where_they_matter() -> None:
    nodes = NodeColumns.of([NodeState("a"), NodeState("b", known={"x"}), NodeState("c")])
    assert nodes.unknown_workload("x", nodes.assigned == 0).tolist() == [True, False, True]
    assert nodes.unknown_workload("x", nodes.assigned > 0).tolist() == [False, False, False]
