"""Reservations: never more than there is, never longer than allowed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from carico_agent.node.reservations import BadReservation, NotAvailable, Reservations, TooMany


def some() -> Reservations:
    return Reservations(most=100, max_ttl_s=600)


def test_room_is_whole_pods() -> None:
    held = some()
    assert held.available(0, 2.999) == 2
    assert held.available(0, 3.0) == 3
    assert held.available(0, 0.1 + 0.2 + 2.7) == 3  # 2.9999999999999996
    assert held.available(0, None) == held.available(0, float("nan")) == held.available(0, float("inf")) == 0


def test_the_refusal_says_what_is_available() -> None:
    held = some()
    held.reserve(0, 5.0, pods=3, ttl_s=10)
    with pytest.raises(NotAvailable) as refused:
        held.reserve(0, 5.0, pods=3, ttl_s=10)
    assert refused.value.available == 2


def test_ends_by_release_by_time_and_by_the_start_of_its_pod() -> None:
    held = some()
    a = held.reserve(0, 9.0, pods=1, ttl_s=10)
    held.reserve(0, 9.0, pods=2, ttl_s=20)
    held.reserve(0, 9.0, pods=4, ttl_s=30, pod_uid="u1")
    assert held.release(a.id) == a
    assert held.release(a.id) is None
    assert held.total(0) == 6
    assert held.total(20) == 4
    assert [r.pods for r in held.started(["u0", "u1", ""])] == [4]
    assert held.total(20) == 0


BAD = [
    {"pods": 0},
    {"pods": -1},
    {"pods": 1.0},
    {"pods": True},
    {"pods": "1"},
    {"pods": None},
    {"pods": 10_001},
    {"ttl_s": 0},
    {"ttl_s": -1},
    {"ttl_s": 601},
    {"ttl_s": float("nan")},
    {"ttl_s": "5"},
    {"ttl_s": True},
    {"holder": 5},
    {"holder": "x" * 254},
    {"pod_uid": []},
    {"workload": 7},
    {"workload": "x" * 254},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_bad_requests_are_refused_and_change_nothing(change: dict[str, object]) -> None:
    held = some()
    with pytest.raises(BadReservation):
        held.reserve(0, 50_000.0, **({"pods": 1, "ttl_s": 5} | change))  # type: ignore[arg-type]
    assert held.all(0) == []


def test_the_number_is_bounded() -> None:
    held = Reservations(most=2, max_ttl_s=600)
    for _ in range(2):
        held.reserve(0, 50.0, pods=1, ttl_s=5)
    with pytest.raises(BadReservation, match="2 reservations are held"):
        held.reserve(0, 50.0, pods=1, ttl_s=5)


def test_the_limits_of_an_owner_count_pods() -> None:
    held = Reservations(most=100, max_ttl_s=600, owner_pods=5)
    held.reserve(0, 20.0, pods=4, ttl_s=9, owner="uid 1")
    with pytest.raises(TooMany, match="uid 1 may hold 5 Pods"):
        held.reserve(0, 20.0, pods=2, ttl_s=9, owner="uid 1")
    held.reserve(0, 20.0, pods=1, ttl_s=9, owner="uid 1")
    held.reserve(0, 20.0, pods=5, ttl_s=9, owner="uid 2")
    assert held.reserve(0, 20.0, pods=10, ttl_s=9).owner == ""  # root and the agent's own user are not limited


def test_an_owner_leaves_room_for_others() -> None:
    held = Reservations(most=100, max_ttl_s=600, owner_ratio=0.5)
    held.reserve(0, 9.0, pods=4, ttl_s=9, owner="uid 1")
    with pytest.raises(TooMany, match="uid 1 may hold 50% of the room"):
        held.reserve(0, 9.0, pods=1, ttl_s=9, owner="uid 1")
    held.reserve(0, 9.0, pods=4, ttl_s=9, owner="uid 2")


def test_an_owner_may_always_hold_one_pod() -> None:
    held = Reservations(most=100, max_ttl_s=600, owner_ratio=0.1)
    held.reserve(0, 2.0, pods=1, ttl_s=9, owner="uid 1")
    with pytest.raises(TooMany):
        held.reserve(0, 2.0, pods=1, ttl_s=9, owner="uid 1")
    held.reserve(0, 2.0, pods=1, ttl_s=9, owner="uid 2")


def test_heavy_workloads_take_more_places() -> None:
    held, again = some(), some()
    held.reserve(0, 6.0, pods=2, ttl_s=9, workload="shop/db", each=2.0)
    assert (held.available(0, 6.0), held.available(0, 6.0, each=2.0), held.total(0)) == (2, 1, 2)
    with pytest.raises(NotAvailable):
        held.reserve(0, 6.0, pods=2, ttl_s=9, workload="shop/db", each=2.0)
    again.restore(held.state(), now_s=1)
    assert [(r.workload, r.each) for r in again.all(1)] == [("shop/db", 2.0)]
    assert again.available(1, 6.0) == 2
    for each in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="places for one Pod"):
            some().restore([held.state()[0] | {"each": each}], now_s=1)


def test_rows_of_an_earlier_version_are_taken() -> None:
    held = some()
    held.restore([{"id": "a", "pods": 3, "holder": "", "expires_s": 9.0, "pod_uid": "", "owner": ""}], now_s=1)
    assert held.available(1, 5.0) == 2


def test_a_restart_keeps_promises_and_a_wrong_clock_prolongs_none() -> None:
    held, again = some(), some()
    held.reserve(1000, 9.0, pods=1, ttl_s=10)
    held.reserve(1000, 9.0, pods=2, ttl_s=600, holder="h", pod_uid="u")
    again.restore(held.state(), now_s=1011)
    assert [(r.pods, r.holder, r.pod_uid) for r in again.all(1011)] == [(2, "h", "u")]
    back = some()
    back.restore(held.state(), now_s=0)  # the clock was set back: nothing lasts longer than 600 s from now
    assert back.total(599) == 3
    assert back.total(600) == 0


class AnyClients(RuleBasedStateMachine):
    """Whatever clients do: what is promised was available when it was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.now_s, self.room = some(), 0.0, 5.0
        self.promised: dict[str, tuple[int, float]] = {}

    @rule(pods=st.integers(1, 6), ttl_s=st.floats(0.1, 600))
    def reserve(self, pods: int, ttl_s: float) -> None:
        before = self.total()
        try:
            made = self.held.reserve(self.now_s, self.room, pods, ttl_s)
        except NotAvailable as refused:
            assert refused.available == max(0, int(self.room) - before)
            assert pods > refused.available
        else:
            assert before + pods <= self.room
            self.promised[made.id] = (pods, self.now_s + ttl_s)

    @rule(room=st.floats(0, 40))
    def usage_changes(self, room: float) -> None:
        self.room = room

    @rule(seconds=st.floats(0, 300))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.promised:
            key = list(self.promised)[data.draw(st.integers(0, len(self.promised) - 1))]  # ids are random, order is not
            self.held.release(key)
            del self.promised[key]

    @rule()
    def restart(self) -> None:
        state, self.held = self.held.state(), some()
        self.held.restore(state, self.now_s)

    def total(self) -> int:
        return sum(pods for pods, until_s in self.promised.values() if until_s > self.now_s)

    @invariant()
    def counts_agree(self) -> None:
        assert self.held.total(self.now_s) == self.total()


TestAnyClients = AnyClients.TestCase


@given(st.lists(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=4)), max_size=3))
def test_damaged_rows_raise_only_what_the_api_expects(rows: list[dict[str, object]]) -> None:
    with contextlib.suppress(TypeError, ValueError):
        some().restore(rows, 0.0)
