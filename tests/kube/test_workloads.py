"""The annotation carico.dev/workloads: bounded, and nothing damaged gets in. No control plane is needed."""

import json
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.lib.kube.workloads import MAX_BYTES, MAX_WORKLOADS, NodeWorkloads, WorkloadOnNode, decode, encode

AMOUNT = st.just(nan) | st.floats(0, 1.0)
COST = st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
WORKLOAD = st.builds(WorkloadOnNode, COST, AMOUNT, st.integers(0, 200))
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=128)
WORKLOADS = st.builds(
    NodeWorkloads, COST, COST, st.dictionaries(NAMES, WORKLOAD, max_size=30), st.integers(0, 100), COST
)


@given(WORKLOADS)
def test_what_is_written_is_read_and_no_pod_is_lost(given_workloads: NodeWorkloads) -> None:
    text = encode(given_workloads)
    assert len(text) <= MAX_BYTES
    found = decode(text)
    assert found is not None and len(found.workloads) <= MAX_WORKLOADS
    assert (
        list(found.workloads) == list(given_workloads.workloads)[: len(found.workloads)]
    )  # the last ones are left out first
    pods = given_workloads.other + sum(workload.pods for workload in given_workloads.workloads.values())
    assert found.other + sum(workload.pods for workload in found.workloads.values()) == pods
    assert found.room == pytest.approx(given_workloads.room, rel=1e-3, abs=1e-9, nan_ok=True)
    assert found.used == pytest.approx(given_workloads.used, rel=1e-3, abs=1e-9, nan_ok=True)
    for name, workload in found.workloads.items():
        assert workload.cost == pytest.approx(given_workloads.workloads[name].cost, rel=1e-3, abs=1e-9, nan_ok=True)


def test_long_names_leave_out_workloads_before_they_exceed_four_kilobytes() -> None:
    many = {f"{n:03}" + "n" * 250: WorkloadOnNode((1.0, 1e9, nan, nan), 3.0, 2) for n in range(40)}
    text = encode(NodeWorkloads(workloads=many, other=1))
    found = decode(text)
    assert MAX_BYTES - 400 < len(text) <= MAX_BYTES and found is not None
    assert 0 < len(found.workloads) < MAX_WORKLOADS
    assert found.other == 1 + 2 * (40 - len(found.workloads))


GOOD = {"room": {"cpu": 2}, "next": {"cpu": 1}, "workloads": {"a": {"cpu": 0.5, "pods": 1}}, "other": 2}
BAD = [
    {"room": {"cpu": 1e300}},
    {"room": {"cpu": "2"}},
    {"room": {"cpu": True}},
    {"room": []},
    {"workloads": {"a": {"cpu": -1}}},
    {"workloads": {"a": {"cpu": 1, "pods": -1}}},
    {"workloads": {"a": {"cpu": 1, "pods": 1.5}}},
    {"workloads": {"a": 5}},
    {"workloads": {str(n): {} for n in range(17)}},
    {"other": 10**9},
    {"used": {"memory": "all"}},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_damaged_ones_are_no_annotation(change: dict[str, object]) -> None:
    assert decode(json.dumps(GOOD)) is not None
    assert decode(json.dumps(GOOD | change)) is None


@pytest.mark.parametrize("text", ["", "{", "null", "5", "[" * 4000, '{"room":{"cpu":NaN}}', " " * 5000])
def test_what_is_no_json_of_ours_is_no_annotation(text: str) -> None:
    assert decode(text) is None
