"""`kubectl carico drain-check` and `consolidate` on lists; an exact solver beside it."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from carico_agent.kubectl import main
from carico_agent.kubectl.drain.budgets import budget
from carico_agent.kubectl.drain.consolidate import consolidate
from carico_agent.kubectl.drain.facts import node_facts, pod_facts
from carico_agent.kubectl.drain.planner import drain
from carico_agent.kubectl.drain.state import TrialCluster
from tests.commands.kube_api import KubeApi, serving
from tests.commands.test_kubectl import LEASES
from tests.commands.test_kubectl import node as published

PDBS = "/apis/policy/v1/poddisruptionbudgets"


def node(name: str, cpu: str = "4", memory: str = "8Gi", **spec: Any) -> Any:
    have = {"cpu": cpu, "memory": memory, "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": have}}


def pod(name: str, on: str = "", cpu: str = "1", owner: str = "ReplicaSet", memory: str = "1Gi", **spec: Any) -> Any:
    workload = name.rpartition("-")[0] or name
    owners = [{"kind": owner, "name": workload, "uid": f"uid-{workload}", "controller": True}] if owner else []
    meta = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": workload}, "ownerReferences": owners}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec = {"containers": [container], **spec, **({"nodeName": on} if on else {})}
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "conditions": ready}}


def situation(nodes: Sequence[Any], pods: Sequence[Any], **more: Any) -> TrialCluster:
    made = TrialCluster([node_facts(one) for one in nodes], **more)
    made.add(pod_facts(one) for one in pods)
    return made


def left(plan: Any) -> dict[str, str]:
    return {fate.pod.name: fate.why for fate in plan.left_over}


def test_each_rule_keeps_a_pod_where_it_is() -> None:
    """One Pod per rule; b would take all of them otherwise."""
    own = {"labelSelector": {"matchLabels": {"app": "anti"}}, "topologyKey": "kubernetes.io/hostname"}
    once = "requiredDuringSchedulingIgnoredDuringExecution"
    port = {"name": "c", "ports": [{"hostPort": 80}]}
    pods = [
        pod("big-1", "a", cpu="3"),
        pod("selects-1", "a", nodeSelector={"kubernetes.io/hostname": "a"}),
        pod("anti-1", "a", affinity={"podAntiAffinity": {once: [own]}}),
        pod("anti-2", "b", affinity={"podAntiAffinity": {once: [own]}}),
        {**pod("port-1", "a"), "spec": {"containers": [port], "nodeName": "a"}},
        {**pod("port-2", "b"), "spec": {"containers": [port], "nodeName": "b"}},
        pod("fine-1", "a", cpu="100m"),
        pod("alone", "a", owner=""),
        pod("agent-1", "a", owner="DaemonSet"),
    ]
    tainted = node("c", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    plan = drain(situation([node("a"), node("b", "3"), tainted], pods), ["a"])
    why = left(plan)
    assert set(why) == {"big-1", "selects-1", "anti-1", "port-1", "alone"}
    assert "1 × has too little cpu by requests" in why["big-1"] and "1 × is cordoned" in why["big-1"]
    assert "gpu:NoSchedule" in why["big-1"] and "node selector" in why["selects-1"]
    assert "anti-affinity" in why["anti-1"] and "host port" in why["port-1"] and "no controller" in why["alone"]
    assert [one.name for one in plan.ignored] == ["agent-1"]


def test_a_local_volume_holds_its_pod() -> None:
    import numpy as np

    claims = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    pods = [pod("db-0", "a", owner="StatefulSet", volumes=claims)]
    reachable = {"shop/data-db-0": np.array([True, False])}
    plan = drain(situation([node("a"), node("b")], pods, volumes=reachable), ["a"])
    assert "cannot reach the volume of claim data-db-0" in left(plan)["db-0"]


@pytest.mark.parametrize(("allowed", "kept"), [(0, 3), (1, 0), (2, 0)])
def test_a_budget_comes_back_when_a_pod_runs_again(allowed: int, kept: int) -> None:
    meta, selector = {"name": "web", "namespace": "shop"}, {"matchLabels": {"app": "web"}}
    status = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed}
    budgets = [budget({"metadata": meta, "spec": {"selector": selector}, "status": status})]
    pods = [pod(f"web-{n}", "a") for n in range(3)]
    plan = drain(situation([node("a"), node("b")], pods), ["a"], budgets)
    assert sum(fate.stays for fate in plan.fates) == kept
    full = drain(situation([node("a"), node("b", "1")], pods), ["a"], budgets)
    # One fits. With a budget of one, the next that fits nowhere spends it, and the last one is kept.
    assert sum(move.stays for move in full.moves) == {0: 3, 1: 1, 2: 0}[allowed]
    assert sum(not move.to and not move.stays for move in full.moves) == {0: 0, 1: 1, 2: 2}[allowed]


def test_what_depends_on_the_order_says_so() -> None:
    """Room for the large one or for both small ones, not for all."""
    pods = [pod("large-1", "a", cpu="2"), pod("small-1", "a"), pod("little-1", "a")]
    plan = drain(situation([node("a"), node("b", "2")], pods), ["a"], tries=64)
    assert not plan.certain and {fate.pod.name: fate.certain for fate in plan.fates}["large-1"] is False
    urgent = [{**one, "spec": {**one["spec"], "priority": 9 * (n == 0)}} for n, one in enumerate(pods)]
    sure = drain(situation([node("a"), node("b", "2")], urgent), ["a"], tries=64)
    assert sure.certain and set(left(sure)) == {"small-1", "little-1"}  # kube-scheduler takes the urgent one first


# ---- consolidation


def fits_on(pods: list[tuple[int, int]], nodes: list[list[int]]) -> bool:
    """Whether all Pods fit, by trying every assignment."""
    if not pods:
        return True
    (cpu, memory), *rest = pods
    for at in {tuple(one): n for n, one in enumerate(nodes)}.values():
        if nodes[at][0] >= cpu and nodes[at][1] >= memory:
            nodes[at][0] -= cpu
            nodes[at][1] -= memory
            found = fits_on(rest, nodes)
            nodes[at][0] += cpu
            nodes[at][1] += memory
            if found:
                return True
    return False


def fewest(nodes: int, pods: list[tuple[int, int]]) -> int:
    """Nodes of 4 cores and 8 GiB that an exact solver needs."""
    pods = sorted(pods, reverse=True)
    return next(k for k in range(nodes + 1) if fits_on(pods, [[4000, 8192] for _ in range(k)]))


def test_close_to_an_exact_solver_on_small_clusters() -> None:
    """Never fewer nodes than the solver, which may assign Pods as it likes; in total at most a tenth more."""
    draw, ours, exact = random.Random(1), 0, 0
    for _ in range(40):
        sizes = [(draw.randrange(200, 2000), draw.randrange(300, 4000)) for _ in range(draw.randrange(4, 10))]
        free = {f"n{n}": [4000, 8192] for n in range(6)}
        pods = []
        for n, (cpu, memory) in enumerate(sizes):
            on = draw.choice([name for name, have in free.items() if have[0] >= cpu and have[1] >= memory])
            free[on] = [free[on][0] - cpu, free[on][1] - memory]
            pods.append(pod(f"w{n}-1", on, f"{cpu}m", memory=f"{memory}Mi"))
        now = situation([node(name) for name in free], pods)
        found = consolidate(now, ())
        best = fewest(6, sizes)
        assert found.bound <= best <= found.needed
        ours, exact = ours + found.needed, exact + best
        still = {node.name for node in now.nodes} - {one.name for one in found.freed}
        last = {move.pod.name: move.to for one in found.freed for move in one.moves}
        assert set(last.values()) <= still | {one.name for one in found.freed}
    assert ours <= 1.1 * exact, (ours, exact)


def test_nodes_that_must_stay_are_named() -> None:
    local = [{"name": "scratch", "emptyDir": {}}]
    pods = [pod("web-1", "a"), pod("cache-1", "b", volumes=local), pod("alone", "c", owner="")]
    now = situation([node("a"), node("b"), node("c"), node("d")], pods)
    found = consolidate(now, ())
    assert [one.name for one in found.freed] == ["d", "a"]
    assert dict(found.blocked)["b"].startswith("shop/cache-1 would lose local data")
    assert [one.name for one in consolidate(now, (), local_data=True).freed] == ["d", "a", "b"]
    assert len(consolidate(now, (), min_nodes=3).freed) == 1
    assert [one.name for one in consolidate(now, (), candidates=["a"]).freed] == ["a"]


# ---- the command


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[KubeApi]:
    """By requests everything fits anywhere; by use b is full and c has room."""
    with serving() as api:
        nodes = [published("a", room=6.0), published("b", room=0.2), published("c", room=0.6)]
        api.lists["/api/v1/nodes"] = nodes
        web = {"pod-template-hash": "6c5d9b7f8d"}
        pods = [pod(f"web-6c5d9b7f8d-{end}", "a", "100m") for end in ("bcdfg", "x7k2p")]
        for one in pods:
            one["metadata"]["labels"] = web
        api.lists["/api/v1/pods"] = pods
        api.lists[LEASES] = api.lists[PDBS] = []
        monkeypatch.setenv("KUBECONFIG", api.kubeconfig(tmp_path))
        yield api
        assert {method for method, _, _ in api.asked} <= {"GET"}


def test_by_use_and_by_requests(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    """A Pod of shop/web was measured to take half a core: c has room for one of the two."""
    assert main(["drain-check", "node/a", "-o", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (found["left_over"], found["left_over_by_use"]) == (0, 1) and not found["clear"]
    assert found["verdict"] == "Pods fit by requests but not by use"
    assert any("has too little cpu by use" in (move["why"] or "") for move in found["moves"])
    assert main(["drain-check", "--all"]) == 1
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "NODE" and len(rows) == 3 and rows[1].split()[:4] == ["b", "0", "0", "0"]
    assert main(["drain-check", "a"]) == 1
    assert capsys.readouterr().out.startswith("a: Pods fit by requests but not by use: 2 Pods would move, 0 left over")


def test_consolidation_leaves_what_use_does_not_allow(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consolidate", "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [one["node"] for one in plan["freed"]] == ["b", "c"]
    assert main(["consolidate"]) == 0
    assert "2 of 3 nodes are not needed" in capsys.readouterr().out


def test_mistakes(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["drain-check"], "give either the name of a node or --all"),
        (["drain-check", "a", "--all"], "give either the name of a node or --all"),
        (["consolidate", "a"], "use -l for labels of nodes"),
        (["drain-check", "a", "--evict"], "kubectl drain a"),
        (["consolidate", "--max-nodes", "0"], "at least 1"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
    assert main(["drain-check", "zz"]) == 1
    assert "there is no node zz" in capsys.readouterr().err
    api.forbidden[PDBS] = "poddisruptionbudgets"
    assert main(["drain-check", "b"]) == 0
    assert "the plan does not know PodDisruptionBudgets" in capsys.readouterr().err


def test_no_plan_needs_more_than_all_orders() -> None:
    """Every outcome of the tries is one of those that all orders give."""
    pods = [pod(f"w{n}-1", "a", f"{cpu}m") for n, cpu in enumerate((1500, 1000, 700, 600))]
    now = situation([node("a"), node("b", "2"), node("c", "1")], pods)
    all_orders = set()
    for order in itertools.permutations(range(4)):
        ranked = [{**one, "spec": {**one["spec"], "priority": order[n]}} for n, one in enumerate(pods)]
        all_orders |= set(
            drain(situation([node("a"), node("b", "2"), node("c", "1")], ranked), ["a"], tries=8).outcomes
        )
    assert set(drain(now, ["a"], tries=64).outcomes) <= all_orders
