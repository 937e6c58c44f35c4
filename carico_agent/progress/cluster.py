"""The jobs of all nodes, out of what each node publishes: its annotation `carico.dev/status` names eight of them.

A node writes the annotation when its numbers have changed enough, or every five minutes. So what is done may be minutes
old, and the expected end is a time of day, which stays true. Of a node with more jobs the sum is shown.
"""

import json
from collections.abc import Iterable
from typing import Any

from carico_agent.lib.kube.access import of_user
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.names import STATUS
from carico_agent.lib.net.buckets import TokenBucket


async def read_nodes(kubeconfig: str, context: str) -> list[Object]:
    """Raises KubeError, OSError, ValueError."""
    async with KubeClient(of_user(kubeconfig, context), TokenBucket(per_s=50.0, burst=100), timeout_s=30.0) as client:
        found: list[Object] = (await client.get("/api/v1/nodes")).get("items") or []
    return found


def jobs_of(nodes: Iterable[Object]) -> list[dict[str, Any]]:
    """One entry per job and node, and one per node for those that are not named.

    >>> work = {"jobs": 3, "sum_s": 90, "top": [["ml/a", 0.5, "2026-01-01T00:00:00Z"]]}
    >>> text = json.dumps({"time": "2026-01-01T00:00:00Z", "work": work})
    >>> node = {"metadata": {"name": "n1", "annotations": {STATUS: text}}}
    >>> [(job["node"], job["name"], job["ratio"], job["end"]) for job in jobs_of([node])]
    [('n1', 'ml/a', 0.5, '2026-01-01T00:00:00Z'), ('n1', '2 more', None, None)]
    """
    found = []
    for node in nodes:
        name, text = node["metadata"]["name"], (node["metadata"].get("annotations") or {}).get(STATUS) or "{}"
        try:
            status = json.loads(text)
            work = status["work"]
            named = [(str(job), float(ratio), str(end)) for job, ratio, end in work.get("top") or ()]
            jobs, sum_s = int(work["jobs"]), float(work["sum_s"])
        except (ValueError, TypeError, KeyError):  # no jobs, or another program wrote it
            continue
        found += [_entry(name, job, ratio, end or None, status.get("time")) for job, ratio, end in named]
        if jobs > len(named):
            found.append(_entry(name, f"{jobs - len(named)} more", None, None, status.get("time")) | {"sum_s": sum_s})
    return sorted(found, key=lambda job: (job["end"] is None, job["end"] or ""))


def _entry(node: str, name: str, ratio: float | None, end: str | None, as_of: str | None) -> dict[str, Any]:
    return {"node": node, "name": name, "ratio": ratio, "end": end, "as_of": as_of}
