"""Kueue's admission check without Kueue: which answers it writes. With Kueue itself: tests/kube/test_kueue.py."""

import asyncio
import copy
import time
from typing import Any

import pytest

from carico_agent.extender.kueue.check import KUEUE, KueueCheck
from carico_agent.extender.kueue.workload import read_workload
from carico_agent.extender.node_marks import read_marks
from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode
from carico_agent.lib.net.times import rfc3339
from tests.extender.team import extender_of
from tests.kube.small_server import SmallServer

NOW_S = 1_700_000_000.0
NAN = float("nan")


class KueueServer:
    """Workloads, checks and flavors in memory; stands where a client would."""

    def __init__(self) -> None:
        self.workloads: dict[str, Object] = {}
        self.flavors: list[Object] = []
        self.check: Object = {"metadata": {"name": "carico-room"}, "spec": {"controllerName": "carico.dev/room"}}
        self.other: Object = {"metadata": {"name": "other"}, "spec": {"controllerName": "somewhere/else"}}
        self.conflict = False

    async def get(self, path: str) -> Object:
        return {"items": [self.check, self.other] if path.endswith("admissionchecks") else self.flavors}

    async def patch(self, path: str, body: Object) -> Object:
        if "/admissionchecks/" in path:
            self.check["status"] = body["status"]
            return self.check
        if self.conflict:
            raise Refused(409, "it has changed")
        workload = self.workloads[path.split("/")[-2]]
        assert body["metadata"]["resourceVersion"] == workload["metadata"]["resourceVersion"]
        workload["status"]["admissionChecks"] = body["status"]["admissionChecks"]
        workload["metadata"]["resourceVersion"] += "1"
        return {"metadata": copy.deepcopy(workload["metadata"])}  # a client asks for the metadata only

    def state(self, name: str) -> tuple[str, str]:
        check = self.workloads[name]["status"]["admissionChecks"][-1]
        return check["state"], check["message"]


def workload(name: str, pods: int, reserved_s: float = NOW_S, spec: Object | None = None) -> Object:
    template = {"spec": {"containers": [{"name": "c"}], **(spec or {})}}
    checks = [
        {"name": "other", "state": "Ready", "lastTransitionTime": rfc3339(reserved_s), "message": ""},
        {"name": "carico-room", "state": "Pending", "lastTransitionTime": rfc3339(reserved_s), "message": ""},
    ]
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": rfc3339(reserved_s)}
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "count": pods}
    return {
        "metadata": {
            "namespace": "d",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "ownerReferences": [{"kind": "Job", "name": name, "controller": True}],
        },
        "spec": {"podSets": [{"name": "main", "count": pods, "template": template}]},
        "status": {
            "conditions": [reserved],
            "admissionChecks": checks,
            "admission": {"podSetAssignments": [assigned]},
        },
    }


class Scene:
    """Two nodes, and a check."""

    def __init__(self, nodes: list[PublishedNode], *workloads: Object) -> None:
        self.server = KueueServer()
        self.cluster = extender_of(SmallServer(), nodes)[1]
        client: Any = self.server
        self.check = KueueCheck(client, self.cluster, "carico.dev/pods", lambda: True)
        self.check._marks.listed(read_marks({"metadata": {"name": node.name}}) for node in nodes)
        for one in workloads:
            self.add(one)

    def add(self, one: Object) -> None:
        self.server.workloads[one["metadata"]["name"]] = one
        self.check.changed(False, read_workload(copy.deepcopy(one)))

    async def after(self, seconds: float = 0.0) -> "Scene":
        await self.check.round(NOW_S + seconds)
        return self


def node(name: str, places: float, workloads: NodeWorkloads | None = None) -> PublishedNode:
    return PublishedNode(name, places, 0.0, 1e9, 4.0, cpu=4.0, memory=16e9, workloads=workloads)


async def test_all_pods_fit_or_the_workload_waits() -> None:
    scene = Scene([node("a", 3.5), node("b", 2.5)], workload("four", 4), workload("three", 3), workload("one", 1))
    await scene.after()
    assert scene.server.check["status"]["conditions"][0]["status"] == "True"
    assert "status" not in scene.server.other
    assert scene.server.state("four") == ("Ready", "all 4 Pods fit: 3 on a, 1 on b")
    assert scene.server.state("one") == ("Ready", "all 1 Pods fit: 1 on b")
    assert scene.server.state("three") == ("Pending", "room for 0 of 3 Pods")
    assert scene.server.workloads["four"]["status"]["admissionChecks"][0]["name"] == "other"


async def test_a_workload_that_does_not_fit_holds_nothing() -> None:
    scene = await Scene([node("a", 3.5)], workload("a-large", 5), workload("b-small", 3)).after()
    assert scene.server.state("a-large")[0] == "Pending"
    assert scene.server.state("b-small")[0] == "Ready"


