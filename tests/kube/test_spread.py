"""A Pod's own preference to be spread holds while a packing policy is on, with a real kube-scheduler."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from carico_agent.lib.net.times import rfc3339
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from tests.kube.test_burst import extended
from tests.kube.test_prompt import counted

ZONE = "topology.kubernetes.io/zone"
ZONES = {f"{zone}{n}": zone for zone in "abc" for n in range(2)}
PODS = 9


def add_nodes(plane: Plane) -> None:
    """Two in each of three zones, all with room."""
    for name, zone in ZONES.items():
        plane.admin.add_node(name)
        notes = {
            "carico.dev/slots": "50",
            "carico.dev/status": json.dumps({"time": rfc3339(), "ttl_s": 150, "places": 50}),
        }
        plane.admin.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": notes, "labels": {ZONE: zone}}})
        offer = json.dumps({"places": 50, "resource": 0, "time": rfc3339(), "ttl_s": 150})
        meta = {"name": name, "namespace": "carico", "annotations": {"carico.dev/offer": offer}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}
        plane.admin.post("/apis/coordination.k8s.io/v1/namespaces/carico/leases", lease)


def add_pod(plane: Plane, name: str, when: str | None) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}],
        "automountServiceAccountToken": False,
        **({"topologySpreadConstraints": [spread]} if when else {}),
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
    plane.admin.post("/api/v1/namespaces/default/pods", pod)


@pytest.mark.parametrize(("when", "packed"), [(None, True), ("ScheduleAnyway", False)])
def test_zones_stay_even(
    cluster: Plane, start_extender: Callable[..., ExtenderProcess], when: str | None, packed: bool
) -> None:
    extender = start_extender(policy="packed")
    wait_for(lambda: counted(extender, "leads") == 1, "the extender leads")
    add_nodes(cluster)
    cluster.start_scheduler(extended(extender))
    for n in range(PODS):
        add_pod(cluster, f"web-{n}", when)
        wait_for(lambda bound=n + 1: sum(cluster.admin.bound().values()) == bound, f"Pod {n} is bound")
    zones: Counter[str] = Counter(dict.fromkeys("abc", 0))
    for name, count in cluster.admin.bound().items():
        zones[ZONES[name]] += count
    skew = max(zones.values()) - min(zones.values())
    assert (skew > 1) if packed else (skew <= 1), zones
