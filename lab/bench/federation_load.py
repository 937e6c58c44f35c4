"""Thousands of nodes in one process: each with a channel, a certificate and a stream of its own, as real nodes have.

When a node sends is decided by the same ExchangeSchedule as in the agent, when it reconnects by the same delays. An
answer's time runs from the moment a node *should* have sent, so a late load generator makes the numbers worse, never
better.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.federation.client import reconnect_delay_s
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.exchange import ExchangeSchedule
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.net.tls import TlsFiles
from carico_agent.settings import FederationSettings

OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", 262_144),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
HANDSHAKES_AT_ONCE = 20
CONNECT_S = 20.0


@dataclass
class LoadResult:
    """What one load process saw."""

    answers_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    sent: int = 0
    pushed: int = 0
    failures: int = 0
    unanswered: int = 0


class LoadNode:
    def __init__(self, number: int, play: Callable[[int], Contribution], fleet: "NodeConnections") -> None:
        self.name = f"node-{number:05d}"
        self._play, self._fleet = play, fleet
        settings = FederationSettings()
        self._schedule = ExchangeSchedule(settings.period_s, settings.heartbeat_s, settings.tolerance)
        self._schedule.nodes = fleet.total
        self._call: Any = None
        self._seen = (0, 0, 0)
        self._due_s: list[float] = []
        self._failures = 0

    @property
    def connected(self) -> bool:
        return self._call is not None

    async def run(self) -> None:
        """Connect, receive for ever; again after a failure, as a node does."""
        while True:
            try:
                await self._connect_and_receive()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, ConnectionError):
                self._fleet.found.failures += 1
            self._call, self._due_s = None, []
            self._failures += 1
            await asyncio.sleep(reconnect_delay_s(self._failures, self._fleet.total))

    async def _connect_and_receive(self) -> None:
        async with open_channel(self._fleet.address, self._fleet.tls(self.name), "", OPTIONS) as channel:
            async with self._fleet.handshakes, asyncio.timeout(CONNECT_S):
                call: Any = channel.stream_stream(f"/{wire.SERVICE}/Stream", same, same)()
                await call.write(self._message(self._play(0)))
                self._receive(await call.read(), counted=False)
            self._call, self._failures = call, 0
            while isinstance(raw := await call.read(), bytes):
                self._receive(raw, counted=True)
            raise ConnectionError("the stream ended")

    def _receive(self, raw: object, counted: bool) -> None:
        if not isinstance(raw, bytes):
            raise ConnectionError("the stream ended")
        view = pb.View.FromString(raw)
        if view.rejected:
            raise ConnectionError(view.rejected)
        kinds = view.kinds.sequence if view.HasField("kinds") else self._seen[2]
        self._seen = (view.incarnation, view.sequence, kinds)
        if view.pushed:
            self._fleet.found.pushed += counted and self._fleet.counting
        elif counted and self._due_s:
            due_s = self._due_s.pop(0)
            if self._fleet.counting:
                self._fleet.found.answers_s.append(time.monotonic() - due_s)

    async def send_if_due(self, second: int, due_s: float) -> None:
        given = self._play(second)
        if self._call is None or not self._schedule.is_due(given, due_s):
            return
        given = self._schedule.with_sent_kinds(given)
        self._schedule.on_sent(given, due_s)
        self._due_s.append(due_s)
        if self._fleet.counting:
            self._fleet.found.sent += 1
            self._fleet.found.late_s.append(time.monotonic() - due_s)
        try:
            await self._call.write(self._message(given))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # `run` sees it too and reconnects

    def _message(self, given: Contribution) -> bytes:
        return wire.write_contribution(self.name, given, time.time_ns(), seen=wire.HeldView(*self._seen))

    @property
    def unanswered(self) -> int:
        return len(self._due_s)


class NodeConnections:
    """The nodes of one load process."""

    def __init__(self, address: str, certificates: Path, first: int, total: int) -> None:
        self.address, self.total = address, total
        self._certificates, self._first = certificates, first
        self.found = LoadResult()
        self.counting = False
        self.handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self.nodes: list[LoadNode] = []
        self._tasks: list[asyncio.Task[None]] = []

    def tls(self, name: str) -> TlsFiles:
        folder = self._certificates
        return TlsFiles(str(folder / f"{name}.pem"), str(folder / "node.key"), str(folder / "ca.pem"))

    async def connect(self, plays: list[Callable[[int], Contribution]]) -> None:
        self.nodes = [LoadNode(self._first + i, play, self) for i, play in enumerate(plays)]
        self._tasks = [asyncio.create_task(node.run()) for node in self.nodes]
        while not all(node.connected for node in self.nodes):
            await asyncio.sleep(0.2)

    async def send(self, seconds: int, start_s: float, count_from: int) -> None:
        """Every node may send once a second, evenly spread; what happens from `count_from` on is counted."""
        for second in range(seconds):
            self.counting = second >= count_from
            for i, node in enumerate(self.nodes):
                due_s = start_s + second + i / len(self.nodes)
                wait_s = due_s - time.monotonic()
                if wait_s > 0.002 or i % 16 == 0:
                    await asyncio.sleep(max(0.0, wait_s))
                await node.send_if_due(second, due_s)
        self.counting = False
        await asyncio.sleep(1.0)
        self.found.unanswered = sum(node.unanswered for node in self.nodes)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
