"""Random Pods on random nodes, held against a real kube-scheduler: it binds a Pod only where burst and drain-check say
that it fits, and to no node only where they know none.

A small sample runs everywhere; CARICO_BURST_WHOLE=1 runs thirty times as many.
"""

import os
import random
from typing import Any

from carico_agent.burst.cluster import ClusterView, asked_by, read_node, read_pod
from carico_agent.burst.overflow import NodeRoom, fitting
from carico_agent.kubectl.drain.facts import node_facts, pod_facts
from carico_agent.kubectl.drain.filters import allowed
from carico_agent.kubectl.drain.state import TrialCluster
from carico_agent.lib.kube.health import Health
from lab.support.burst_planes import BurstPlane
from lab.support.waiting import wait_for

SCENES = 120 if os.environ.get("CARICO_BURST_WHOLE") else 4
PODS = 25
GPU, PODS_PATH, NODES_PATH = "example.com/gpu", "/api/v1/namespaces/default/pods", "/api/v1/nodes"
Object = dict[str, Any]


class Drawn:
    """Random nodes and Pods from few values, so that they meet often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def node(self, name: str) -> Object:
        labels = {"kubernetes.io/hostname": name}
        for key, values in {"zone": "ab", "disk": ("ssd", "hdd"), "cores": ("4", "8", "many")}.items():
            if self.maybe(0.8):
                labels[key] = self.random.choice(values)
        taints = [
            {"key": key, "value": self.random.choice(("x", "y")), "effect": effect}
            for key in ("gpu", "team")
            for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule")
            if self.maybe(0.12)
        ]
        have = {"cpu": self.random.choice(("1", "2500m")), "memory": "2Gi", "pods": self.random.choice(("3", "8"))}
        if self.maybe(0.5):
            have[GPU] = self.random.choice("012")
        if self.maybe(0.5):
            have["ephemeral-storage"] = "10Gi"
        meta = {"name": name, "labels": labels}
        spec = {"taints": taints, **({"unschedulable": True} if self.maybe(0.15) else {})}
        ready = {"type": "Ready", "status": "True", "reason": "test", "message": ""}
        status = {"capacity": have, "allocatable": have, "conditions": [ready]}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}

    def container(self, name: str, **more: Any) -> Object:
        asked = {"cpu": self.random.choice(("0", "100m", "700m")), "memory": self.random.choice(("64Mi", "700Mi"))}
        asked = {key: amount for key, amount in asked.items() if self.maybe(0.7)}
        if self.maybe(0.1):
            asked["ephemeral-storage"] = "6Gi"
        gpu = {GPU: "1"} if self.maybe(0.2) else {}
        taken = name in ("c0", "i") and self.maybe(0.15)  # two containers of one Pod may not take the same one
        ports = (
            [{"containerPort": 80, "hostPort": 8080 if name == "i" else self.random.choice((8081, 8082))}]
            if taken
            else []
        )
        if ports and self.maybe(0.5):
            ports[0]["hostIP"] = self.random.choice(("10.0.0.1", "10.0.0.2"))  # type: ignore[assignment]
        resources = {"requests": {**asked, **gpu}, "limits": gpu}
        return {"name": name, "image": "x", "resources": resources, "ports": ports, **more}

    def pod(self, name: str, node: str = "") -> Object:
        labels = {"app": self.random.choice("abc")}
        spec: Object = {"containers": [self.container(f"c{n}") for n in range(self.random.choice((1, 1, 2)))]}
        if self.maybe(0.25):
            sidecar = {"restartPolicy": "Always"} if self.maybe(0.5) else {}
            spec["initContainers"] = [self.container("i", **sidecar)]
        if self.maybe(0.2):
            spec["nodeSelector"] = {"zone": self.random.choice("ab")}
        if self.maybe(0.5):
            spec["tolerations"] = [self.toleration() for _ in range(self.random.choice((1, 2, 3)))]
        if self.maybe(0.6):
            spec["affinity"] = self.affinity()
        if self.maybe(0.25):
            spec["topologySpreadConstraints"] = [
                self.spread(key) for key in self.random.sample(SPREAD, 1 + self.maybe(0.3))
            ]
        if node:
            spec["nodeName"] = node
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}

    def toleration(self) -> Object:
        if self.maybe(0.1):
            return {"operator": "Exists"}
        made: Object = {"key": self.random.choice(("gpu", "team", "node.kubernetes.io/unschedulable"))}
        made |= {"operator": "Exists"} if self.maybe(0.5) else {"value": self.random.choice(("x", "y"))}
        return made | ({"effect": self.random.choice(("NoSchedule", "NoExecute"))} if self.maybe(0.4) else {})

    def affinity(self) -> Object:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        made: Object = {}
        if self.maybe(0.5):
            terms = [self.node_term() for _ in range(self.random.choice((1, 2)))]
            made["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
        for side, chance in (("podAffinity", 0.25), ("podAntiAffinity", 0.35)):
            if self.maybe(chance):
                made[side] = {required: [self.pod_term() for _ in range(self.random.choice((1, 1, 2)))]}
        return made

    def node_term(self) -> Object:
        kinds = [
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "disk", "operator": "Exists"},
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "cores", "operator": "Gt", "values": ["5"]},
            {"key": "cores", "operator": "Lt", "values": ["5"]},
        ]
        term: Object = {"matchExpressions": self.random.sample(kinds, self.random.choice((0, 1, 2)))}
        if self.maybe(0.15):
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
        return term

    def selector(self) -> Object:
        if self.maybe(0.1):
            return {}
        if self.maybe(0.5):
            return {"matchLabels": {"app": self.random.choice("abc")}}
        operator = self.random.choice(("In", "NotIn"))
        return {"matchExpressions": [{"key": "app", "operator": operator, "values": [self.random.choice("abc")]}]}

    def pod_term(self) -> Object:
        term: Object = {"topologyKey": self.random.choice(SPREAD), "labelSelector": self.selector()}
        if self.maybe(0.2):
            other: Object = {"namespaces": ["elsewhere"]} if self.maybe(0.5) else {"namespaceSelector": {}}
            term |= other
        return term

    def spread(self, key: str) -> Object:
        made: Object = {"topologyKey": key, "maxSkew": self.random.choice((1, 2)), "labelSelector": self.selector()}
        made["whenUnsatisfiable"] = self.random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
        if made["whenUnsatisfiable"] == "DoNotSchedule" and self.maybe(0.3):
            made["minDomains"] = self.random.choice((2, 3))
        if self.maybe(0.3):
            made["nodeTaintsPolicy"] = "Honor"
        return made | ({"nodeAffinityPolicy": "Ignore"} if self.maybe(0.3) else {})


SPREAD = ("zone", "kubernetes.io/hostname")


def rooms(plane: BurstPlane) -> list[NodeRoom]:
    view = ClusterView(plane.client(), Health("test"))
    view.nodes = {node.name: node for node in map(read_node, plane.admin.get(NODES_PATH)["items"])}
    view.pods = {pod.uid: pod for pod in map(read_pod, plane.admin.get(PODS_PATH)["items"])}
    return view.room(0.0)


def trial(plane: BurstPlane) -> TrialCluster:
    made = TrialCluster([node_facts(node) for node in plane.admin.get(NODES_PATH)["items"]])
    made.add(map(pod_facts, plane.admin.get(PODS_PATH)["items"]))
    return made


def in_default(pod: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "namespace": "default"}}


def verdict(plane: BurstPlane, pod: Object) -> tuple[str, str]:
    """The node that kube-scheduler chose, or "" and why it chose none."""
    plane.admin.post(PODS_PATH, pod)
    seen: list[tuple[str, str]] = []

    def decided() -> bool:
        found = plane.admin.get(f"{PODS_PATH}/{pod['metadata']['name']}")
        if found["spec"].get("nodeName"):
            seen.append((found["spec"]["nodeName"], ""))
        for one in (found.get("status") or {}).get("conditions") or ():
            if not seen and one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable":
                seen.append(("", one.get("message", "")))
        return bool(seen)

    wait_for(decided, "kube-scheduler has decided", every_s=0.01)
    plane.admin.request("DELETE", f"{PODS_PATH}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    return seen[0]


def set_scene(plane: BurstPlane, drawn: Drawn, scene: int) -> None:
    plane.admin.request("DELETE", f"{PODS_PATH}?gracePeriodSeconds=0")
    plane.admin.delete(NODES_PATH)
    for number in range(4):
        plane.admin.post(NODES_PATH, drawn.node(f"node-{number}"))
    for number in range(5):
        plane.admin.post(PODS_PATH, drawn.pod(f"there-{scene}-{number}", f"node-{drawn.random.randrange(4)}"))


async def test_burst_drain_check_and_kube_scheduler_agree(planes: tuple[BurstPlane, BurstPlane]) -> None:
    plane = planes[1]
    bound, refused = 0, 0
    for scene in range(SCENES):
        drawn = Drawn(scene)
        set_scene(plane, drawn, scene)
        have, planned = rooms(plane), trial(plane)
        for number in range(PODS):
            pod = drawn.pod(f"pod-{scene}-{number}")
            fit = {have[index].name for index in fitting(have, "", asked_by(pod, "default"))}
            drained, _ = allowed(planned, pod_facts(in_default(pod)), {})
            assert fit == {one.name for one, fine in zip(planned.nodes, drained, strict=True) if fine}, pod
            node, why = verdict(plane, pod)
            assert (node in fit) if node else not fit, f"scene {scene}: {pod}: {node or why}, burst: {fit}"
            bound, refused = bound + bool(node), refused + (not node)
    print(f"{bound} bound, {refused} refused")
    assert min(bound, refused) > SCENES * PODS // 8  # both answers occur
