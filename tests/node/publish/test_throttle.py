"""The write throttle: few writes, none missed, no flapping."""

from math import floor, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.publish.throttle import MAX_CREDIT, MAX_DEBT, Summary, ThrottleConfig, WriteThrottle, steady

CONFIG = ThrottleConfig()


@given(st.floats(0, 1e5), st.one_of(st.none(), st.integers(0, 100_000)))
def test_steady_is_near_the_floor_and_stays_put(slots: float, published: int | None) -> None:
    whole = steady(slots, published, CONFIG)
    assert whole is not None
    assert floor(slots) - 1 <= whole <= floor(slots) + 1
    assert whole <= slots + CONFIG.fall + 1e-9
    assert steady(slots, whole, CONFIG) == whole


@pytest.mark.parametrize("odd", [nan, inf, -1.0, 1e12])
def test_odd_numbers(odd: float) -> None:
    whole = steady(odd, 5, CONFIG)
    assert whole is None if odd != odd else whole is not None and 0 <= whole <= 1_000_000


def drive(values: list[float], period_s: float = 1.0, fail: bool = False) -> list[tuple[float, Summary, str]]:
    throttle, writes = WriteThrottle(), []
    for i, value in enumerate(values):
        summary = throttle.summary(value, "measured")
        if reason := throttle.reason(i * period_s, summary):
            writes.append((i * period_s, summary, reason))
            if not fail:
                throttle.wrote(i * period_s, summary)
    return writes


def test_a_quiet_node_writes_once_a_minute() -> None:
    rng = np.random.default_rng(1)
    writes = drive((8.0 + rng.normal(0, 0.05, 600)).tolist())
    assert len(writes) <= 11
    assert {summary.slots for _, summary, _ in writes[1:]} == {writes[-1][1].slots}


@pytest.mark.parametrize("pace_s", [5.0, 60.0])
def test_a_wild_node_writes_once_per_pace_on_the_average(pace_s: float) -> None:
    rng = np.random.default_rng(2)
    throttle, writes = WriteThrottle(), 0
    throttle.pace_s, throttle.repeat_s = pace_s, inf
    for now_s, value in enumerate(rng.uniform(0, 100, 6000).tolist()):
        summary = throttle.summary(value, "measured")
        if throttle.reason(now_s, summary):
            writes += 1
            throttle.wrote(now_s, summary)
    # debt that exceeds the most is forgiven, so a little more is possible
    assert 6000 / pace_s / 2 <= writes <= 1.1 * 6000 / pace_s + MAX_CREDIT + MAX_DEBT


def test_a_fall_waits_for_nothing_and_the_next_rise_pays_for_it() -> None:
    throttle = WriteThrottle()
    throttle.pace_s = 60.0
    throttle.repeat_s = inf
    throttle.wrote(0.0, throttle.summary(9.5, "measured"))
    for now_s, slots in ((1.0, 8.5), (2.0, 7.5), (3.0, 3.5)):  # credit for two writes, and three falls
        summary = throttle.summary(slots, "measured")
        assert throttle.reason(now_s, summary), f"{slots} at {now_s} s"
        throttle.wrote(now_s, summary)
    rises = [throttle.reason(now_s, throttle.summary(9.5, "measured")) for now_s in (60.0, 120.0, 179.0, 181.0)]
    assert rises == [None, None, None, "slots 3 -> 9"]


@given(st.lists(st.floats(0.0, 1.29), max_size=20), st.floats(1.0, 1.29))
def test_an_empty_node_that_fits_one_pod_offers_one(before: list[float], now: float) -> None:
    """Whatever its number was before. At 1.12 it stayed at 0 for as long as it was empty."""
    throttle = WriteThrottle()
    for now_s, value in enumerate([*before, *[now] * 60]):
        if throttle.reason(now_s, summary := throttle.summary(value, "measured")):
            throttle.wrote(now_s, summary)
    assert throttle.summary(now, "measured").slots == 1