async def test_room_is_kept_until_the_pods_are_there_but_not_for_ever() -> None:
    scene = await Scene([node("a", 4.5)], workload("first", 3)).after()
    scene.server.workloads["first"]["status"]["conditions"].append({"type": "Admitted", "status": "True"})
    scene.add(scene.server.workloads["first"])
    scene.add(workload("second", 2, NOW_S))
    await scene.after(1)
    assert scene.server.state("second") == ("Pending", "room for 1 of 2 Pods: 1 on a")
    for number in range(3):  # its Pods come: they are counted once, not twice
        meta = {"uid": f"p{number}", "name": f"first-x7k2{number}", "namespace": "d", "labels": {"job-name": "first"}}
        spec = {"nodeName": "a", "containers": [{"name": "c"}]}
        scene.cluster.pod_changed(False, facts({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}))
        await scene.after(2)
        assert scene.server.state("second") == ("Pending", "room for 1 of 2 Pods: 1 on a")
    meta = {"uid": "p0", "name": "first-x7k20", "namespace": "d", "labels": {"job-name": "first"}}
    spec = {"nodeName": "a", "containers": [{"name": "c"}]}
    scene.cluster.pod_changed(False, facts({"metadata": meta, "spec": spec, "status": {"phase": "Succeeded"}}))
    assert (await scene.after(3)).server.state("second")[0] == "Ready"  # one has ended: its room is free


async def test_what_was_promised_expires() -> None:
    scene = await Scene([node("a", 4.5)], workload("first", 3)).after()
    scene.cluster.node_changed(False, node("a", 2.5))
    await scene.after(59)
    assert scene.server.state("first")[0] == "Ready"
    await scene.after(61)  # Kueue has not admitted it: other checks took too long
    assert scene.server.state("first") == ("Pending", "room for 2 of 3 Pods: 2 on a")


async def test_unlike_pods_count_by_what_they_take() -> None:
    """Four cores are left. Pods of `heavy` were measured to take 1.5 cores each, those of `light` a quarter."""
    known = {
        "d/heavy": WorkloadOnNode((1.5, 1e8, NAN, NAN)),
        "d/light": WorkloadOnNode((0.25, 1e8, NAN, NAN)),
    }
    room = NodeWorkloads(room=(4.0, 8e9, NAN, NAN), workloads=known)
    scene = await Scene([node("a", 4.0, room)], workload("heavy", 3), workload("light", 12)).after()
    assert scene.server.state("heavy") == ("Pending", "room for 2 of 3 Pods: 2 on a")
    assert scene.server.state("light")[0] == "Ready"
    scene = await Scene([node("a", 4.0, room)], workload("heavy", 2), workload("light", 12)).after()
    assert scene.server.state("heavy")[0] == "Ready"
    assert scene.server.state("light") == ("Pending", "room for 3 of 12 Pods: 3 on a")


async def test_flavors_and_selectors_decide_which_nodes_count() -> None:
    scene = Scene([node("a", 3.5), node("b", 2.5), node("c", 9.5)], workload("three", 3), workload("picky", 1))
    labels = {"b": {"type": "spot"}, "c": {"type": "spot"}}
    for name in ("a", "b", "c"):
        scene.check._marks.changed(False, read_marks({"metadata": {"name": name, "labels": labels.get(name, {})}}))
    cordoned = {"metadata": {"name": "c", "labels": labels["c"]}, "spec": {"unschedulable": True}}
    scene.check._marks.changed(False, read_marks(cordoned))
    scene.server.flavors = [{"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"type": "spot"}}}]
    scene.add(workload("picky", 1, spec={"nodeSelector": {"disk": "ssd"}}))
    await scene.after()
    assert scene.server.state("three") == ("Pending", "room for 2 of 3 Pods: 2 on b")
    assert scene.server.state("picky") == ("Pending", "room for 0 of 1 Pods")


@pytest.mark.parametrize("kind", ["Finished", "Evicted"])
async def test_what_is_over_is_not_answered(kind: str) -> None:
    over = workload("over", 1)
    over["status"]["conditions"].append({"type": kind, "status": "True"})
    assert (await Scene([node("a", 3.5)], over).after()).server.state("over") == ("Pending", "")


async def test_without_quota_no_answer_is_due_and_a_conflict_is_tried_again() -> None:
    queued = workload("queued", 1)
    queued["status"]["conditions"] = []
    scene = Scene([node("a", 3.5)], queued, workload("changed", 1))
    scene.server.conflict = True
    await scene.after()
    assert scene.server.state("changed") == scene.server.state("queued") == ("Pending", "")
    scene.server.conflict = False
    assert (await scene.after(1)).server.state("changed")[0] == "Ready"


def test_the_path_is_that_of_the_version_in_the_tests() -> None:
    assert KUEUE.endswith("/v1beta2")


async def test_a_long_affinity_and_many_workloads_do_not_keep_kube_scheduler_waiting() -> None:
    """Before: one Job with 5000 terms stopped the event loop for 3.9 s in each round, with 1000 nodes."""
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}] * 5000
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec = {"affinity": affinity, "tolerations": [{"key": "k", "operator": "Exists"}] * 5000}
    many = [workload(f"w{number}", 9) for number in range(100)]
    scene = Scene([node(f"n{number}", 0.5) for number in range(100)], workload("long", 1, spec=spec), *many)
    await scene.after()
    turns = 0

    async def questions() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others, began_s = asyncio.create_task(questions()), time.process_time()
    await scene.after(1.0)
    others.cancel()
    assert turns >= 100
    assert time.process_time() - began_s < 0.3
    assert scene.server.state("long") == ("Pending", "room for 0 of 1 Pods")
