"""Deadlines: late ticks are skipped and counted, failing ticks are survived."""

import threading
import time
from collections.abc import Callable

import pytest

from carico_agent.lib.supervise.ticker import Ticker


def run(ticker: Ticker) -> threading.Thread:
    thread = threading.Thread(target=ticker.run, daemon=True)
    thread.start()
    return thread


def run_until(done: threading.Event, ticker: Ticker) -> threading.Thread:
    """The ticker's thread, ended after the work has set `done`."""
    thread = run(ticker)
    assert done.wait(20)
    ticker.stop()
    thread.join(20)
    return thread


def test_ticks_until_stopped() -> None:
    enough = threading.Event()
    seen: list[float] = []

    def work(now_s: float) -> None:
        seen.append(now_s)
        if len(seen) == 10:
            enough.set()

    ticker = Ticker(0.01, work)
    thread = run_until(enough, ticker)
    assert not thread.is_alive()
    assert seen == sorted(seen)
    assert ticker.lateness.ticks == len(seen)


def test_slow_work_skips_and_counts_and_keeps_the_phase() -> None:
    done = threading.Event()
    starts: list[float] = []

    def work(now_s: float) -> None:
        starts.append(now_s)
        if len(starts) == 1:
            time.sleep(0.35)
        if len(starts) == 3:
            done.set()

    ticker = Ticker(0.1, work)
    run_until(done, ticker)
    assert ticker.lateness.missed >= 2  # never caught up in a burst
    assert starts[1] - starts[0] >= 0.35


def test_failing_work_does_not_stop_the_ticks(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    calls = 0

    def work(now_s: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            done.set()
        if calls <= 3:
            raise RuntimeError("kernel went fishing")

    ticker = Ticker(0.005, work)
    run_until(done, ticker)
    assert ticker.failures == 3
    assert ticker.error is None
    assert sum("kernel went fishing" in record.message for record in caplog.records) == 1


def test_stop_is_prompt_even_with_a_long_period() -> None:
    ticker = Ticker(3600, lambda now_s: None)
    thread = run(ticker)
    ticker.stop()
    thread.join(20)
    assert not thread.is_alive()
    ticker.stop()  # twice is fine


def test_how_long_the_work_took_is_recorded() -> None:
    done = threading.Event()
    ticks = 0

    def work(now_s: float) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 2:
            time.sleep(0.02)
        if ticks == 5:
            done.set()

    ticker = Ticker(0.01, work)
    run_until(done, ticker)
    assert sum(ticker.worked.counts) == ticks
    assert ticker.worked.max_s >= 0.02


def test_what_the_work_returns_is_called_after_it_and_is_not_part_of_its_time() -> None:
    done = threading.Event()
    order: list[str] = []

    def wake() -> None:
        order.append("wake")
        time.sleep(0.1)
        done.set()

    def work(now_s: float) -> Callable[[], None] | None:
        order.append("work")
        return wake if len(order) == 1 else None

    ticker = Ticker(0.01, work)
    run_until(done, ticker)
    assert order[:2] == ["work", "wake"] and order.count("wake") == 1
    assert ticker.lateness.missed >= 8  # its time passes all the same
