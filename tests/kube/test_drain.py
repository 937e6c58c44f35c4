"""`kubectl carico drain-check` and `consolidate` beside a real kube-scheduler and ReplicaSet controller.

Nodes are objects without a kubelet, so Pods end at once when they are evicted. CARICO_DRAIN_NODES=30 drains 30 random
nodes instead of the three that fit into a run of all tests.
"""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import and_, or_
from typing import Any

import pytest

from carico_agent.lib.kube.pods import workload_of
from lab.support.control_plane import Plane, binaries
from lab.support.waiting import wait_for
from tests.kube.conftest import until_steady
from tests.kube.test_kubectl import asked, run

DRAINED = int(os.environ.get("CARICO_DRAIN_NODES", "3"))
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
PDBS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def controlled(cluster: Plane) -> Iterator[Plane]:
    """With a scheduler, and controllers of ReplicaSets and PodDisruptionBudgets."""
    cluster.start_scheduler()
    cluster.run_controllers("replicaset-controller,disruption-controller,garbage-collector-controller")
    yield cluster
    for path in (SETS, PDBS):
        cluster.admin.delete(path)
    wait_for(lambda: not cluster.admin.get(SETS)["items"], "the ReplicaSets are gone")
    cluster.admin.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    cluster.stop_controllers()


def add_node(plane: Plane, name: str, zone: str, cpu: str, memory: str, draw: random.Random | None = None) -> None:
    plane.admin.add_node(name)
    labels = {ZONE: zone, "disk": draw.choice(["ssd", "hdd"]) if draw else "ssd"}
    taints = [{"key": "pool", "value": "gpu", "effect": "NoSchedule"}] if draw and draw.random() < 0.15 else []
    plane.admin.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "spec": {"taints": taints}})
    have = {"cpu": cpu, "memory": memory, "pods": "110"}
    plane.admin.merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": have, "allocatable": have}})


def add_set(plane: Plane, name: str, replicas: int, cpu: str, memory: str, **spec: Any) -> None:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    pod = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, **spec}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    plane.admin.post(SETS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": body})


def constraints(draw: random.Random, name: str) -> dict[str, Any]:
    """What a third of all workloads says about where it runs."""
    own = {"labelSelector": {"matchLabels": {"app": name}}}
    spread = {"maxSkew": 1, "topologyKey": draw.choice([ZONE, HOST]), "whenUnsatisfiable": "DoNotSchedule", **own}
    prefer = {"weight": 50, "podAffinityTerm": {"topologyKey": ZONE, **own}}
    once = "requiredDuringSchedulingIgnoredDuringExecution"
    maybe = "preferredDuringSchedulingIgnoredDuringExecution"
    return draw.choice(
        [
            {"nodeSelector": {"disk": draw.choice(["ssd", "hdd"])}},
            {"tolerations": [{"key": "pool", "operator": "Exists"}]},
            {"topologySpreadConstraints": [spread]},
            {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]},
            {"affinity": {"podAntiAffinity": {once: [{"topologyKey": HOST, **own}]}}},
            {"affinity": {"podAffinity": {once: [{"topologyKey": ZONE, **own}]}}},
            {"affinity": {"podAffinity": {maybe: [prefer]}}},
            {"affinity": {"nodeAffinity": {maybe: [{"weight": 9, "preference": _in("disk", "hdd")}]}}},
            {"affinity": {"nodeAffinity": {once: {"nodeSelectorTerms": [_in(ZONE, "a", "b")]}}}},
        ]
    )


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def fill(plane: Plane, draw: random.Random, nodes: int) -> None:
    """Unlike nodes, requested to about 85 %."""
    cores = 0
    for n in range(nodes):
        size = draw.choice([2, 4, 8])
        cores += size
        memory = f"{draw.choice([2, 4, 8]) * size * 512 + draw.randrange(500)}Mi"
        add_node(plane, f"n{n:02d}", draw.choice("abc"), f"{size * 1000 - draw.randrange(200)}m", memory, draw)
    asked_m, n = 0, 0
    while asked_m < 0.85 * 1000 * cores:
        cpu_m, replicas = draw.randrange(50, 1900), draw.randrange(1, 7)
        rules = constraints(draw, f"w{n}") if draw.random() < 0.4 else {}
        add_set(plane, f"w{n}", replicas, f"{cpu_m}m", f"{draw.randrange(50, 1500)}Mi", **rules)
        asked_m += cpu_m * replicas
        n += 1


def waiting(plane: Plane) -> Counter[str]:
    pods = [pod for pod in plane.admin.pods() if not pod["spec"].get("nodeName")]
    return Counter(workload_of(pod["metadata"]) for pod in pods)


