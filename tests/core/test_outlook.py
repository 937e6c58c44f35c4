"""Outlook: the same battery as every estimator, and what it promises about days, gaps, clocks and Pods that change."""

import json
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core import Outlook, PodSample
from carico_agent.core.history import DAY_SLOTS, MAX_WORKLOADS, SLOT_S, SLOTS, UsageHistory
from carico_agent.core.lifetimes import MAX_ENDED, Lifetimes
from carico_agent.core.profile import BINS, Profile

DAY_S = 86400.0
START_T = 20_000 * DAY_S  # a midnight


def sample(uid: str, *usage: float, workload: str = "shop/web") -> PodSample:
    return PodSample(uid, workload, usage)


def day_of_work(slot: int) -> float:
    """0.1, and 0.5 from 12:00 to 13:00."""
    return 0.5 if slot % DAY_SLOTS in range(144, 156) else 0.1


def taught(days: float, pods: int = 1) -> Outlook:
    outlook = Outlook(("cpu", "memory"))
    for slot in range(int(days * DAY_SLOTS)):
        seen = [sample(f"web-{i}", day_of_work(slot) / pods, 0.2 / pods) for i in range(pods)]
        outlook.observe(START_T + slot * SLOT_S, seen)
    return outlook


def saved(outlook: Outlook) -> str:
    return json.dumps(outlook.state(), sort_keys=True, allow_nan=False)


def test_nothing_is_known_before_the_first_observation() -> None:
    outlook = Outlook()
    assert outlook.mode == "unknown"
    assert all(isnan(x) for x in outlook.peak(DAY_S))
    assert all(isnan(x) for x in outlook.now)
    assert outlook.band() == []
    assert isnan(outlook.peak_time(DAY_S))


def test_the_first_observation_already_answers() -> None:
    outlook = Outlook(("cpu",))
    outlook.observe(START_T, [sample("a", 0.3)])
    assert outlook.mode == "first day"
    assert outlook.peak(DAY_S)[0] >= 0.3


def test_a_node_without_pods_needs_nothing() -> None:
    outlook = taught(2)
    outlook.observe(START_T + 2 * DAY_S, [])
    assert outlook.peak(DAY_S) == (0.0, 0.0)


def test_tomorrows_noon_is_seen_at_midnight_and_not_needed_within_the_hour() -> None:
    outlook = taught(3)
    assert outlook.mode == "known"
    assert 0.49 < outlook.peak(DAY_S)[0] < 0.75
    assert outlook.peak(3600.0)[0] < 0.35
    assert outlook.peak_time(DAY_S) == START_T + 3 * DAY_S + 12 * 3600.0
    assert outlook.peak(DAY_S)[1] == pytest.approx(0.2, abs=0.02)


def test_a_longer_horizon_and_a_higher_quantile_never_promise_more_room() -> None:
    outlook = taught(4.3)
    by_horizon = [outlook.peak(s)[0] for s in (0.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 6 * 3600.0, DAY_S, 7 * DAY_S)]
    assert by_horizon == sorted(by_horizon)
    assert by_horizon[0] == pytest.approx(outlook.now[0])


def test_pods_that_left_are_not_counted_and_new_ones_have_their_workloads_past() -> None:
    outlook = taught(3, pods=4)
    t = START_T + 3 * DAY_S
    outlook.observe(t, [sample("web-0", 0.025, 0.05)])
    assert 0.12 < outlook.peak(DAY_S)[0] < 0.2  # one of four
    outlook.observe(t + 60, [sample(f"new-{i}", 0.025, 0.05) for i in range(8)])
    assert 0.97 < outlook.peak(DAY_S)[0] < 1.5  # twice as many


def test_added_pods_peak_with_those_that_run_or_apart_from_them() -> None:
    outlook = Outlook(("cpu",))
    for slot in range(4 * DAY_SLOTS):
        night = 0.5 if slot % DAY_SLOTS in range(12, 24) else 0.1
        pods = [sample("a", day_of_work(slot)), PodSample("b", "night", (night,))]
        outlook.observe(START_T + slot * SLOT_S, pods)
    alone = outlook.peak(DAY_S)[0]
    assert outlook.peak(DAY_S, added={"shop/web": 1})[0] - alone > 0.35
    assert outlook.peak(DAY_S, added={"nobody/knows": 3})[0] == alone


