"""The annotation carico.dev/kinds: bounded, and nothing damaged gets in. No control plane is needed."""

import json
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.kube.kinds import MOST_BYTES, MOST_KINDS, KindOnNode, NodeKinds, decode, encode

AMOUNT = st.just(nan) | st.floats(0, 1.0)
COST = st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
KIND = st.builds(KindOnNode, COST, AMOUNT, st.integers(0, 200))
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=128)
KINDS = st.builds(NodeKinds, COST, COST, st.dictionaries(NAMES, KIND, max_size=30), st.integers(0, 100), COST)


@given(KINDS)
def test_what_is_written_is_read_and_no_pod_is_lost(given_kinds: NodeKinds) -> None:
    text = encode(given_kinds)
    assert len(text) <= MOST_BYTES
    found = decode(text)
    assert found is not None and len(found.kinds) <= MOST_KINDS
    assert list(found.kinds) == list(given_kinds.kinds)[: len(found.kinds)]  # the last ones are left out first
    pods = given_kinds.other + sum(kind.pods for kind in given_kinds.kinds.values())
    assert found.other + sum(kind.pods for kind in found.kinds.values()) == pods
    assert found.room == pytest.approx(given_kinds.room, rel=1e-3, abs=1e-9, nan_ok=True)
    assert found.used == pytest.approx(given_kinds.used, rel=1e-3, abs=1e-9, nan_ok=True)
    for name, kind in found.kinds.items():
        assert kind.cost == pytest.approx(given_kinds.kinds[name].cost, rel=1e-3, abs=1e-9, nan_ok=True)


def test_long_names_leave_out_kinds_before_they_exceed_four_kilobytes() -> None:
    many = {f"{n:03}" + "n" * 250: KindOnNode((1.0, 1e9, nan, nan), 3.0, 2) for n in range(40)}
    text = encode(NodeKinds(kinds=many, other=1))
    found = decode(text)
    assert MOST_BYTES - 400 < len(text) <= MOST_BYTES and found is not None
    assert 0 < len(found.kinds) < MOST_KINDS
    assert found.other == 1 + 2 * (40 - len(found.kinds))


GOOD = {"room": {"cpu": 2}, "next": {"cpu": 1}, "kinds": {"a": {"cpu": 0.5, "pods": 1}}, "other": 2}
BAD = [
    {"room": {"cpu": 1e300}},
    {"room": {"cpu": "2"}},
    {"room": {"cpu": True}},
    {"room": []},
    {"kinds": {"a": {"cpu": -1}}},
    {"kinds": {"a": {"cpu": 1, "pods": -1}}},
    {"kinds": {"a": {"cpu": 1, "pods": 1.5}}},
    {"kinds": {"a": 5}},
    {"kinds": {str(n): {} for n in range(17)}},
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
