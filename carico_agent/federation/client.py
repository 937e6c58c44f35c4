"""The node's side: tells its own local model, hears the cluster's, works on alone when nobody answers.

grpc and protobuf are imported when `run` begins, so an agent without an aggregator does not pay their 12 MB.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from carico_agent import __version__
from carico_agent.core.subspace import Subspace
from carico_agent.federation.contribution import Contribution, GlobalView, Rejected
from carico_agent.settings import FederationSettings
from carico_agent.supervise.backoff import Backoff

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.5, factor=1.6, most_s=2.5, jitter_ratio=0.4)
"""3.5 s at most, so that a fleet is together again within 10 s of its aggregator's return; no stampede either."""

Exchange = Callable[[bytes], Coroutine[Any, Any, bytes]]


class FederationClient:
    """Run `run()` under a supervisor. `local()` gives the node's own model (None: nothing learned yet, only listen);
    `learned(view)` is called with each new global view, in the event loop.

    `local` must give the model *before* anything global is merged into it, or the cluster hears its own echo.
    """

    def __init__(
        self,
        settings: FederationSettings,
        node: str,
        resources: Sequence[str],
        local: Callable[[], Contribution | None],
        learned: Callable[[GlobalView], None],
    ) -> None:
        self.condition = "alone: no aggregator is configured"
        self.aggregator = ""
        self.exchanges = self.failures = self.rejected_views = 0
        self._settings = settings
        self._node, self._resources = node, tuple(resources)
        self._local, self._learned = local, learned
        self._view: GlobalView | None = None
        self._last_sent: Contribution | None = None
        self._last_sent_s = float("-inf")
        self._heartbeat_s = settings.heartbeat_s
        self._time_ns = 0
        self._restless = True

    @property
    def view(self) -> GlobalView | None:
        """The last good view, unless it is too old to be used."""
        view = self._view
        return view if view is not None and view.age_s(time.monotonic()) <= self._settings.max_age_s else None

    @property
    def age_s(self) -> float | None:
        """Age of the last good view [s], used or not."""
        return self._view.age_s(time.monotonic()) if self._view else None

    @property
    def peers(self) -> int:
        """Other nodes in the view."""
        return max(0, self.view.nodes - 1) if self.view else 0

    async def run(self) -> None:
        """Talk for ever, to one aggregator after the other; returns only if none is configured."""
        if not self._settings.aggregators:
            return
        await asyncio.to_thread(import_module, "carico_agent.federation.link")  # grpc, beside the event loop
        from carico_agent.federation.link import Link, LinkLost

        failures = 0
        while True:
            address = self._settings.aggregators[self.failures % len(self._settings.aggregators)]
            before = self.exchanges
            try:
                async with Link(address, self._settings, self._settings.transport == "unary") as link:
                    await self._converse(link.exchange, address)
            except (LinkLost, Rejected) as error:
                failures = 1 if self.exchanges > before else failures + 1
                self.failures += 1
                what = "sent a view that is not believed" if isinstance(error, Rejected) else "does not answer"
                self.rejected_views += isinstance(error, Rejected)
                self._became(f"local only: {address} {what}: {error}")
            await asyncio.sleep(BACKOFF.delay_s(failures))

    async def _converse(self, exchange: Exchange, address: str) -> None:
        self._restless = True
        await asyncio.sleep(random.uniform(0, 0.2))
        try:
            while True:
                told = self._local() or Contribution(self._resources, Subspace.empty(len(self._resources)))
                if self._due(told):
                    answer = await exchange(self._message(told))
                    self._last_sent, self._last_sent_s = told, time.monotonic()
                    self._hear(answer, told, address)
                    self.exchanges += 1
                await asyncio.sleep(self._settings.period_s)
        except asyncio.CancelledError:
            await self._say_goodbye(exchange)
            raise

    async def _say_goodbye(self, exchange: Exchange) -> None:
        from carico_agent.federation.link import LinkLost

        if self._last_sent is not None:
            try:
                await asyncio.wait_for(exchange(self._message(self._last_sent, leaving=True)), 0.3)
            except (LinkLost, TimeoutError):
                return  # the aggregator's silence limit will do

    def _due(self, told: Contribution) -> bool:
        """Whether there is something to say, or to hear, or the heartbeat is due."""
        if self._restless or self._last_sent is None:
            return True
        waited_s = time.monotonic() - self._last_sent_s + self._settings.period_s / 2
        return waited_s >= self._heartbeat_s or moved(self._last_sent, told, self._settings.tolerance)

    def _message(self, told: Contribution, leaving: bool = False) -> bytes:
        from carico_agent.federation import wire

        # Rises also when the clock is set back a little; by more, the aggregator waits out its silence limit.
        self._time_ns = max(time.time_ns(), self._time_ns + 1)
        return wire.write_contribution(self._node, told, self._time_ns, __version__, leaving)

    def _hear(self, answer: bytes, told: Contribution, address: str) -> None:
        from carico_agent.federation import wire

        about, view = wire.read_view(answer, told.resources, told.sizes, time.monotonic())
        if about.silence_s > 0:
            self._heartbeat_s = min(self._settings.heartbeat_s, about.silence_s / 3)
        self.aggregator = about.aggregator
        old, self._restless = self.view, False
        if about.rejected:
            self._became(f"{address} rejects this node: {about.rejected}")
        else:
            self._became(f"connected to {address}")
        if view is None or (about.settling and old is not None and old.nodes > view.nodes):
            # An aggregator that has just started knows few nodes; the old view is better while it is fresh.
            self._restless = True
            return
        self._restless = old is None or shifted(old.subspace, view.subspace, self._settings.tolerance)
        self._view = view
        self._learned(view)

    def _became(self, condition: str) -> None:
        if condition != self.condition:
            log.info("federation: %s", condition)
            self.condition = condition


def shifted(a: Subspace, b: Subspace, tolerance: float) -> bool:
    """Whether σ₁u₁, the RMS usage, differs by more than `tolerance` in any resource."""
    return a.m != b.m or bool(np.abs(a.unit - b.unit).max(initial=0.0) > tolerance)


def moved(sent: Contribution, now: Contribution, tolerance: float) -> bool:
    """Whether `now` says something else than `sent`: usage by `tolerance`, cost by 10 %, or twice as sure of it."""
    if shifted(sent.subspace, now.subspace, tolerance) or len(sent.cost) != len(now.cost):
        return True
    for old, new, old_sure, new_sure in zip(sent.cost, now.cost, sent.precision, now.precision, strict=True):
        if abs(new - old) > 0.1 * abs(old) or new_sure > 2 * old_sure:
            return True
    return False
