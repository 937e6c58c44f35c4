"""Whether slices are short is the kernel's business: here that asking for it changes nothing else."""

import os
import platform
import threading

import pytest

from carico_agent.lib.supervise.slice import ask_for_short_slices


def test_the_nice_value_and_the_policy_stay() -> None:
    seen: list[tuple[int, int]] = []

    def ask() -> None:  # in a thread: the one that runs the tests keeps its slices
        os.setpriority(os.PRIO_PROCESS, 0, 12)
        ask_for_short_slices()
        seen.append((os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)))
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        seen.append((int(ask_for_short_slices()), os.sched_getscheduler(0)))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [(12, os.SCHED_OTHER), (0, os.SCHED_BATCH)]


def test_an_unknown_machine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    assert not ask_for_short_slices()
