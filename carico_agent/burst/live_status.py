"""What a Job does at its target, written on the Job at home while it runs there: annotation `carico.dev/burst-status`.

The status of the home Job itself belongs to home's own Job controller, which holds the Job and counts no Pods; only the
final result is written there.
"""

import json
from typing import Any

from carico_agent.burst.cluster import PodSeen
from carico_agent.burst.objects import CopyJob, HomeJob

STATUS = "carico.dev/burst-status"


def seen_there(job: HomeJob, copy: CopyJob, pods: list[PodSeen]) -> dict[str, Any]:
    """`pods`: the copy's Pods that have not ended."""
    status = copy.whole.get("status") or {}
    conditions = [one["type"] for one in status.get("conditions") or () if one.get("status") == "True"]
    return {
        "at": job.ledger.to,
        "active": copy.active,
        "ready": int(status.get("ready") or 0),
        "succeeded": copy.succeeded,
        "failed": copy.failed,
        "waiting": sum(1 for pod in pods if not pod.node),
        "conditions": conditions,
        "nodes": sorted({pod.node for pod in pods if pod.node})[:20],
    }


def patch_of(job: HomeJob, seen: dict[str, Any]) -> dict[str, Any] | None:
    """The annotation, or None where it says so already."""
    text = json.dumps(seen, separators=(",", ":"))
    if (job.whole["metadata"].get("annotations") or {}).get(STATUS) == text:
        return None
    return {"metadata": {"annotations": {STATUS: text}}}
