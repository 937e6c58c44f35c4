"""How often a node may write its Node object: the larger the cluster, the less often.

A write of a Node is sent to everybody who watches nodes, and where something on every node does (a network plugin) the
API server's work grows with the square of the cluster's size. All nodes together may write 70 times a second, a seventh
of what kubelets renew their own Leases at 5,000 nodes: one write per node in 71 s there, in 14 s at 1,000, and at 350
nodes and less in `min_interval_s`.

How many nodes there are is known without listing them: a list of one item says how many remain. That is
asked when the agent starts and once an hour.
"""

import asyncio
import random
from collections.abc import Callable

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError

NODE_WRITES_PER_S = 70.0
"""Of all nodes together."""

ASK_AGAIN_S = 3600.0
LONGEST_HOLD_S = 60.0
"""A rise need not hold for longer than this before it is published [s]."""

PAGE = 500
NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def pace_s(nodes: int, min_s: float) -> float:
    """Time between two writes of one node that can wait [s].

    >>> [round(pace_s(nodes, 5.0)) for nodes in (0, 100, 1000, 5000)]
    [5, 5, 14, 71]
    """
    return max(min_s, nodes / NODE_WRITES_PER_S)


def hold_s(pace_s: float, min_s: float) -> float:
    """How long a rise must have held before it is written [s]: where writes are few, none is spent on a number that is
    gone when the next one is allowed.

    >>> hold_s(5.0, 5.0), hold_s(12.5, 5.0), hold_s(62.5, 5.0)
    (0.0, 7.5, 57.5)
    """
    return min(LONGEST_HOLD_S, max(0.0, pace_s - min_s))


async def count_nodes(client: KubeClient) -> int:
    """How many nodes this cluster has; raises KubeError. One whole Node is read: of metadata alone (NAMES_ONLY) servers
    such as 1.20 do not say how many remain, and 5,000 nodes counted as one."""
    found = await client.get("/api/v1/nodes", {"limit": "1"})
    meta = found.get("metadata") or {}
    if meta.get("continue") and meta.get("remainingItemCount") is None:
        return await _count_pages(client)
    return len(found.get("items") or ()) + int(meta.get("remainingItemCount") or 0)


async def _count_pages(client: KubeClient) -> int:
    """For servers that never say how many remain: names alone, page by page."""
    count, token = 0, ""
    while True:
        page = {"limit": str(PAGE), **({"continue": token} if token else {})}
        found = await client.request("GET", "/api/v1/nodes", None, {"Accept": NAMES_ONLY}, page)
        count += len(found.get("items") or ())
        token = (found.get("metadata") or {}).get("continue") or ""
        if not token:
            return count


async def follow_size(client: KubeClient, found: Callable[[int], None]) -> None:
    """Call `found` with the number of nodes, until cancelled. What cannot be known stays as it was."""
    while True:
        try:
            found(await count_nodes(client))
        except KubeError:
            await asyncio.sleep(60.0 * random.uniform(0.5, 1.5))  # the watches say what is wrong
            continue
        await asyncio.sleep(ASK_AGAIN_S * random.uniform(0.5, 1.5))
