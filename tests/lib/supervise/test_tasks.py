"""One failing task is restarted, shown, and takes nobody down."""

import asyncio
import logging

import pytest

from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.lib.supervise.tasks import Supervisor, guard_call

SOON = Backoff(first_s=0.001, max_s=0.002)


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_failing_task_is_restarted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, runs = Supervisor(SOON), 0

    async def fails() -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError("no luck")

    other = asyncio.Event()

    async def waits() -> None:
        await other.wait()

    supervisor.start("fails", fails)
    supervisor.start("waits", waits)
    with caplog.at_level(logging.INFO):
        await until(lambda: runs >= 5)
    condition = supervisor.conditions["fails"]
    assert condition.state == "failing"
    assert condition.failures >= 4
    assert condition.last_error == "RuntimeError: no luck"
    assert sum("fails: failing" in record.message for record in caplog.records) == 1
    other.set()
    await until(lambda: supervisor.conditions["waits"].state == "done")
    await supervisor.stop()


async def test_healing_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carico_agent.lib.supervise.tasks.HEALED_AFTER_S", 0.05)
    supervisor, runs = Supervisor(SOON), 0

    async def fails_twice() -> None:
        nonlocal runs
        runs += 1
        if runs <= 2:
            raise OSError("not yet")
        await asyncio.Event().wait()

    with caplog.at_level(logging.INFO):
        supervisor.start("task", fails_twice)
        await until(lambda: supervisor.conditions["task"].state == "running")
    assert [record.message for record in caplog.records if "works again" in record.message]
    assert supervisor.conditions["task"].failures == 0
    await supervisor.stop()


async def test_a_name_is_used_once() -> None:
    supervisor = Supervisor()

    async def waits() -> None:
        await asyncio.Event().wait()

    supervisor.start("same", waits)
    with pytest.raises(ValueError, match="same"):
        supervisor.start("same", waits)
    await supervisor.stop()


def test_guarded_calls_return_their_failure() -> None:
    assert guard_call("ok", lambda: 1) is None
    assert guard_call("bad", lambda: 1 / 0) == "ZeroDivisionError: division by zero"


def test_backoff_grows_is_bounded_and_jitters() -> None:
    exact = Backoff(first_s=0.5, factor=2, max_s=30, jitter_ratio=0)
    assert [exact.delay_s(n) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert exact.delay_s(100_000) == 30
    jittered = {Backoff(jitter_ratio=0.2).delay_s(3) for _ in range(50)}
    assert all(2 * 0.8 <= delay <= 2 * 1.2 for delay in jittered)
    assert len(jittered) > 1
