"""Fetching metrics: from the API server with our own credentials, from other components by their address."""

import time
from collections.abc import AsyncIterator

import aiohttp

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError, Unreachable
from carico_agent.plane.exposition import MetricsReader
from carico_agent.plane.window import WANTED, Scrape

TIMEOUT_S = 20.0
MAX_BYTES = 256 * 1024 * 1024


async def scrape_api(client: KubeClient) -> Scrape:
    """The API server's own /metrics; raises KubeError."""
    return await _read(client.chunks("/metrics", TIMEOUT_S))


async def scrape(url: str) -> Scrape:
    """Any other component that serves plain text on loopback or in the cluster's network; raises Unreachable."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.get(url) as response,
        ):
            if response.status != 200:
                raise Unreachable(f"{url}: {response.status}")
            return await _read(response.content.iter_chunked(1 << 16))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise Unreachable(f"{url}: {error or type(error).__name__}") from error


async def _read(chunks: AsyncIterator[bytes]) -> Scrape:
    reader, size = MetricsReader(WANTED), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MAX_BYTES:
            raise Unreachable(f"more than {MAX_BYTES >> 20} MB of metrics")
        reader.feed(chunk)
    totals = reader.close()
    if not totals:
        raise Unreachable("no metrics in the answer")
    return Scrape(time.monotonic(), totals)


async def scrape_all(client: KubeClient, others: dict[str, str]) -> tuple[dict[str, Scrape], dict[str, str]]:
    """Readings by component, and why one is missing."""
    readings: dict[str, Scrape] = {}
    missing: dict[str, str] = {}
    for name, url in {"kube-apiserver": "", **others}.items():
        try:
            readings[name] = await (scrape(url) if url else scrape_api(client))
        except KubeError as error:
            missing[name] = str(error)
    return readings, missing
