"""Demand from counters: tables of what kernels report, and what must hold whatever they report."""

from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.pods.demand import WAITS_RATIO, CounterReading, ThreadTimes, demand

START = CounterReading(100.0, 0, 0, 0)


def after(seconds, usage, pressure=None, throttled=None, **more):
    """Counters `seconds` later; shares of that time."""
    usec = [None if share is None else int(share * seconds * 1e6) for share in (usage, pressure, throttled)]
    return CounterReading(100.0 + seconds, *usec, **more)


def alike(count, ran, waited, runs=500, seconds=5.0):
    """`count` threads that did the same; shares of the time."""
    return {"threads": [ThreadTimes(ran * seconds, waited * seconds, runs, seconds, ran)] * count}


@pytest.mark.parametrize(
    ("usage", "pressure", "throttled", "more", "cores"),
    [
        # measured on two cores, 5 s windows: loops beside others
        (0.99, 0.00, 0.0, {}, 0.99),
        (0.89, 0.10, 0.0, {}, 0.99),
        (0.36, 0.63, 0.0, alike(1, 0.36, 0.64), 1.00),
        (0.13, 0.85, 0.0, alike(1, 0.13, 0.86, runs=60), 1.00),
        # the same without threads: by rounds it cannot be sure that the rest was no sleep
        (0.36, 0.63, 0.0, {}, 0.973),
        # a container at 20 % of a core: alone, beside two, beside five loops
        (0.20, 0.79, 0.80, {"quota_cores": 0.2}, 0.20),
        (0.20, 0.55, 0.60, {"quota_cores": 0.2}, 0.20),
        (0.20, 0.67, 0.39, {"quota_cores": 0.2}, 0.20),
        # crowded out of its quota: a busy loop wants all of it, one that sleeps a tenth of the time less
        (0.10, 0.90, 0.10, {"quota_cores": 0.5}, 0.5),
        (0.10, 0.80, 0.10, {"quota_cores": 0.5}, 0.333),
        # 30 ms of work, 470 ms of sleep, beside eight loops: one thread and eight of them, measured
        (0.045, 0.253, 0.0, alike(1, 0.045, 0.253), 0.060),
        (0.323, 0.95, 0.0, alike(8, 0.0404, 0.341), 0.492),
        # eight threads of which five were read speak for all
        (0.323, 0.95, 0.0, alike(5, 0.0404, 0.341), 0.492),
        # but one does not: by the pressure
        (0.323, 0.95, 0.0, alike(1, 0.0404, 0.341), 1.273),
        # four threads: pressure counts one, the run delay all
        (0.44, 0.96, 0.0, {}, 1.40),
        (0.44, 0.96, 0.0, alike(4, 0.11, 0.8875), 3.97),
        # what a quota is the reason for is no demand
        (0.20, 0.80, 0.80, alike(1, 0.2, 0.8), 0.20),
        # half of the wait was the quota's
        (0.10, 0.40, 0.20, alike(1, 0.1, 0.4), 0.125),
        # hardly waits: what it uses, whatever its threads say
        (0.30, 0.04, 0.0, alike(1, 0.3, 0.1), 0.30),
        # no pressure on this kernel, no controller
        (0.50, None, None, {}, 0.50),
        (0.50, 0.25, None, {}, 0.667),
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


shares = st.floats(0, 1)
looked = st.builds(
    ThreadTimes, st.floats(0, 10), st.floats(0, 10), st.integers(0, 1000), st.floats(1e-3, 10), st.floats(0, 1)
)
counts = st.none() | st.integers(0, 1 << 50)


@given(
    *[
        st.builds(
            CounterReading,
            st.floats(0, 1e6),
            *[counts] * 3,
            st.none() | st.lists(looked, max_size=5),
            st.floats(0.01, 64) | st.just(inf),
        )
    ]
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


@given(shares, shares, st.integers(0, 1000), shares)
def test_a_thread_alone_uses_more_and_at_max_a_core(ran, waited, runs, contended):
    thread = ThreadTimes(5 * ran, 5 * min(waited, 1 - ran), runs, 5.0, ran)
    alone_s = thread.alone_s(contended)
    assert thread.ran_s * (1 - 1e-9) <= alone_s <= 5.0 * (1 + 1e-9)


def test_neighbours_that_came_a_moment_ago_change_what_it_uses_and_not_what_it_wants():
    """A busy loop that had the CPU half of the last 15 s, and a fiftieth of the last 5."""
    thread = ThreadTimes(7.5, 7.48, 900, 15.0, 0.02)
    found = demand(START, after(5.0, 0.02, 0.98, 0.0, threads=[thread]))
    assert found.cpu_cores == pytest.approx(1.0, abs=0.01)


def test_what_it_got():
    starved = demand(START, after(5.0, 0.36, 0.63, 0.0, **alike(1, 0.36, 0.64)))
    assert starved.got_ratio == pytest.approx(0.36) and starved.waited_cores == pytest.approx(0.64)
    calm = demand(START, after(5.0, 0.36, 0.9 * WAITS_RATIO, 0.0))
    assert (calm.got_ratio, calm.waited_cores) == (1.0, 0.0)
    asleep = demand(START, after(5.0, 0.0, 0.0, 0.0))
    assert (asleep.got_ratio, asleep.waited_cores) == (1.0, 0.0)


def test_unknown_memory_is_nan():
    assert isnan(demand(START, after(5.0, 0.1)).memory_bytes)
