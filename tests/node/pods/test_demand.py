"""Demand from counters: tables of what kernels report, and what must hold whatever they report."""

from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.pods.demand import CounterReading, demand

START = CounterReading(100.0, 0, 0, 0)


def after(seconds, usage, pressure=None, throttled=None, **more):
    """Counters `seconds` later; shares of that time."""
    usec = [None if share is None else int(share * seconds * 1e6) for share in (usage, pressure, throttled)]
    return CounterReading(100.0 + seconds, *usec, **more)


@pytest.mark.parametrize(
    ("usage", "pressure", "throttled", "more", "cores"),
    [
        # measured on two cores, 5 s windows: loops beside others
        (0.99, 0.00, 0.0, {}, 0.99),
        (0.89, 0.10, 0.0, {}, 0.99),
        (0.36, 0.63, 0.0, {}, 0.99),
        # a container at 20 % of a core: alone, beside two, beside five loops
        (0.20, 0.79, 0.80, {"quota_cores": 0.2}, 0.20),
        (0.20, 0.55, 0.60, {"quota_cores": 0.2}, 0.20),
        (0.20, 0.67, 0.39, {"quota_cores": 0.2}, 0.20),
        # crowded out of its quota: it wants all of it
        (0.10, 0.80, 0.10, {"quota_cores": 0.5}, 0.5),
        # four threads: pressure counts one, the run delay all
        (0.44, 0.96, 0.0, {}, 1.40),
        (0.44, 0.96, 0.0, {"delay_usec": 17_750_000}, 3.99),
        # a run delay is not used where a quota is part of it
        (0.20, 0.80, 0.80, {"delay_usec": 4_000_000}, 0.20),
        # no pressure on this kernel, no controller
        (0.50, None, None, {}, 0.50),
        (0.50, 0.25, None, {}, 0.75),
        # a quota that was changed a moment ago does not make usage unsaid
        (0.50, 0.0, 0.1, {"quota_cores": 0.2}, 0.50),
    ],
)
def test_cpu(usage, pressure, throttled, more, cores):
    assert demand(START, after(5.0, usage, pressure, throttled, **more)).cpu_cores == pytest.approx(cores, abs=0.01)


def test_a_counter_that_went_back_is_unknown():
    found = demand(CounterReading(0.0, 1000, 1000, 0), CounterReading(5.0, 999, 2000, 0, memory_bytes=7.0))
    assert isnan(found.cpu_cores) and isnan(found.cpu_usage_cores) and found.memory_bytes == 7.0


def test_no_time_passed():
    found = demand(START, CounterReading(100.0, 5, 5, 5, memory_bytes=7.0))
    assert isnan(found.cpu_cores) and found.memory_bytes == 7.0


def test_disks():
    found = demand(
        CounterReading(0.0, io_pressure_usec=0, io_bytes=1000),
        CounterReading(2.0, io_pressure_usec=500_000, io_bytes=5000),
    )
    assert (found.io_ratio, found.io_bytes_per_s) == (0.25, 2000.0)
    assert isnan(demand(START, after(5.0, 0.1)).io_ratio)


counts = st.none() | st.integers(0, 1 << 50)


@given(
    *[st.builds(CounterReading, st.floats(0, 1e6), counts, counts, counts, counts, st.floats(0.01, 64) | st.just(inf))]
    * 2,
)
def test_whatever_is_read(before, now):
    found = demand(before, now)
    elapsed_s = now.t - before.t
    if elapsed_s > 0 and None not in (before.cpu_usec, now.cpu_usec) and now.cpu_usec >= before.cpu_usec:
        used = (now.cpu_usec - before.cpu_usec) / 1e6 / elapsed_s
        assert found.cpu_usage_cores == pytest.approx(used)
        assert used * (1 - 1e-9) <= found.cpu_cores <= max(used, now.quota_cores) * (1 + 1e-9)
    else:
        assert isnan(found.cpu_cores)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_throttling_never_means_more_demand(usage, pressure, throttled):
    less, more = (demand(START, after(5.0, usage, pressure, t)).cpu_cores for t in (throttled / 2, throttled))
    assert more <= less + 1e-6


def test_unknown_memory_is_nan():
    assert isnan(demand(START, after(5.0, 0.1)).memory_bytes)
