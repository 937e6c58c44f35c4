"""Dynamic EMA: spikes are swallowed, lasting changes are followed, time is measured."""

from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.core.ema import DynamicEma


def make(channels: int = 1) -> DynamicEma:
    return DynamicEma(channels, slow_s=1.0, fast_s=0.15, switch_s=0.3, band=0.03)


def feed(ema: DynamicEma, value: float, seconds: float, period_s: float = 0.1) -> float:
    for _ in range(round(seconds / period_s)):
        ema.update(period_s, [value])
    return ema.values[0]


def test_a_start_spike_of_200_ms_moves_it_by_less_than_a_fifth() -> None:
    ema = make()
    feed(ema, 0.2, 5)
    assert feed(ema, 1.0, 0.2) < 0.2 + 0.8 * 0.2
    assert feed(ema, 0.2, 2) == pytest.approx(0.2, abs=0.03)


def test_a_lasting_change_has_arrived_after_a_second() -> None:
    ema = make()
    feed(ema, 0.2, 5)
    assert feed(ema, 0.9, 1.0) == pytest.approx(0.9, abs=0.02)
    assert feed(ema, 0.1, 1.0) == pytest.approx(0.1, abs=0.02)


def test_unknown_samples_keep_the_value_and_unseen_channels_stay_unknown() -> None:
    ema = make(2)
    ema.update(0.1, [0.4, nan])
    ema.update(0.1, [nan, nan])
    assert ema.values[0] == 0.4
    assert isnan(ema.values[1])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 5)), min_size=1))
def test_it_stays_within_what_was_seen(samples: list[tuple[float, float]]) -> None:
    ema = make()
    for value, elapsed_s in samples:
        ema.update(elapsed_s, [value])
    seen = [value for value, _ in samples]
    assert min(seen) - 1e-12 <= ema.values[0] <= max(seen) + 1e-12


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 20))
def test_a_missed_tick_changes_only_the_resolution(before: float, after: float, ticks: int) -> None:
    """Slow smoothing over n ticks equals one step over the whole time."""
    many, one = (DynamicEma(1, 1.0, 1.0, 0.3, 0.03) for _ in range(2))
    many.update(0.1, [before])
    one.update(0.1, [before])
    feed(many, after, ticks * 0.1)
    one.update(ticks * 0.1, [after])
    assert many.values[0] == pytest.approx(one.values[0], abs=1e-9)
