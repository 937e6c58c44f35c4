"""The nodes that the extender's benchmarks are about."""

import json
from datetime import UTC, datetime
from typing import Any

from carico_agent.lib.kube.names import WORKLOADS
from carico_agent.lib.kube.placement_lease import OFFER
from carico_agent.lib.net.times import rfc3339


def name(number: int) -> str:
    return f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal"


def node_object(name: str, slots: int, workloads: str = "") -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status = json.dumps({"time": now, "ttl_s": 3000, "places": slots, "pods": 0, "mode": "measured"})
    have = {"cpu": "4", "memory": "16Gi", "pods": "110", "carico.dev/pods": str(slots)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {
            "capacity": have,
            "allocatable": have,
            "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}],
        },
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {
                "carico.dev/slots": str(slots),
                "carico.dev/status": status,
                **({WORKLOADS: workloads} if workloads else {}),
            },
        },
    }


def lease_object(name: str, slots: int) -> dict[str, Any]:
    """The placement Lease of such a node, as its agent writes it."""
    offer = {"places": slots, "resource": slots, "time": rfc3339(), "ttl_s": 3000}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "carico", "annotations": {OFFER: json.dumps(offer)}},
        "spec": {"holderIdentity": "bench", "renewTime": rfc3339(digits="microseconds"), "leaseDurationSeconds": 3000},
    }