def test_the_first_place_does_not_flap() -> None:
    rng = np.random.default_rng(3)
    writes = drive((1.0 + rng.uniform(-0.09, 0.09, 600)).tolist())
    assert [summary.slots for _, summary, _ in writes[2:]] == [1] * (len(writes) - 2)
    assert len(writes) <= 12


def test_heartbeats_come_well_before_the_ttl() -> None:
    times = [t for t, _, _ in drive([8.4] * 600)]
    assert max(np.diff(times)) <= CONFIG.ttl_s / 2


def test_a_failed_write_is_offered_again() -> None:
    assert len(drive([8.4] * 10, fail=True)) == 10


def test_reasons_are_published() -> None:
    throttle = WriteThrottle()
    throttle.wrote(0.0, throttle.summary(8.4, "learning"))
    assert throttle.reason(10.0, throttle.summary(nan, "measured")) == "slots 8 -> unknown"
    assert throttle.reason(10.0, throttle.summary(8.4, "measured")) == "mode learning -> measured"
    assert throttle.reason(10.0, throttle.summary(8.4, "learning")) is None
    throttle.forget()
    assert throttle.reason(10.0, throttle.summary(8.4, "learning")) == "first"


def test_large_nodes_do_not_report_every_pod() -> None:
    throttle = WriteThrottle()
    throttle.wrote(0.0, throttle.summary(100.5, "measured"))
    assert throttle.summary(101.9, "measured").slots == 100
    assert throttle.summary(104.9, "measured").slots == 104


@pytest.mark.parametrize("bad", [{"ttl_s": 100.0}, {"min_interval_s": 0.0}, {"min_interval_s": 61.0}, {"rise": 1.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        WriteThrottle(ThrottleConfig(**bad))


def written_work(works: list[float], period_s: float = 10.0) -> list[float]:
    """The work left that is published while it goes through `works`, and nothing else changes."""
    throttle, found = WriteThrottle(), list[float]()
    throttle.repeat_s = inf
    for at, work_s in enumerate(works):
        summary = throttle.summary(8.5, "measured", work_s)
        if throttle.reason(at * period_s, summary):
            throttle.wrote(at * period_s, summary)
            found.append(summary.work_s)
    return found


def test_work_that_shrinks_evenly_is_worth_few_writes_and_its_end_is_one() -> None:
    """An hour of work on one core: each number is a quarter below the one before, the last is 0."""
    found = written_work([max(0.0, 3600.0 - 10.0 * at) for at in range(400)])
    assert len(found) < 20
    assert found[0] == 3600.0
    assert found[-1] == 0.0


def test_what_is_published_is_never_further_off_than_a_quarter_or_half_a_minute() -> None:
    works = [1000.0, 990.0, 400.0, 395.0, 380.0, 20.0, 15.0, 0.0, 5.0, 0.0]
    throttle = WriteThrottle()
    for at, work_s in enumerate(works):
        summary = throttle.summary(8.5, "measured", work_s)
        assert abs(summary.work_s - work_s) < max(30.0, 0.25 * max(summary.work_s, work_s))
        assert (summary.work_s > 0) == (work_s > 0)
        throttle.wrote(60.0 * at, summary)


def test_with_carico_every_whole_step_of_pod_capacity_is_written_once_a_second() -> None:
    """The policy capacity counts with Pod-Capacity, which moves with every Pod while slots stand still."""
    throttle = WriteThrottle()
    throttle.wrote(0.0, throttle.summary(8.0, "measured", pod_capacity=5.2))
    fewer = throttle.summary(8.0, "measured", pod_capacity=3.9)
    assert [throttle.reason(now_s, fewer) for now_s in (0.5, 1.0)] == [None, "Pod-Capacity 5 -> 3"]
    assert throttle.reason(1.0, throttle.summary(8.0, "measured", pod_capacity=5.9)) is None
    measured = WriteThrottle()
    measured.wrote(0.0, measured.summary(8.0, "measured"))
    assert measured.reason(4.0, measured.summary(8.0, "measured")) is None