def tried(plane: Plane) -> bool:
    """kube-scheduler has met every Pod: bound, or marked as unschedulable."""
    sets = sum(one["spec"]["replicas"] for one in plane.admin.get(SETS)["items"])
    pods = plane.admin.pods()
    return len(pods) == sets and all(
        pod["spec"].get("nodeName") or "PodScheduled" in str(pod["status"].get("conditions")) for pod in pods
    )


def settled(plane: Plane) -> None:
    wait_for(lambda: tried(plane), "all Pods were tried", 60)
    until_steady(lambda: sorted(waiting(plane).items()), quiet_s=1.0)


def kubectl(plane: Plane, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries() / "kubectl"), "--kubeconfig", str(plane.kubeconfig("admin-token"))]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)


def drain_at_once(plane: Plane, name: str) -> None:
    result = kubectl(plane, "drain", name, "--grace-period=0", "--force")
    assert result.returncode == 0, result.stderr


def drain_in_order(plane: Plane, name: str, pods: list[str]) -> None:
    assert kubectl(plane, "cordon", name).returncode == 0
    for pod in pods:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        plane.admin.post(f"{PODS}/{pod}/eviction", eviction)
        wait_for(lambda: tried(plane), "its successor was tried")


@pytest.mark.parametrize("in_order", [False, True], ids=["kubectl-drain", "one-at-a-time"])
def test_left_over_pods_are_those_of_a_real_drain(controlled: Plane, in_order: bool) -> None:
    """Random nodes of a random cluster, drained one after the other. Where every try of the planner gives the same, the
    real result is that; else what is left over in all tries is left over, and nothing that is in none."""
    draw, admin = random.Random(31), controlled.kubeconfig("admin-token")
    fill(controlled, draw, nodes=34)
    settled(controlled)
    certain = left = tried_too = 0
    for name in draw.sample([f"n{n:02d}" for n in range(34)], DRAINED):
        more = ("--in-order",) if in_order else ()
        (said,) = asked(admin, "drain-check", name, "--tries", "64", *more)["nodes"]
        if in_order:
            drain_in_order(controlled, name, [move["pod"] for move in said["moves"]])
        else:
            drain_at_once(controlled, name)
        settled(controlled)
        real, predicted = waiting(controlled), [Counter(one) for one in said["plans"]]
        always, ever = reduce(and_, predicted), reduce(or_, predicted)
        assert always <= real <= ever, (name, real, predicted)
        assert real == always or not said["certain"]
        certain, left, tried_too = certain + said["certain"], left + bool(real), tried_too + (real in predicted)
        kubectl(controlled, "uncordon", name)
        settled(controlled)
    print(f"{DRAINED} nodes drained: {certain} with one predicted result, {tried_too} as tried, {left} left Pods over")
    assert certain >= DRAINED // 4 and left


def test_consolidate_prints_and_evicts_only_when_told(controlled: Plane) -> None:
    """Four nodes for what fits on two. A PodDisruptionBudget of one workload allows no eviction from a third."""
    admin = controlled.kubeconfig("admin-token")
    for n, name in enumerate(("a", "b", "c", "d")):
        add_node(controlled, name, "abcd"[n], "4", "16Gi")
        controlled.admin.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"only": name}}})
    add_set(controlled, "free", 4, "500m", "1Gi")
    add_set(controlled, "kept", 1, "2", "1Gi", nodeSelector={"only": "d"})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    controlled.admin.post(PDBS, {"kind": "PodDisruptionBudget", "metadata": {"name": "keep"}, "spec": budget})
    wait_for(lambda: sum(controlled.admin.bound().values()) == 5, "all Pods are bound")
    for pod in controlled.admin.pods():
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        controlled.admin.merge(f"{PODS}/{pod['metadata']['name']}/status", {"status": ready})
    wait_for(lambda: controlled.admin.get(f"{PDBS}/keep")["status"].get("currentHealthy") == 1, "the budget is known")
    (kept,) = asked(admin, "drain-check", "d")["nodes"]
    assert kept["verdict"] == "a PodDisruptionBudget keeps Pods" and kept["kept"] == 1

    before = controlled.admin.bound()
    plan = asked(admin, "consolidate")
    freed = [one["node"] for one in plan["freed"]]
    assert len(freed) == 3 and "d" not in freed and plan["bound"] == 1
    assert controlled.admin.bound() == before  # nothing was written
    assert not any(node["spec"].get("unschedulable") for node in controlled.admin.get("/api/v1/nodes")["items"])

    result = run(admin, "consolidate", "--evict", "--max-nodes", "1", "--wait", "20s")
    assert result.returncode == 0, result.stderr
    after = controlled.admin.bound()
    assert freed[0] not in after and sum(after.values()) == 5 and after["d"] >= before["d"]
    assert controlled.admin.node(freed[0])["spec"]["unschedulable"] and "empty and cordoned" in result.stderr
