"""The latest status: the newest only, an age per reader; a slow reader delays no other."""

import asyncio
import json
import time
from dataclasses import replace
from math import nan

import pytest

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.latest import LatestStatus, Wants
from carico_agent.node.publish.status import Status, as_json, moved


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_age_and_freshness() -> None:
    clock = Clock()
    latest = LatestStatus(ttl_s=5, clock=clock)
    assert not latest.fresh
    latest.publish(Status(pods=1))
    clock.now_s += 2.5
    body = json.loads(latest.encoded())
    assert body == {**as_json(latest.status), "age_s": 2.5}
    assert [body[key] for key in ("version", "sequence", "ttl_s", "pods", "age_s")] == [1, 1, 5, 1, 2.5]
    assert latest.fresh
    clock.now_s += 3
    assert not latest.fresh


async def test_everyone_who_waits_is_woken_and_late_ones_see_the_newest() -> None:
    latest = LatestStatus(ttl_s=5)
    latest.publish(Status())
    waiting = [asyncio.create_task(latest.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(5):
        latest.publish(Status())
    await asyncio.gather(*waiting)
    assert latest.sequence == 6


async def test_a_reader_who_gives_up_does_not_wake_the_others() -> None:
    latest = LatestStatus(ttl_s=5)
    one, other = asyncio.create_task(latest.changed()), asyncio.create_task(latest.changed())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    assert not other.done()
    latest.publish(Status())
    await other


async def test_a_number_from_before_a_suspend_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_MONOTONIC stands still while the machine sleeps, CLOCK_BOOTTIME does not."""
    asleep_s = 0.0
    real = time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + (asleep_s if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    latest = LatestStatus(ttl_s=5)
    latest.publish(Status())
    assert latest.fresh
    asleep_s = 3600.0
    assert not latest.fresh
    assert latest.age_s >= 3600
    assert boottime_s() >= 3600


async def test_a_query_changes_nothing_and_only_publish_counts() -> None:
    clock = Clock()
    latest = LatestStatus(ttl_s=5, clock=clock)
    latest.publish(Status(pods=1))
    seen = latest.status
    clock.now_s += 60.0  # no sample came: it grows old, whatever a reader asks for
    assert b'"pods":1' in latest.encoded() and latest.encoded() == latest.encoded()
    assert not latest.fresh and latest.valid is None and latest.age_s == 60.0
    assert latest.status is seen and latest.sequence == 1
    latest.publish(Status(pods=2))
    assert b'"pods":2' in latest.encoded() and latest.sequence == 2


async def test_a_shorter_ttl_holds_for_the_next_status() -> None:
    latest = LatestStatus(ttl_s=5)
    latest.publish(Status())
    latest.expire_after(2.0)
    assert latest.status.ttl_s == 5.0
    latest.publish(Status())
    assert latest.status.ttl_s == 2.0


async def test_an_event_that_follows_is_set_at_every_status() -> None:
    latest, wakeup = LatestStatus(ttl_s=5), asyncio.Event()
    latest.follow(wakeup)
    latest.publish(Status())
    assert wakeup.is_set()
    wakeup.clear()
    latest.unfollow(wakeup)
    latest.publish(Status())
    assert not wakeup.is_set()


async def test_a_slow_reader_gets_the_newest_only() -> None:
    latest = LatestStatus(ttl_s=5)
    latest.publish(Status(pods=1))
    updates = latest.updates()
    assert (await anext(updates)).pods == 1
    for pods in (2, 3):
        latest.publish(Status(pods=pods))
    assert (await anext(updates)).pods == 3


async def test_a_reader_who_can_wait_gets_no_old_status_and_publishes_none_itself() -> None:
    clock, asked = Clock(), []
    latest = LatestStatus(ttl_s=5, clock=clock, on_follow=lambda: asked.append(latest.sequence))
    assert (await latest.current()).sequence == 0 and not asked  # there is none to renew
    latest.publish(Status(pods=1))
    clock.now_s += 0.9
    assert (await latest.current()).pods == 1 and not asked
    clock.now_s += 0.2
    reader = asyncio.create_task(latest.current())
    await asyncio.sleep(0)
    assert asked == [1] and latest.sequence == 1 and latest.is_followed and not reader.done()
    latest.publish(Status(pods=2))  # as the loop does
    assert (await reader).pods == 2 and not latest.is_followed
    clock.now_s += 6.0
    began_s = time.monotonic()
    assert (await latest.current()).pods == 2 and latest.sequence == 2  # no sample came: it grows old
    assert 0.3 < time.monotonic() - began_s < 5.0 and not latest.fresh


async def test_a_follower_in_no_hurry_does_not_make_the_agent_publish_every_second() -> None:
    latest = LatestStatus(ttl_s=5)
    slow = asyncio.create_task(latest.changed(Wants.NOW_AND_THEN))
    await asyncio.sleep(0)
    assert not latest.is_followed
    eager = asyncio.create_task(latest.changed())
    await asyncio.sleep(0)
    assert latest.is_followed
    latest.publish(Status())
    async with asyncio.timeout(10):
        await asyncio.gather(slow, eager)
    assert not latest.is_followed


async def test_a_follower_that_wants_what_moves_is_not_one_of_every_second() -> None:
    latest, wakeup = LatestStatus(ttl_s=5), asyncio.Event()
    latest.follow(wakeup, Wants.WHEN_MOVED)
    assert latest.is_followed and not latest.is_wanted_every_second
    latest.follow(asyncio.Event())
    assert latest.is_wanted_every_second


@pytest.mark.parametrize(
    ("pod_capacity", "pods", "has_moved"),
    [(5.0, 3, False), (5.04, 3, False), (4.94, 3, True), (5.1, 3, True), (5.0, 4, True), (nan, 3, True)],
)
def test_an_answer_has_moved_before_a_scheduler_would_act_otherwise(
    pod_capacity: float, pods: int, has_moved: bool
) -> None:
    model = CapacityModel(config=ModelConfig(cores=4))
    model.observe(0.0, [0.1, 0.1], 3)
    now = replace(model.estimate(), pod_capacity=pod_capacity, pods=pods)
    before = Status(pod_capacity=5.0, pods=3, mode=now.mode, limiting=now.limiting)
    assert moved(before, now) is has_moved


def test_an_unknown_answer_has_not_moved_while_it_stays_unknown() -> None:
    model = CapacityModel(config=ModelConfig(cores=4))
    model.observe(0.0, [0.1, 0.1], 3)
    now = replace(model.estimate(), pod_capacity=nan)
    unknown = Status(pod_capacity=None, pods=3, mode=now.mode, limiting=now.limiting)
    assert not moved(unknown, now) and moved(unknown, replace(now, pod_capacity=2.0))
