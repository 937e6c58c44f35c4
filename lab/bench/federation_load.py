"""Thousands of nodes in one process: each with a channel, a certificate and a stream of its own, as real nodes have.

What each sends, and when, is made beforehand (federation_nodes.py); when it reconnects is decided by the agent's own
delays. An answer's time runs from the moment a node *should* have sent, so a late load generator makes the numbers
worse, never better.
"""

import asyncio
import gc
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.federation.client import reconnect_delay_s
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.lib.net.tls import TlsFiles

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
    """Of the same exchanges: how late the load generator was when it sent."""
    sent: int = 0
    pushed: int = 0
    failures: int = 0
    unanswered: int = 0
    cpu_s: float = 0.0
    """CPU time of this process over the counted seconds."""


class LoadNode:
    def __init__(self, number: int, plan: list[bytes], fleet: "NodeConnections") -> None:
        self.name = f"node-{number:05d}"
        (self._greeting, *self._plan), self._fleet = plan, fleet
        self._call: Any = None
        self._seen = (0, 0, 0)
        self._due: list[tuple[float, float]] = []  # when it should have sent, how late it did [s]
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
            self._call, self._due = None, []
            self._failures += 1
            await asyncio.sleep(reconnect_delay_s(self._failures, self._fleet.total))

    async def _connect_and_receive(self) -> None:
        async with open_channel(self._fleet.address, self._fleet.tls(self.name), "", OPTIONS) as channel:
            async with self._fleet.handshakes, asyncio.timeout(CONNECT_S):
                call: Any = channel.stream_stream(f"/{wire.SERVICE}/Stream", same, same)()
                await call.write(self._message(self._greeting))
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
        workloads = view.workloads.sequence if view.HasField("workloads") else self._seen[2]
        self._seen = (view.incarnation, view.sequence, workloads)
        if view.pushed:
            self._fleet.found.pushed += counted and self._fleet.sending
        elif counted and self._due:
            due_s, late_s = self._due.pop(0)
            if self._fleet.counting:
                self._fleet.found.answers_s.append(time.monotonic() - due_s)
                self._fleet.found.late_s.append(late_s)

    async def send_if_due(self, second: int, due_s: float) -> None:
        if self._call is None or not self._plan[second]:
            return
        self._due.append((due_s, time.monotonic() - due_s))
        self._fleet.found.sent += self._fleet.sending
        try:
            await self._call.write(self._message(self._plan[second]))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # `run` sees it too and reconnects

    def _message(self, planned: bytes) -> bytes:
        """Two messages one after the other are one merged message: protobuf's own rule."""
        incarnation, sequence, workloads = self._seen
        now = pb.Contribution(
            node=self.name,
            time_unix_nano=time.time_ns(),
            seen_incarnation=incarnation,
            seen_sequence=sequence,
            seen_workloads=workloads,
        )
        return planned + now.SerializeToString()

    @property
    def unanswered(self) -> int:
        return len(self._due)


class NodeConnections:
    """The nodes of one load process."""

    def __init__(self, address: str, certificates: Path, first: int, total: int) -> None:
        self.address, self.total = address, total
        self._certificates, self._first = certificates, first
        self.found = LoadResult()
        self.sending = self.counting = False
        self.handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self.nodes: list[LoadNode] = []
        self._tasks: list[asyncio.Task[None]] = []

    def tls(self, name: str) -> TlsFiles:
        folder = self._certificates
        return TlsFiles(str(folder / f"{name}.pem"), str(folder / "node.key"), str(folder / "ca.pem"))

    async def connect(self, plans: list[list[bytes]]) -> None:
        self.nodes = [LoadNode(self._first + i, plan, self) for i, plan in enumerate(plans)]
        self._tasks = [asyncio.create_task(node.run()) for node in self.nodes]
        while not all(node.connected for node in self.nodes):
            await asyncio.sleep(0.2)
        gc.freeze()  # a full collection would stop this process for longer than an answer takes

    async def send(self, seconds: int, start_s: float, count_from: int) -> None:
        """Every node may send once a second, evenly spread; what happens from `count_from` on is counted."""
        before_s = 0.0
        for second in range(seconds):
            if second == count_from:
                self.sending = self.counting = True
                before_s = time.process_time()
            for i, node in enumerate(self.nodes):
                due_s = start_s + second + i / len(self.nodes)
                wait_s = due_s - time.monotonic()
                if wait_s > 0.002 or i % 16 == 0:
                    await asyncio.sleep(max(0.0, wait_s))
                await node.send_if_due(second, due_s)
        self.found.cpu_s = time.process_time() - before_s
        self.sending = False
        await asyncio.sleep(1.0)  # the last answers are on their way
        self.counting = False
        self.found.unanswered = sum(node.unanswered for node in self.nodes)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def load_process(
    pipe: Connection, address: str, folder: str, first: int, total: int, plans: list[list[bytes]], cpus: set[int]
) -> None:
    """Connect; then for each (seconds, start, count_from) send and report; None ends it."""
    os.sched_setaffinity(0, cpus)

    async def work() -> None:
        fleet = NodeConnections(address, Path(folder), first, total)
        await fleet.connect(plans)
        pipe.send("connected")
        while (order := await asyncio.to_thread(pipe.recv)) is not None:
            fleet.found = LoadResult()
            await fleet.send(*order)
            pipe.send(fleet.found)
        await fleet.stop()

    asyncio.run(work())
