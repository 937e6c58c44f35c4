"""What random Pods ask for, held against a real kube-scheduler: a node that has exactly that takes the Pod, one that
has a thousandth of a core, a byte or a place less does not."""

import random
from typing import Any

from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.pod_requests import asked
from lab.support.control_plane import Plane
from lab.support.kube_admin import AdminError
from lab.support.waiting import wait_for

PODS = 40
MIB = 1024 * 1024
NAMES = ("cpu", "memory", RESOURCE)
STEP = {"cpu": 0.001, "memory": 1, RESOURCE: 1}

Pod = dict[str, Any]


def text(name: str, amount: float) -> str:
    return f"{round(1000 * amount)}m" if name == "cpu" else str(round(amount))


class Drawn:
    """Random parts of Pods."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def amounts(self) -> dict[str, str]:
        given = {"cpu": f"{self.random.randrange(0, 900)}m", "memory": f"{self.random.randrange(0, 300)}Mi"}
        return {name: given[name] for name in given if self.maybe(0.7)}

    def container(self, name: str, **more: Any) -> Pod:
        requests = self.amounts()
        places = {RESOURCE: str(self.random.randrange(1, 4))} if self.maybe(0.4) else {}
        return {
            "name": name,
            "image": "pause",
            "resources": {"requests": {**requests, **places}, "limits": places},
            **more,
        }

    def spec(self) -> Pod:
        containers = [self.container(f"c{n}") for n in range(self.random.randrange(1, 4))]
        first = [
            self.container(f"i{n}", **({"restartPolicy": "Always"} if self.maybe(0.5) else {}))
            for n in range(self.random.randrange(0, 4))
        ]
        spec: Pod = {"containers": containers, "initContainers": first}
        if self.maybe(0.3):
            spec["runtimeClassName"] = "heavy"
        if self.maybe(0.5):
            spec["resources"] = self.of_pod(spec)
        return spec

    def of_pod(self, spec: Pod) -> Pod:
        """Not less than what its containers ask for together, or the API server refuses it."""
        whole: Pod = {}
        for name in ("cpu", "memory"):
            least = asked({"spec": spec}, name)
            more = text(name, least + STEP[name] * self.random.randrange(1, 1000))
            if self.maybe(0.5):
                whole.setdefault("requests", {})[name] = more
            elif self.maybe(0.5):
                whole.setdefault("limits", {})[name] = more
        return whole


def add_node(plane: Plane, name: str, have: dict[str, float]) -> None:
    plane.admin.add_node(name)
    amounts = {key: text(key, amount) for key, amount in have.items()}
    plane.admin.merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


def on(node: str) -> Pod:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def read(plane: Plane, name: str) -> Pod:
    pod: Pod = plane.admin.get(f"/api/v1/namespaces/default/pods/{name}")
    return pod


def heavy_class(plane: Plane) -> None:
    overhead = {"podFixed": {"cpu": "130m", "memory": "33Mi"}}
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"}}
    try:
        plane.admin.post("/apis/node.k8s.io/v1/runtimeclasses", {**body, "handler": "heavy", "overhead": overhead})
    except AdminError as error:
        assert error.status == 409, error


def wait_until_decided(plane: Plane) -> dict[str, str]:
    """Every Pod is bound or was refused. Returns the nodes of those that are bound, by name."""

    def decided() -> bool:
        return all(
            pod["spec"].get("nodeName") or (pod["status"].get("conditions") or [{}])[0].get("type") == "PodScheduled"
            for pod in plane.admin.pods()
        )

    wait_for(decided, "every Pod is decided about", 60)
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") or "" for pod in plane.admin.pods()}


def test_pods_that_wait(cluster: Plane) -> None:
    heavy_class(cluster)
    drawn, pods = Drawn(1), []
    for number in range(PODS):
        spec = drawn.spec()
        for verdict in ("fits", "tight"):
            name = f"{verdict}-{number}"
            cluster.admin.add_pod(name, 0, **{**spec, **on(name)})
            pods.append(read(cluster, name))
    for pod in pods:
        name, have = pod["metadata"]["name"], {key: asked(pod, key) for key in NAMES}
        if name.startswith("tight"):
            short = drawn.random.choice([key for key in NAMES if have[key]] or ["pods"])
            have[short] = have.get(short, 0) - STEP.get(short, 0)
        add_node(cluster, name, have)
    cluster.start_scheduler()
    bound = wait_until_decided(cluster)
    wrong = [name for name, node in bound.items() if bool(node) != name.startswith("fits")]
    assert wrong == [], [(name, read(cluster, name)["spec"], cluster.admin.node(name)["status"]) for name in wrong[:1]]
    used = [one["spec"] for one in pods]
    # Pod-level resources are alpha before 1.34: the server drops them.
    assert (sum("resources" in spec for spec in used) > 10) == (cluster.version >= (1, 34))
    assert sum("overhead" in spec for spec in used) > 10


def resized(drawn: Drawn, pod: Pod) -> Pod:
    """A status in which some containers are being resized."""
    status: Pod = {"phase": "Running", "containerStatuses": [], "initContainerStatuses": []}
    for key, workload in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
        for one in pod["spec"].get(key) or ():
            resources = {"requests": drawn.amounts()} if drawn.maybe(0.8) else None
            row = {
                "name": one["name"],
                "image": "pause",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {},
                "lastState": {},
                **({"resources": resources} if resources else {}),
                **({"allocatedResources": drawn.amounts()} if drawn.maybe(0.5) else {}),
            }
            status[workload].append(row)
    if drawn.maybe(0.5) and pod["spec"].get("resources"):
        status |= {"resources": {"requests": drawn.amounts()}, "allocatedResources": drawn.amounts()}
    if drawn.maybe(0.5):
        reason = drawn.random.choice(["Infeasible", "Deferred"])
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def test_pods_that_are_there_and_are_being_resized(cluster: Plane) -> None:
    """Beside each a node has room for 500m and 100 MiB exactly: one Pod asks for that, another for a little more."""
    heavy_class(cluster)
    drawn = Drawn(2)
    for number in range(PODS):
        node = f"n-{number}"
        cluster.admin.add_node(node)
        cluster.admin.add_pod(f"there-{number}", 0, **{**drawn.spec(), "nodeName": node})
        path = f"/api/v1/namespaces/default/pods/there-{number}"
        cluster.admin.merge(f"{path}/status", {"status": resized(drawn, read(cluster, f"there-{number}"))})
        there = read(cluster, f"there-{number}")
        have = {"cpu": asked(there, "cpu") + 0.5, "memory": asked(there, "memory") + 100 * MIB}
        amounts = {key: text(key, amount) for key, amount in have.items()} | {RESOURCE: "100"}
        cluster.admin.merge(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
        more = drawn.random.choice(["cpu", "memory"])
        for verdict, extra in (("tight", STEP[more]), ("fits", 0)):
            probe = {"cpu": 0.5, "memory": 100.0 * MIB}
            probe[more] += extra
            requests = {key: text(key, amount) for key, amount in probe.items()}
            container = {"name": "c", "image": "pause", "resources": {"requests": requests}}
            cluster.admin.add_pod(f"{verdict}-{number}", 0, **{"containers": [container], **on(node)})
    cluster.start_scheduler()
    bound = wait_until_decided(cluster)
    wrong = [name for name, node in bound.items() if bool(node) == name.startswith("tight")]
    assert wrong == [], [read(cluster, f"there-{name.rpartition('-')[2]}") for name in wrong[:1]]
