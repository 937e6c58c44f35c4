"""Sleeping until the process is awake anyway."""

import asyncio
import time

import pytest

from carico_agent.lib.supervise import pulse as module
from carico_agent.lib.supervise.pulse import Pulse


@pytest.fixture
def beats_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleep ends by a beat, or not within any test."""
    monkeypatch.setattr(module, "LATE_S", 3600.0)


async def test_a_beat_ends_a_sleep_that_is_nearly_over_and_no_other(beats_only: None) -> None:
    pulse = Pulse()
    short, long = asyncio.create_task(pulse.sleep(0.1)), asyncio.create_task(pulse.sleep(3600.0))
    await asyncio.sleep(0)
    pulse.beat()
    async with asyncio.timeout(10):
        await short
    assert not long.done()
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    pulse.beat()  # who was cancelled is forgotten


async def test_without_a_beat_a_sleep_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.05)
    pulse, began_s = Pulse(), time.monotonic()
    async with asyncio.timeout(10):
        await pulse.sleep(0.02)
    assert time.monotonic() - began_s >= 0.07


async def test_all_who_sleep_wake_with_one_beat(beats_only: None) -> None:
    pulse = Pulse()
    sleepers = [asyncio.create_task(pulse.sleep(0.2)) for _ in range(3)]
    await asyncio.sleep(0)
    pulse.beat()
    async with asyncio.timeout(10):
        await asyncio.gather(*sleepers)
