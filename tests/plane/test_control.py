"""Shares, and every transition of the reserve."""

import random

import pytest

from carico_agent.plane.control import COOLING, MAX_CALM, ServerState, decide
from carico_agent.plane.recommend import SeatRecommendation
from carico_agent.plane.seats import NAME, SHARES, Levels, ReserveObject, read_levels, spec_of
from carico_agent.plane.shares import ServerSeats, kept_of, min_seats, reserve_for, seats_of

DEFAULTS = {
    "system": 30,
    "leader-election": 10,
    "workload-high": 40,
    "workload-low": 100,
    "global-default": 20,
    "catch-all": 5,
}
WISH = SeatRecommendation(20, 3, 1.5, 8.0, 0.0005, True)


def test_seats_as_kube_apiserver_says_them() -> None:
    """Read from the metrics of kube-apiserver 1.20 with its default 600 seats."""
    assert list(seats_of(600, DEFAULTS).values()) == [88, 30, 118, 293, 59, 15]


def test_the_reserve_is_the_largest_that_leaves_enough() -> None:
    choose = random.Random(7)
    for _ in range(300):
        shares = {str(n): choose.randint(1, 200) for n in range(choose.randint(1, 9))}
        server, wanted = choose.randint(1, 3000), choose.randint(1, 700)
        reserve = reserve_for(server, shares, wanted)
        floor = max(wanted, min_seats(shares))
        if reserve == 0:
            assert sum(seats_of(server, shares, 1).values()) < floor
            continue
        assert sum(seats_of(server, shares, reserve).values()) >= floor
        if reserve < 2**31 - 1:
            assert sum(seats_of(server, shares, reserve + 1).values()) < floor


def test_a_level_keeps_what_it_needs() -> None:
    reserve = reserve_for(600, DEFAULTS, 20, {"system": 12, "gone": 50})
    left = seats_of(600, DEFAULTS, reserve)
    assert left["system"] == 12 and seats_of(600, DEFAULTS, reserve + 1)["system"] == 11
    reserve = reserve_for(600, DEFAULTS, 20, {"catch-all": 99})
    assert seats_of(600, DEFAULTS, reserve)["catch-all"] == 15, "it has no more without any reserve"


def test_what_a_level_needs_is_not_lent() -> None:
    """A greedy level may borrow all that is lendable."""
    lendable = {"system": 33, "workload-low": 90}
    needs = {"system": 12, "workload-low": 3}
    left = seats_of(600, DEFAULTS, reserve_for(600, DEFAULTS, 20, needs, lendable))
    assert [kept_of(left[level], lendable[level]) for level in needs] == [12, 6]
    left = seats_of(600, DEFAULTS, reserve_for(600, DEFAULTS, 20, needs))
    assert kept_of(left["system"], 33) == 8, "what it would keep if nobody looked at that"
    reserve = reserve_for(600, DEFAULTS, 20, {"workload-low": 99}, lendable)
    assert kept_of(seats_of(600, DEFAULTS, reserve)["workload-low"], 90) == 29, "it keeps no more without a reserve"


def test_every_level_keeps_a_seat() -> None:
    reserve = reserve_for(600, DEFAULTS, 1)
    assert set(seats_of(600, DEFAULTS, reserve).values()) == {1}


def test_the_servers_seats_are_narrowed_down() -> None:
    choose = random.Random(3)
    for _ in range(100):
        server, known = choose.randint(50, 4000), ServerSeats()
        for _ in range(6):
            reserve = choose.randint(0, 5000)
            everything = {**DEFAULTS, NAME: reserve} if reserve else DEFAULTS
            known.see(seats_of(server, everything), everything)
            assert known.low <= server <= known.high
        assert known.known and known.high - known.low <= 1


def test_another_server_is_begun_anew() -> None:
    known = ServerSeats()
    known.see(seats_of(600, DEFAULTS), DEFAULTS)
    assert known.value == 600
    known.see(seats_of(3000, DEFAULTS), DEFAULTS)
    assert known.low <= 3000 <= known.high


def test_shares_not_applied_yet_say_nothing() -> None:
    known = ServerSeats()
    known.see(seats_of(600, DEFAULTS), {**DEFAULTS, "system": 300})
    assert not known.known


OURS = ReserveObject("7", reserve_for(600, DEFAULTS, 20))
FEW = ReserveObject("7", 10)
EDITED = ReserveObject("7", 5, "another client changed it")


@pytest.mark.parametrize(
    ("mode", "missed", "ours", "found", "leading", "action"),
    [
        ("write", 0, None, WISH, True, "write"),
        ("write", 0, FEW, WISH, True, "write"),
        ("write", 0, OURS, WISH, True, "hold"),
        ("write", 0, None, "no requests", True, "hold"),
        ("write", 0, OURS, "no requests", True, "hold"),
        ("write", 1, OURS, "unknown", True, "hold"),
        ("write", 2, OURS, "unknown", True, "hold"),
        ("write", 3, OURS, "unknown", True, "remove"),
        ("write", 3, None, "unknown", True, "hold"),
        ("write", 9, OURS, WISH, True, "remove"),
        ("write", 0, OURS, WISH, False, "hold"),
        ("write", 3, OURS, WISH, False, "hold"),
        ("write", 0, EDITED, WISH, True, "yield"),
        ("write", 3, EDITED, WISH, True, "yield"),
        ("recommend", 0, None, WISH, True, "hold"),
        ("recommend", 0, OURS, WISH, True, "remove"),
        ("recommend", 0, EDITED, WISH, True, "yield"),
        ("off", 0, OURS, WISH, True, "remove"),
        ("off", 0, OURS, WISH, False, "hold"),
    ],
)
def test_transitions(mode, missed, ours, found, leading, action) -> None:
    step = decide(ServerState(mode, Levels(DEFAULTS, ours), 600, found, missed, leading))
    assert step.action == action
    if action == "write":
        assert step.shares == reserve_for(600, DEFAULTS, 20)


