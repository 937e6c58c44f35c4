"""Where the sampling thread runs, and what it falls back to."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from carico_agent.node.sampling.thread import keep_time

OWN = os.getpriority(os.PRIO_PROCESS, 0)
"""Of this process: without root nobody gets below it, and `nice make test` is above 0."""


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def in_thread(realtime: bool, niceness: int) -> tuple[str, int]:
    """What keep_time says and the class the thread then has; a thread of its own, since it changes the caller."""
    seen: list[tuple[str, int]] = []
    thread = threading.Thread(target=lambda: seen.append((keep_time(realtime, niceness), os.sched_getscheduler(0))))
    thread.start()
    thread.join()
    return seen[0]


def test_without_the_right_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "setpriority", refuse)
    assert in_thread(True, -10) == (f"niceness {OWN}", os.SCHED_OTHER)


def test_niceness_stands_in_for_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert in_thread(True, min(OWN + 5, 19)) == (f"niceness {min(OWN + 5, 19)}", os.SCHED_OTHER)


def test_real_time_is_for_this_thread_only_and_not_for_its_children() -> None:
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)).result()
        except PermissionError:
            pytest.skip("needs CAP_SYS_NICE, or an RLIMIT_RTPRIO")
    result, policy = in_thread(True, 0)
    assert result == "realtime"
    assert policy == os.SCHED_RR | os.SCHED_RESET_ON_FORK
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_real_time_can_be_declined() -> None:
    assert in_thread(False, min(OWN + 1, 19)) == (f"niceness {min(OWN + 1, 19)}", os.SCHED_OTHER)
