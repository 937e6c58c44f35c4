"""Aggregators send each other their sums: one Share call per peer and period carries both directions."""

import asyncio
import logging
import time

import grpc

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.federation.contribution import Rejected
from carico_agent.federation.contributions import ContributionTable
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.lib.net.address import check
from carico_agent.lib.net.tls import TlsFiles
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.settings import AggregatorSettings

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.5, max_s=3.0)
_OPTIONS: list[tuple[str, int | str]] = [("grpc.initial_reconnect_backoff_ms", 300)]


class PeerConnection:
    """The calls from here to one other aggregator."""

    def __init__(self, address: str, table: ContributionTable, settings: AggregatorSettings) -> None:
        self.address = address
        self.name = ""
        self.condition = "not reached yet"
        self._table = table
        self._settings = settings
        self._tls = TlsFiles.mutual(settings.tls_ca, settings.tls_cert, settings.tls_key)
        check(address, self._tls is not None, settings.allow_plaintext)

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                async with open_channel(self.address, self._tls, "", _OPTIONS) as channel:
                    await self._share_while_it_works(channel)
            except (grpc.aio.AioRpcError, Rejected, OSError) as error:
                failures = 1 if self.condition == "ok" else failures + 1
                self._set_condition(
                    error.details() or error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)
                )
            await asyncio.sleep(BACKOFF.delay_s(failures))

    async def _share_while_it_works(self, channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(f"/{wire.SERVICE}/Share", same, same)
        certificates = self._tls.fingerprint() if self._tls else ()
        while not self._tls or self._tls.fingerprint() == certificates:  # changed files: a new channel
            request = self._table.partial(self.name)
            raw = await call(request.SerializeToString(), timeout=max(1.0, 2 * self._settings.share_period_s))
            message, sums, workloads = wire.read_partial(raw)
            self._table.apply_partial(message, sums, workloads, time.monotonic())
            first, self.name = self.name != message.aggregator, message.aggregator
            self._set_condition("ok")
            if not (first or request.more_owned or message.more_owned):
                await asyncio.sleep(self._settings.share_period_s)

    def _set_condition(self, condition: str) -> None:
        if condition != self.condition:
            log.info("peer %s: %s", self.address, condition)
            self.condition = condition


def report(connections: list[PeerConnection], table: ContributionTable, now_s: float) -> list[pb.PeerStatus]:
    """Every peer we call or that calls us."""
    rows = {one.name or one.address: pb.PeerStatus(address=one.address, condition=one.condition) for one in connections}
    for name, peer in table.peers.items():
        row = rows.setdefault(name, pb.PeerStatus(condition="calls us"))
        row.aggregator, row.age_s, row.nodes = name, now_s - peer.received_s, peer.sums.nodes
    return list(rows.values())