def test_a_deleted_object_is_not_made_again() -> None:
    gone = Levels(DEFAULTS, None)
    step = decide(ServerState("write", gone, 600, WISH, held=99))
    assert step.action == "yield" and "deleted" in step.why
    assert decide(ServerState("write", gone, 600, WISH, yielded=step.why)) == step
    assert decide(ServerState("write", gone, 600, WISH, leading=False, held=99)).action == "hold"


@pytest.mark.parametrize("why", ["no requests", "0.10 of 2 cores are busy", "unknown: counters were reset"])
def test_a_reserve_goes_after_the_peak(why: str) -> None:
    """It held for ever: after one peak 26 of 600 seats were left until the service stopped."""
    steps = [
        decide(ServerState("write", Levels(DEFAULTS, OURS), 600, why, calm=calm)) for calm in range(1, MAX_CALM + 1)
    ]
    assert [step.action for step in steps] == ["hold", "hold", "remove"]
    assert why in steps[-1].why


def test_a_reserve_goes_at_once_when_requests_wait_though_the_cpu_has_room() -> None:
    waits = "40 requests wait in level workload-low, and it rejected 9"
    step = decide(ServerState("write", Levels(DEFAULTS, OURS), 600, "not busy", calm=1, held_up=waits))
    assert step.action == "remove" and waits in step.why
    later = decide(ServerState("write", Levels(DEFAULTS, None), 600, WISH, cooling=COOLING))
    assert later.action == "hold" and "made requests wait" in later.why


def test_a_reserve_is_sized_in_seats_and_says_what_it_does_to_lists() -> None:
    """A LIST takes at most 15 % of its level's seats: 37 of the 293 of workload-low, 1 of 9 beside a reserve."""
    levels = Levels(DEFAULTS, None, {}, {"workload-low": 6})
    narrow = decide(ServerState("write", levels, 600, WISH, widths={"workload-low": 1.2}))
    wide = decide(ServerState("write", levels, 600, WISH, widths={"workload-low": 9.0}))
    assert narrow.shares == wide.shares, "beside it each LIST takes one seat"
    assert "count" not in narrow.why and "count as 1 of its seats, and not as 9" in wide.why
    many = SeatRecommendation(150, 3, 1.5, 8.0, 0.0005, True)
    half = decide(ServerState("write", levels, 600, many, widths={"workload-low": 2.0}))
    assert sum(seats_of(600, DEFAULTS, half.shares).values()) >= 300, "LISTs of two seats need twice as many"


def test_no_reserve_where_the_levels_have_no_more() -> None:
    assert decide(ServerState("write", Levels(DEFAULTS, OURS), 10, WISH)).action == "remove"
    assert decide(ServerState("write", Levels(DEFAULTS, None), 10, WISH)).action == "hold"


@pytest.mark.parametrize("version", ["v1", "v1beta3", "v1beta2", "v1beta1"])
def test_the_object_is_its_own_record(version: str) -> None:
    def item(shares: int, **change: object) -> dict[str, object]:
        meta = {"name": NAME, "resourceVersion": "5", "annotations": {SHARES: str(shares)}}
        return {"metadata": meta, "spec": {**spec_of(version, shares), "exempt": None, **change}}

    key = "nominalConcurrencyShares" if version in ("v1", "v1beta3") else "assuredConcurrencyShares"
    others = [
        {"metadata": {"name": "system"}, "spec": {"type": "Limited", "limited": {key: 30}}},
        {"metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}},
    ]
    found = read_levels([*others, item(99)], version)
    assert found == Levels({"system": 30}, ReserveObject("5", 99), {"system": 0})
    assert found.all_shares == {"system": 30, NAME: 99}
    changed = item(99)
    changed["spec"]["limited"][key] = 7  # type: ignore[index]
    assert "another client changed it" in read_levels([changed], version).ours.edited  # type: ignore[union-attr]
    foreign = {"metadata": {"name": NAME}, "spec": spec_of(version, 3)}
    assert "not made by carico" in read_levels([foreign], version).ours.edited  # type: ignore[union-attr]


def test_a_reserve_written_before_an_upgrade_is_ours() -> None:
    """Written through v1beta2 of 1.25, read through v1beta3 of 1.26: it counted as edited by another client."""
    noted = {"name": NAME, "resourceVersion": "5", "annotations": {SHARES: "99"}}
    for lendable in ({}, {"lendablePercent": 0}, {"lendablePercent": 0, "borrowingLimitPercent": None}):
        limited = {"nominalConcurrencyShares": 99, "limitResponse": {"type": "Reject"}, **lendable}
        ours = read_levels([{"metadata": noted, "spec": {"type": "Limited", "limited": limited}}], "v1beta3").ours
        assert ours is not None and not ours.edited
    limited = {"nominalConcurrencyShares": 99, "limitResponse": {"type": "Reject"}, "lendablePercent": 50}
    ours = read_levels([{"metadata": noted, "spec": {"type": "Limited", "limited": limited}}], "v1beta3").ours
    assert ours is not None and "another client changed it" in ours.edited
