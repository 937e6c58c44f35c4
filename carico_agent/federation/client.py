"""The node's side: sends its own local model, receives the cluster's, works on alone when no aggregator answers.

grpc and protobuf are imported when `run` begins, so an agent without an aggregator does not pay their 12 MB.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from carico_agent import __version__
from carico_agent.core.subspace import Subspace
from carico_agent.federation.contribution import Contribution, GlobalView, Rejected
from carico_agent.federation.exchange import ExchangeSchedule, shifted
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.settings import FederationSettings

if TYPE_CHECKING:
    from carico_agent.federation.link import AggregatorLink
    from carico_agent.federation.proto import federation_pb2 as pb

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.5, factor=1.6, max_s=2.5, jitter_ratio=0.4)
"""3.5 s at most, so that a small fleet is together again within 10 s of its aggregator's return."""
RECONNECTS_PER_S = 500.0
"""A fleet of N nodes spreads its return over N/500 s: a TLS handshake costs the aggregator about a millisecond."""
MAX_SPREAD_S = 30.0


def reconnect_delay_s(failures: int, nodes: int) -> float:
    """How long to wait before connecting again, after `failures` in a row, in a cluster of `nodes`."""
    return BACKOFF.delay_s(failures) + random.uniform(0.0, min(nodes / RECONNECTS_PER_S, MAX_SPREAD_S))


class FederationClient:
    """Run `run()` under a supervisor. `local()` gives the node's own model (None: nothing learned yet, only receive);
    `on_view(view)` is called with each new global view, in the event loop.

    `local` must give the model *before* anything global is merged into it, or the cluster learns from its own echo.
    """

    def __init__(
        self,
        settings: FederationSettings,
        node: str,
        resources: Sequence[str],
        local: Callable[[], Contribution | None],
        on_view: Callable[[GlobalView], None],
    ) -> None:
        self.condition = "alone: no aggregator is configured"
        self.aggregator = ""
        self.exchanges = self.failures = self.rejected_views = self.pushed_views = 0
        self._settings = settings
        self._node, self._resources = node, tuple(resources)
        self._local, self._on_view = local, on_view
        self._view: GlobalView | None = None
        self._schedule = ExchangeSchedule(settings.period_s, settings.heartbeat_s, settings.tolerance)
        self._incarnation = self._workloads_sequence = 0
        self._sent = Contribution(self._resources, Subspace.empty(len(self._resources)))
        self._has_sent = False
        self._time_ns = 0
        self._view_wanted = True

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
        """Exchange until it is cancelled, with one aggregator after the other; returns only if none is configured."""
        if not self._settings.aggregators:
            return
        await asyncio.to_thread(import_module, "carico_agent.federation.link")  # grpc, beside the event loop
        from carico_agent.federation.link import AggregatorLink, ConnectionLost

        failures = 0
        while True:
            address = self._settings.aggregators[self.failures % len(self._settings.aggregators)]
            before = self.exchanges
            try:
                received = self._on_received_from(address)
                async with AggregatorLink(address, self._settings, received) as link:
                    await self._exchange_while_connected(link)
            except (ConnectionLost, Rejected) as error:
                failures = 1 if self.exchanges > before else failures + 1
                self.failures += 1
                what = "sent a view that is not believed" if isinstance(error, Rejected) else "does not answer"
                self.rejected_views += isinstance(error, Rejected)
                self._set_condition(f"local only: {address} {what}: {error}")
            await asyncio.sleep(reconnect_delay_s(failures, self._view.nodes if self._view else 0))

    async def _exchange_while_connected(self, link: "AggregatorLink") -> None:
        self._view_wanted = True
        self._schedule.restart()
        await asyncio.sleep(random.uniform(0, 0.2))
        try:
            while True:
                given = self._local() or Contribution(self._resources, Subspace.empty(len(self._resources)))
                if self._view_wanted or self._schedule.is_due(given, time.monotonic()):
                    await self._exchange(link, given)
                await asyncio.sleep(self._settings.period_s)
        except asyncio.CancelledError:
            await self._leave(link)
            raise

    async def _exchange(self, link: "AggregatorLink", given: Contribution) -> None:
        given = self._schedule.with_sent_workloads(given)
        self._sent, before = given, self._view
        await link.exchange(self._message(given))
        self._has_sent = True
        self._schedule.on_sent(given, time.monotonic())
        self.exchanges += 1
        if not link.pushes and before is not None and self._view is not None:
            # No view is pushed: ask again soon while the view is on its way.
            self._view_wanted |= shifted(before.subspace, self._view.subspace, self._settings.tolerance)

    async def _leave(self, link: "AggregatorLink") -> None:
        from carico_agent.federation.link import ConnectionLost

        if self._has_sent:
            try:
                await asyncio.wait_for(link.exchange(self._message(self._sent, leaving=True)), 0.3)
            except (ConnectionLost, Rejected, TimeoutError):
                return  # the aggregator's silence limit will do

    def _message(self, given: Contribution, leaving: bool = False) -> bytes:
        from carico_agent.federation import wire

        # Rises also when the clock is set back a little; by more, the aggregator waits out its silence limit.
        self._time_ns = max(time.time_ns(), self._time_ns + 1)
        seen = wire.HeldView(self._incarnation, self._view.sequence, self._workloads_sequence) if self._view else None
        return wire.write_contribution(self._node, given, self._time_ns, __version__, leaving, seen)

    def _on_received_from(self, address: str) -> Callable[[bytes], bool]:
        def on_received(raw: bytes) -> bool:
            from carico_agent.federation import wire

            about, view = wire.read_view(raw, self._sent.resources, self._sent.sizes, time.monotonic())
            if about.silence_s > 0:
                self._schedule.heartbeat_s = min(self._settings.heartbeat_s, about.silence_s / 3)
            self.aggregator = about.aggregator
            if about.rejected:
                self._set_condition(f"{address} rejects this node: {about.rejected}")
            elif not about.pushed:
                self._set_condition(f"connected to {address}")
            self.pushed_views += about.pushed
            self._apply(about, view)
            return not about.pushed

        return on_received

    def _apply(self, about: "pb.View", view: GlobalView | None) -> None:
        old = self.view
        if about.unchanged and old is not None:
            self._view_wanted, view = False, old.renewed(time.monotonic())
        if view is None or (about.incomplete and old is not None and old.nodes > view.nodes):
            # An aggregator that has just started knows few nodes; the old view is better while it is fresh.
            self._view_wanted = True
            return
        self._view_wanted = False
        view = self._with_workloads(about, view)
        changed = (
            self._view is None or view.sequence != self._view.sequence or view.workloads is not self._view.workloads
        )
        self._view = view
        self._incarnation, self._schedule.nodes = about.incarnation, view.nodes
        if changed or old is None:
            try:
                self._on_view(view)
            except ValueError as error:  # the model does not take it, whatever the checks on the way have missed
                raise Rejected("view", str(error)) from error

    def _with_workloads(self, about: "pb.View", view: GlobalView) -> GlobalView:
        """`view` with the workloads that came with it, or else the ones known before: they travel when they change."""
        from carico_agent.federation import wire_workloads

        if about.HasField("workloads"):
            self._workloads_sequence = about.workloads.sequence
            cluster = wire_workloads.read_table(about.workloads)
            return view.with_workloads(wire_workloads.to_node(cluster, self._sent.resources, self._sent.sizes))
        if about.incarnation != self._incarnation:
            self._workloads_sequence = 0
        return view.with_workloads(self._view.workloads if self._view else ())

    def _set_condition(self, condition: str) -> None:
        if condition != self.condition:
            log.info("federation: %s", condition)
            self.condition = condition
