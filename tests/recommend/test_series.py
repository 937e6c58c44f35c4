"""Bad points are dropped and counted; gaps are filled up to three samples; one by one gives what bulk gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.recommend.series import Tail, clean, last_run, rates

NAN = float("nan")


@pytest.mark.parametrize(
    ("t", "v", "left", "dropped"),
    [
        ([0, 60, 120], [1, 2, 3], [1, 2, 3], {}),
        ([0, 60, 120], [1, NAN, 3], [1, 3], {"unknown": 1}),
        ([0, 60, 120], [1, float("inf"), 3], [1, 3], {"unknown": 1}),
        ([0, 60, 120], [1, -2, 3], [1, 3], {"negative": 1}),
        ([0, 120, 60, 120, 180], [1, 2, 9, 9, 3], [1, 2, 3], {"out of order": 2}),
        ([], [], [], {}),
    ],
)
def test_clean(t: list, v: list, left: list, dropped: dict) -> None:
    _, values, counted = clean(np.array(t, float), np.array(v, float))
    assert values.tolist() == left and dict(counted) == dropped


def test_rates_of_a_counter_that_was_reset() -> None:
    t_s, cores, dropped = rates(np.array([0.0, 60, 120, 180, 300]), np.array([0.0, 60, 6, 36, 60]))
    assert cores.tolist() == [1.0, 0.5, 0.2] and t_s.tolist() == [60, 180, 300]
    assert dict(dropped) == {"counter reset": 1}
    assert rates(np.array([5.0]), np.array([1.0]))[1].size == 0


@pytest.mark.parametrize(
    ("t", "run"),
    [
        ([0, 60, 120], [0, 60, 120]),
        ([0, 240], [0, 60, 120, 180, 240]),  # three missing: interpolated
        ([0, 300, 360], [300, 360]),  # four missing: starts anew
        ([0, 60, 600], [600]),
    ],
)
def test_gaps(t: list, run: list) -> None:
    times = np.array(t, float)
    assert last_run(times, times).tolist() == run
    tail = Tail()
    for at in t:
        tail.push(at, at)
    assert tail.values.tolist() == pytest.approx(run)


@given(st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1e12)), max_size=400))
def test_one_by_one_is_in_bulk(steps: list) -> None:
    t_s = np.cumsum([60.0 * step for step, _ in steps])
    values = np.array([value for _, value in steps])
    tail = Tail()
    for at, value in zip(t_s, values, strict=True):
        tail.push(float(at), float(value))
    assert tail.values == pytest.approx(last_run(t_s, values), rel=1e-9, abs=1e-3)
    assert tail.values.size <= 120 and tail._values.size == 240