def test_a_workload_that_never_ran_here_has_the_day_that_others_know() -> None:
    outlook = taught(2)
    day = np.full((2, BINS), 0.05, np.float32)
    day[0, 24:26] = 0.4
    without = outlook.peak(DAY_S, added={"new": 1.0})[0]
    outlook.learn_elsewhere({"new": Profile(day, 60.0, 120.0, 5)})
    assert outlook.lifetime("new").horizon_s == 120.0
    assert outlook.knows("new")
    assert outlook.peak(DAY_S, added={"new": 1.0})[0] - without > 0.3
    outlook.observe(START_T + 2 * DAY_S, [sample("a", 0.1, 0.2), PodSample("n", "new", (0.05, 0.05))])
    assert outlook.peak(DAY_S)[0] > without + 0.3  # it runs now and will have that peak


def test_unknown_usage_is_survived_and_never_zero() -> None:
    outlook = taught(2)
    before = outlook.peak(DAY_S)
    for minute in range(20):
        outlook.observe(START_T + 2 * DAY_S + 60.0 * minute, [sample("web-0", nan, nan)])
    assert outlook.peak(DAY_S)[0] == pytest.approx(before[0], rel=0.1)
    only_cpu = Outlook()
    only_cpu.observe(START_T, [sample("a", 0.2, nan)])
    assert only_cpu.peak(DAY_S)[0] >= 0.2
    assert isnan(only_cpu.peak(DAY_S)[1])


def test_asking_changes_nothing_and_input_is_untouched() -> None:
    outlook, pods = taught(1.5), [sample("a", 0.1, 0.1)]
    outlook.observe(START_T + 1.5 * DAY_S, pods)
    state = saved(outlook)
    first = outlook.peak(DAY_S), outlook.band(), outlook.peak(60.0, 0.5, {"shop/web": 2})
    assert (outlook.peak(DAY_S), outlook.band(), outlook.peak(60.0, 0.5, {"shop/web": 2})) == first
    assert saved(outlook) == state
    assert pods == [sample("a", 0.1, 0.1)]


def test_a_gap_is_unknown_not_idle() -> None:
    """Two days of pause: what was known before them still counts, and the pause does not look like an idle node."""
    outlook = taught(3)
    for minute in range(6):
        outlook.observe(START_T + 5 * DAY_S + 60.0 * minute, [sample("web-0", 0.1, 0.2)])
    assert 0.4 < outlook.peak(DAY_S)[0] < 0.8
    assert outlook.known_s == 3 * DAY_S + 2 * SLOT_S


def test_one_reading_of_a_wrong_clock_costs_nothing() -> None:
    outlook = taught(3)
    outlook.observe(START_T + 4000 * DAY_S, [sample("web-0", 0.3, 0.2)])
    assert outlook.now[0] == pytest.approx(0.3, rel=1e-3)  # who runs is known at once
    assert outlook.known_s == SLOT_S
    outlook = Outlook.from_state(json.loads(saved(outlook)))
    outlook.observe(START_T + 3 * DAY_S, [sample("web-0", 0.1, 0.2)])
    assert outlook.known_s == 3 * DAY_S + SLOT_S
    assert 0.45 < outlook.peak(DAY_S)[0] < 0.75


def test_a_clock_that_stays_ahead_is_believed() -> None:
    outlook = taught(3)
    for minute in range(6):
        outlook.observe(START_T + 4000 * DAY_S + 60.0 * minute, [sample("web-0", 0.1, 0.2)])
    assert outlook.state()["aside"] is None
    outlook.observe(START_T + 3 * DAY_S, [sample("web-0", 0.1, 0.2)])
    assert outlook.known_s == SLOT_S


def test_a_clock_that_is_set_back_forgets_the_future_and_goes_on() -> None:
    outlook = taught(3)
    outlook.observe(START_T + 2.5 * DAY_S, [sample("web-0", 0.5, 0.2)])
    assert outlook.known_s == 2.5 * DAY_S + SLOT_S
    assert 0.4 < outlook.peak(DAY_S)[0] < 1.0
    outlook.observe(START_T + 2.5 * DAY_S + 60, [sample("web-0", 0.5, 0.2)])


