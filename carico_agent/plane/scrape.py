"""Fetching metrics: from the API server with our own credentials, from other components by their endpoints."""

import time
from collections.abc import AsyncIterator

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable
from carico_agent.plane.component_access import Endpoints
from carico_agent.plane.exposition import MetricsReader
from carico_agent.plane.window import WANTED, Scrape

TIMEOUT_S = 20.0
MAX_BYTES = 256 * 1024 * 1024


async def scrape_api(client: KubeClient) -> Scrape:
    """The API server's own /metrics; raises KubeError."""
    return await _read(client.chunks("/metrics", TIMEOUT_S))


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


async def scrape_all(endpoints: Endpoints, missing: dict[str, str]) -> dict[str, Scrape]:
    """Readings of the other components; why one is missing goes into `missing`."""
    readings: dict[str, Scrape] = {}
    for name in endpoints:
        try:
            client, path = endpoints.client(name)
            readings[name] = await _read(client.chunks(path, TIMEOUT_S))
        except KubeError as error:
            missing[name] = f"{error}{_remedy(error)}"
    return readings


def _remedy(error: KubeError) -> str:
    """What to do about the two answers that a secured component gives most often."""
    if isinstance(error, Refused) and error.status in (401, 403):
        return (
            "; grant `get` on nonResourceURLs [/metrics] to this user, or name token=FILE or certificate=FILE,key=FILE"
        )
    if "is not trusted" in str(error):
        return "; name its authority with ca=FILE, or trust=loopback for a certificate that it signed itself"
    return ""
