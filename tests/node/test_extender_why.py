"""The extender's answer to `kubectl carico why`, over HTTP: who may not know, what is bounded. No control plane."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from carico_agent.extender.daemon import ExtenderServer
from carico_agent.extender.explain import MAX_NAMES
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.http import HttpServer
from carico_agent.settings import Settings, override
from tests.commands.kube_api import KubeApi


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[ExtenderServer, str]]:
    """With its address; it watches nothing."""
    api = KubeApi()
    api.url = "http://127.0.0.1:1"
    server = ExtenderServer(override(Settings(), "kubernetes", kubeconfig=api.kubeconfig(tmp_path)))
    http = HttpServer(server.routes())
    await http.listen("127.0.0.1", 0)
    yield server, f"http://127.0.0.1:{http.port}/why"
    await http.stop()
    await server.client.close()


def know(server: ExtenderServer, nodes: int) -> None:
    server.cluster.nodes_listed([PublishedNode(f"n{at:04}", 0.5, 0.0, 100.0) for at in range(nodes)])
    server.cluster.pods_listed([])
    for watch in (server.cluster.watches.nodes, server.cluster.watches.pods, server.cluster.watches.leases):
        assert watch is not None
        watch.synced.set()


async def test_why(server: tuple[ExtenderServer, str]) -> None:
    extender, url = server
    async with aiohttp.ClientSession() as session:

        async def ask(uid: str) -> tuple[int, dict[str, object]]:
            async with session.get(f"{url}/{uid}") as response:
                return response.status, await response.json()

        assert (await ask("u"))[0] == 503  # nothing is known yet
        know(extender, nodes=MAX_NAMES + 1)
        assert (await ask("u"))[0] == 404
        extender.extender.candidates.filter({"Pod": {"metadata": {"uid": "u"}}, "NodeNames": ["n0000"]})
        status, body = await ask("u")
        row = {"reason": "no room: 0.5 places, 0 Pods", "count": MAX_NAMES + 1}
        assert status == 200 and body["policy"] == "pod-capacity" and body["accept"] == {"count": 0, "nodes": []}
        assert body["refuse"] == [{**row, "nodes": [f"n{at:04}" for at in range(MAX_NAMES)]}]
        extender._why_budget = TokenBucket(per_s=1e-6, burst=1)
        assert [(await ask("u"))[0] for _ in range(3)] == [200, 429, 429]
        async with session.post(f"{url}/u") as response:
            assert response.status == 405