def test_memory_is_bounded_whatever_comes() -> None:
    outlook = Outlook()
    for minute in range(400):
        pods = [PodSample(f"p-{minute}-{i}", f"job-{minute}-{i}", (0.01, 0.01)) for i in range(3)]
        outlook.observe(START_T + 60.0 * minute, pods)
    state = outlook.state()
    assert len(state["history"]["names"]) <= MAX_WORKLOADS
    assert len(state["lifetimes"]["since"]) == 3
    assert len(state["lifetimes"]["ended"]) <= MAX_WORKLOADS
    assert len(json.dumps(state)) < 1_000_000


def test_more_workloads_than_can_be_remembered_share_a_row() -> None:
    outlook = Outlook(("cpu",))
    pods = [PodSample(f"p-{i}", f"w-{i}", (0.01,)) for i in range(MAX_WORKLOADS + 20)]
    for minute in range(10):
        outlook.observe(START_T + 60.0 * minute, pods)
    assert outlook.now[0] == pytest.approx(0.84, rel=0.01)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 700), st.lists(st.tuples(st.integers(0, 5), st.floats(0, 2)), max_size=4)),
        min_size=2,
        max_size=60,
    ),
    st.data(),
)
def test_the_same_pods_fed_whole_or_across_a_restart_give_the_same_answer(
    rows: list[tuple[int, list[tuple[int, float]]]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    whole, parts, t = Outlook(("cpu",)), Outlook(("cpu",)), START_T
    for number, (after_s, seen) in enumerate(rows):
        t += after_s
        pods = [PodSample(f"{number % 3}-{i}", f"w-{w}", (x,)) for i, (w, x) in enumerate(seen)]
        if number == cut:
            parts = Outlook.from_state(json.loads(saved(parts)))
        whole.observe(t, pods)
        parts.observe(t, pods)
    assert saved(whole) == saved(parts)
    for horizon_s in (120.0, 3600.0, DAY_S):
        assert whole.peak(horizon_s) == parts.peak(horizon_s)


def test_damaged_and_foreign_states_are_refused_with_a_reason() -> None:
    good = json.loads(saved(taught(0.1)))
    for damage in (
        {"version": 0},
        {"history": None},
        {"history": {**good["history"], "usage": "AAAA"}},
        {"history": {**good["history"], "names": ["a", "a"]}},
        {"running": [["never seen", 1.0]]},
        {"lifetimes": {}},
    ):
        with pytest.raises(ValueError, match="outlook"):
            Outlook.from_state({**good, **damage})


@pytest.mark.parametrize("t", [nan, -1.0, float("inf")])
def test_a_time_that_is_none_is_refused(t: float) -> None:
    with pytest.raises(ValueError, match="wall clock"):
        Outlook().observe(t, [])


def test_the_ring_keeps_exactly_a_week() -> None:
    history = UsageHistory(1)
    history.row("a", {"a"})
    for slot in range(3 * SLOTS):
        history.advance(slot)
        history.take([0], np.array([[slot / 10_000]]))
    kept = history.in_order(history.per_pod([0], {}))[0, 0]
    assert kept[-1] == pytest.approx((3 * SLOTS - 1) / 10_000, rel=1e-3)
    assert kept[0] == pytest.approx(2 * SLOTS / 10_000, rel=1e-3)


def test_lifetimes_are_learned_from_pods_whose_start_and_end_were_seen() -> None:
    outlook = Outlook(("cpu",))
    for minute in range(200):
        pods = [sample("old", 0.1), PodSample(f"job-{minute // 5}", "batch/job", (0.1,))]
        outlook.observe(START_T + 60.0 * minute, pods)
    job, web = outlook.lifetime("batch/job"), outlook.lifetime("shop/web")
    assert job.ended == MAX_ENDED
    assert job.median_s == pytest.approx(240.0)
    assert job.horizon_s == pytest.approx(240.0)
    assert web.ended == 0
    assert web.horizon_s == DAY_S  # none has ended: the day
    assert web.oldest_s == 199 * 60.0


def test_pods_gone_after_a_pause_teach_no_lifetime() -> None:
    lifetimes = Lifetimes()
    lifetimes.observe(0.0, [])
    lifetimes.observe(60.0, [("a", "w")])
    lifetimes.pause()
    lifetimes.observe(90_000.0, [])
    assert lifetimes.of("w").ended == 0
