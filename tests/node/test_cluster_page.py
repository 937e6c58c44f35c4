"""The cluster's page over HTTP: who may read, how often a body is made, and what its neighbours add."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from carico_agent.extender.cluster_page import ClusterBodies, ClusterPage, open_cluster_page
from carico_agent.extender.cluster_services import ClusterServices
from carico_agent.lib.net.http import ApiError, HttpServer, answer
from carico_agent.settings import BadSettings, ClusterPageSettings

NODES = {"name": ["a", "b"], "state": ["ok", "ok"], "fits": [2.0, None], "pods": [1, 1], "age_s": [1.0, 2.0]}


class Facts:
    """A cluster of two nodes."""

    def __init__(self) -> None:
        self.made = 0
        self.synced = True

    def about(self) -> dict[str, Any]:
        return {"source": "test", "condition": ""}

    def nodes(self) -> dict[str, Any]:
        if not self.synced:
            raise ApiError(503, "nodes and Pods are not known yet")
        self.made += 1
        return NODES

    def workloads(self) -> Iterator[dict[str, Any] | None]:
        yield None
        yield {"workload": "shop/web", "pods": 2, "fits": 4, "fits_nodes": 1}

    def where(self, workload: str) -> dict[str, Any]:
        return {"workload": workload}


async def get(url: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as given:
        return given.status, await given.text()


@pytest.fixture
async def page() -> AsyncIterator[ClusterPage]:
    made = ClusterPage(ClusterPageSettings("127.0.0.1:0"), Facts())
    await made.start()
    yield made
    await made.stop()


async def test_readers_at_once_share_one_body() -> None:
    facts, now_s = Facts(), [0.0]
    bodies = ClusterBodies(facts, ClusterServices("", ""), clock=lambda: now_s[0])
    first = await asyncio.gather(*(bodies.encoded() for _ in range(10)))
    assert facts.made == 1 and len(set(first)) == 1
    assert json.loads(first[0])["workloads"][0]["workload"] == "shop/web"
    now_s[0] = 10.0
    await bodies.encoded()
    assert facts.made == 2


async def test_the_page_and_its_answers(page: ClusterPage) -> None:
    assert json.loads((await get(f"{page.address}v1/cluster"))[1])["nodes"] == NODES
    assert json.loads((await get(f"{page.address}v1/cluster/workloads/shop/web"))[1]) == {"workload": "shop/web"}
    assert json.loads((await get(f"{page.address}v1/cluster/workloads/a%20b/c%3Fd"))[1]) == {"workload": "a b/c?d"}
    code, text = await get(page.address)
    assert code == 200 and "2 more Pods fit on 1 of 2 nodes" in text
    for path in ("cluster.js", "virtual.js", "style.css"):
        assert (await get(f"{page.address}{path}"))[0] == 200
    for path in ("cluster.html", "v1/status", "bind", "metrics"):
        assert (await get(f"{page.address}{path}"))[0] == 404, path


async def test_before_the_cluster_is_known_it_says_so() -> None:
    facts = Facts()
    facts.synced = False
    page = ClusterPage(ClusterPageSettings("127.0.0.1:0"), facts)
    await page.start()
    try:
        assert (await get(f"{page.address}v1/cluster"))[0] == 503
        code, text = await get(page.address)
        assert code == 200 and "nodes and Pods are not known yet" in text
    finally:
        await page.stop()


async def test_with_a_token_only_those_who_know_it(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    page = ClusterPage(ClusterPageSettings("127.0.0.1:0", token_file=str(secret)), Facts())
    await page.start()
    try:
        assert (await get(f"{page.address}v1/cluster"))[0] == 401
        assert (await get(f"{page.address}v1/cluster/workloads/shop/web"))[0] == 401
        assert (await get(f"{page.address}v1/cluster", "0123456789abcdef"))[0] == 200
        assert "Pods fit on" not in (await get(page.address))[1]
    finally:
        await page.stop()


async def test_beyond_loopback_it_needs_tls_and_a_token() -> None:
    with pytest.raises(BadSettings, match=r"cluster_page\.tls_cert, cluster_page\.tls_key, cluster_page\.token_file"):
        await open_cluster_page(ClusterPageSettings("0.0.0.0:0"), Facts())
    assert await open_cluster_page(ClusterPageSettings(), Facts()) is None


async def test_neighbours_that_answer_and_one_that_does_not() -> None:
    row = {
        "name": "kube-apiserver",
        "arrivals_per_s": 12.0,
        "utilisation": 0.4,
        "waiting": 0.0,
        "throttled_ratio": None,
    }

    async def plane(request: Any) -> Any:
        return answer({"diagnosis": {"remedy": "nothing to do", "components": [row | {"cores": 1.0}]}})

    server = HttpServer({"/v1/plane": {"GET": plane}})
    await server.listen("127.0.0.1", 0)
    services = ClusterServices(f"http://127.0.0.1:{server.port}/", "http://127.0.0.1:9")
    try:
        panels = await services.panels()
        assert panels["plane"] == {"text": "nothing to do", "components": [row]}
        assert "http://127.0.0.1:9/v1/burst does not answer" in panels["burst"]["error"]
        odd = ClusterServices("", f"http://127.0.0.1:{server.port}")
        assert "no such path" in (await odd.panels())["burst"]["error"]
        await odd.close()
    finally:
        await services.close()
        await server.stop()
