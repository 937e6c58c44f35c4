"""The board: newest status only, an age per reader, nobody waits for a slow one."""

import asyncio
import json
import time

import pytest

from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.board import StatusBoard
from carico_agent.node.publish.status import Status, as_json


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_age_and_freshness() -> None:
    clock = Clock()
    board = StatusBoard(ttl_s=5, clock=clock)
    assert not board.fresh
    board.publish(Status(pods=1))
    clock.now_s += 2.5
    body = json.loads(board.encoded())
    assert body == {**as_json(board.status), "age_s": 2.5}
    assert [body[key] for key in ("version", "sequence", "ttl_s", "pods", "age_s")] == [1, 1, 5, 1, 2.5]
    assert board.fresh
    clock.now_s += 3
    assert not board.fresh


async def test_everyone_who_waits_is_woken_and_late_ones_see_the_newest() -> None:
    board = StatusBoard(ttl_s=5)
    board.publish(Status())
    waiting = [asyncio.create_task(board.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(5):
        board.publish(Status())
    await asyncio.gather(*waiting)
    assert board.sequence == 6


async def test_a_reader_who_gives_up_does_not_wake_the_others() -> None:
    board = StatusBoard(ttl_s=5)
    one, other = asyncio.create_task(board.changed()), asyncio.create_task(board.changed())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    assert not other.done()
    board.publish(Status())
    await other


async def test_a_number_from_before_a_suspend_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_MONOTONIC stands still while the machine sleeps, CLOCK_BOOTTIME does not."""
    asleep_s = 0.0
    real = time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + (asleep_s if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    board = StatusBoard(ttl_s=5)
    board.publish(Status())
    assert board.fresh
    asleep_s = 3600.0
    assert not board.fresh
    assert board.age_s >= 3600
    assert boottime_s() >= 3600


def test_a_status_is_made_once_and_only_if_somebody_reads_it() -> None:
    board, made = StatusBoard(5.0), []

    def make() -> Status:
        made.append(board.sequence)
        return Status(pods=board.sequence)

    for _ in range(3):
        board.publish(make)
    assert made == [] and board.made.pods == 0
    assert (board.status.pods, board.status.sequence, board.made.pods) == (3, 3, 3)
    assert b'"pods":3' in board.encoded()
    assert made == [3]


async def test_a_reader_gets_no_status_older_than_a_second_if_there_is_news() -> None:
    clock, news = Clock(), [Status(pods=2)]
    board = StatusBoard(ttl_s=5, clock=clock, renew=lambda: board.publish(news.pop()) if news else None)
    board.publish(Status(pods=1))
    clock.now_s += 0.9
    assert board.status.pods == 1
    clock.now_s += 0.2
    assert (board.status.pods, board.sequence, board.age_s) == (2, 2, 0.0)
    clock.now_s += 6.0  # no sample came: it grows old
    assert not board.fresh and board.sequence == 2


async def test_who_is_in_no_hurry_does_not_make_the_agent_publish_every_second() -> None:
    board = StatusBoard(ttl_s=5)
    slow = asyncio.create_task(board.changed(urgent=False))
    await asyncio.sleep(0)
    assert not board.is_followed
    eager = asyncio.create_task(board.changed())
    await asyncio.sleep(0)
    assert board.is_followed
    board.publish(Status())
    async with asyncio.timeout(10):
        await asyncio.gather(slow, eager)
    assert not board.is_followed
