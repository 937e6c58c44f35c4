"""200 nodes, an aggregator that keeps dying, a slow network, garbage, liars: nobody stops, all agree again."""

import asyncio
import contextlib
import random
import time

import grpc
import numpy as np
import pytest

from carico_agent.core.subspace import Subspace
from carico_agent.federation import wire
from carico_agent.federation.client import FederationClient
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Moments
from carico_agent.settings import FederationSettings

from .processes import aggregator, until
from .test_hostile import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")
NODES = 200


class SlowProxy:
    """Passes TCP on, each piece up to 300 ms late, and cuts a connection now and then while `wild`."""

    def __init__(self, target: str) -> None:
        self.host, _, self.port = target.rpartition(":")
        self.wild = True

    async def start(self) -> str:
        self.server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(self.host, int(self.port))
            await asyncio.gather(self.pump(reader, there_writer), self.pump(there_reader, writer))
        writer.close()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                if self.wild:
                    await asyncio.sleep(random.uniform(0, 0.3))
                    if random.random() < 0.01:
                        break
                writer.write(piece)
                await writer.drain()
        writer.close()


async def pester(address: str) -> None:
    """Hostile subspaces over gRPC, and bytes that are not even HTTP."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{wire.SERVICE}/Exchange")
        while True:
            for message, _ in HOSTILE.values():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await call(message, timeout=1)
                await asyncio.sleep(0.02)
            with contextlib.suppress(OSError):
                host, _, port = address.rpartition(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(random.randbytes(2000))
                await asyncio.sleep(0.05)
                writer.close()


@pytest.mark.long
async def test_chaos():
    usage = {f"node-{i:03d}": (random.random(), random.random()) for i in range(NODES)}

    def local(node: str):
        return lambda: Contribution(("cpu", "memory"), Subspace.of_batch([[usage[node][0]], [usage[node][1]]]))

    async with aggregator(http="") as server:
        proxy = SlowProxy(server.address)
        slow = await proxy.start()
        clients = [
            FederationClient(
                FederationSettings(aggregators=(slow if i % 2 else server.address,)),
                node,
                ("cpu", "memory"),
                local(node),
                lambda view: None,
            )
            for i, node in enumerate(usage)
        ]
        tasks = [asyncio.create_task(one.run()) for one in clients]
        pest = asyncio.create_task(pester(server.address))
        await until(lambda: any(one.view is not None for one in clients), 120)
        for _ in range(4):
            await asyncio.sleep(2.5)
            await server.restart()
            for node in usage:
                usage[node] = (random.random(), random.random())
        proxy.wild = False
        exact = Moments()
        for node in usage:
            exact.put(node, local(node)())
        expected = exact.sums().subspace()

        def agreed() -> bool:
            return all(
                one.view is not None
                and one.view.nodes == NODES
                and np.allclose(one.view.subspace.sigma, expected.sigma, atol=1e-9, rtol=0)
                for one in clients
            )

        began_s = time.monotonic()
        try:
            await until(agreed, 120)
        finally:
            print(
                f"all {NODES} agreed {time.monotonic() - began_s:.1f} s after the last restart;",
                {one.condition for one in clients},
            )
            assert not any(task.done() for task in tasks)  # no agent stopped
            for task in (pest, *tasks):
                task.cancel()
            await asyncio.gather(pest, *tasks, return_exceptions=True)
            proxy.server.close()
