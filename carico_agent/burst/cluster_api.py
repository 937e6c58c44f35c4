"""A provisioner for Cluster API: a target is a Cluster of a ClusterClass, its machines are MachineDeployments of it.

    provisioner = ["python3", "-m", "carico_agent.burst.cluster_api", "--kubeconfig", "FILE", "--namespace", "clusters",
                   "--class", "burst", "--version", "v1.36.4"]

Speaks the contract of `provisioner`: JSON in, JSON out. Each machine of the catalogue is a worker class of the
ClusterClass; without a catalogue the class is `default-worker`. Setting a number twice is setting it once, so request
ids need no memory. Nodes with Jobs (`busy`) stay: no class shrinks below them, and the Machines of all others are
marked `cluster.x-k8s.io/delete-machine`, which Cluster API deletes first. A Cluster that this provisioner did not
create is left alone. `absent` needs two answers of the API server itself: no such Cluster, and no Machine of it.
"""

import argparse
import base64
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from carico_agent.burst.provisioner_command import speak
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import Refused

GROUP = "cluster.x-k8s.io"
OURS = "carico.dev/burst-target"
CLUSTER_LABEL = f"{GROUP}/cluster-name"
WORKERS_LABEL = f"topology.{GROUP}/deployment-name"
DELETE_FIRST = f"{GROUP}/delete-machine"
DEFAULT_CLASS = "default-worker"


@dataclass(frozen=True)
class ClusterShape:
    """What every Cluster of this provisioner has."""

    namespace: str
    cluster_class: str
    version: str
    control_planes: int = 1


def topology(shape: ClusterShape, api: str, replicas: dict[str, int]) -> Object:
    """spec.topology of a Cluster.

    >>> topology(ClusterShape("c", "burst", "v1.36.4"), "v1beta1", {"big": 2})["workers"]
    {'machineDeployments': [{'class': 'big', 'name': 'big', 'replicas': 2}]}
    """
    name = {"class": shape.cluster_class} if api == "v1beta1" else {"classRef": {"name": shape.cluster_class}}
    workers = [{"class": one, "name": one, "replicas": count} for one, count in sorted(replicas.items())]
    return {
        **name,
        "version": shape.version,
        "controlPlane": {"replicas": shape.control_planes},
        "workers": {"machineDeployments": workers},
    }


def wanted_replicas(request: Object, machines: list[Object]) -> dict[str, int]:
    """Nodes of each class. A class that has Machines and is not wanted any more has 0; none has fewer than are busy.

    >>> wanted_replicas({"nodes": 2, "machines": {}, "busy": []}, [])
    {'default-worker': 2}
    """
    asked = {name: int(one["nodes"]) for name, one in (request.get("machines") or {}).items()}
    asked = asked or {DEFAULT_CLASS: int(request.get("nodes") or 0)}
    busy = Counter(worker_class(one) for one in machines if node_of(one) in set(request.get("busy") or ()))
    names = {*asked, *map(worker_class, machines)} - {""}
    return {name: max(asked.get(name, 0), busy[name]) for name in sorted(names)}


def worker_class(machine: Object) -> str:
    """Of which class a Machine is; empty: it is one of the control plane."""
    return str((machine["metadata"].get("labels") or {}).get(WORKERS_LABEL, ""))


def node_of(machine: Object) -> str:
    return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name", ""))


class ClusterApi:
    """One request, carried out in a management cluster."""

    def __init__(self, client: KubeClient, shape: ClusterShape, target: str, api: str) -> None:
        self._client, self._shape, self._target, self._api = client, shape, target, api
        self._base = f"/apis/{GROUP}/{api}/namespaces/{shape.namespace}"
        self._path = f"{self._base}/clusters/{target}"

    async def act(self, request: Object) -> Object:
        cluster, machines = await self._cluster(), await self._machines()
        if cluster is not None and (cluster["metadata"].get("labels") or {}).get(OURS) != self._target:
            raise ValueError(f"Cluster {self._shape.namespace}/{self._target} was not created by this provisioner")
        if request["verb"] == "scale":
            cluster = await self._scale(cluster, machines, request)
        elif request["verb"] == "delete" and cluster is not None and not cluster["metadata"].get("deletionTimestamp"):
            await self._client.delete(self._path)
            cluster = await self._cluster()
        return await self._report(cluster, machines)

    async def _cluster(self) -> Object | None:
        try:
            return await self._client.get(self._path)
        except Refused as refused:
            if refused.says_absent(self._path):
                return None
            raise

    async def _machines(self) -> list[Object]:
        found = await self._client.get(f"{self._base}/machines", {"labelSelector": f"{CLUSTER_LABEL}={self._target}"})
        if found.get("kind") != "MachineList":
            raise ValueError(f"{self._base}/machines answers no MachineList")
        return list(found.get("items") or ())

    async def _scale(self, cluster: Object | None, machines: list[Object], request: Object) -> Object | None:
        replicas = wanted_replicas(request, machines)
        spec = {"topology": topology(self._shape, self._api, replicas)}
        if cluster is None:
            meta = {"name": self._target, "namespace": self._shape.namespace, "labels": {OURS: self._target}}
            body = {"apiVersion": f"{GROUP}/{self._api}", "kind": "Cluster", "metadata": meta, "spec": spec}
            return await self._client.post(f"{self._base}/clusters", body)
        if cluster["metadata"].get("deletionTimestamp"):
            return cluster  # it is made anew when it is gone
        await self._mark(machines, set(request.get("busy") or ()))
        version = {"resourceVersion": cluster["metadata"]["resourceVersion"]}
        await self._client.patch(self._path, {"metadata": version, "spec": spec})  # answers metadata only
        return await self._cluster()

    async def _mark(self, machines: list[Object], busy: set[str]) -> None:
        """Idle Machines go first. A Machine without a node yet is idle."""
        for one in machines:
            meta = one["metadata"]
            marked = DELETE_FIRST in (meta.get("annotations") or {})
            idle = node_of(one) not in busy
            if worker_class(one) and marked != idle:
                mark = {"metadata": {"annotations": {DELETE_FIRST: "yes" if idle else None}}}
                await self._client.patch(f"{self._base}/machines/{meta['name']}", mark)

    async def _report(self, cluster: Object | None, machines: list[Object]) -> Object:
        if cluster is None:
            return {"state": "working", "message": "Machines are left"} if machines else {"state": "absent"}
        counts = Counter(worker_class(one) for one in machines if node_of(one) and worker_class(one))
        workers = ((cluster["spec"].get("topology") or {}).get("workers") or {}).get("machineDeployments") or ()
        asked = {str(one["name"]): int(one.get("replicas") or 0) for one in workers}
        kubeconfig = await self._kubeconfig()
        going = bool(cluster["metadata"].get("deletionTimestamp"))
        there = not going and bool(kubeconfig) and all(counts[name] == count for name, count in asked.items())
        report: dict[str, Any] = {"state": "ready" if there else "working", "nodes": sum(counts.values())}
        report["machines"] = {name: count for name, count in counts.items() if name != DEFAULT_CLASS}
        report["message"] = f"phase {(cluster.get('status') or {}).get('phase', 'unknown')}"
        return report | ({"kubeconfig": kubeconfig} if kubeconfig and not going else {})

    async def _kubeconfig(self) -> str:
        """What Cluster API writes for every Cluster once its control plane is there."""
        path = f"/api/v1/namespaces/{self._shape.namespace}/secrets/{self._target}-kubeconfig"
        try:
            found = await self._client.get(path)
        except Refused as refused:
            if refused.says_absent(path):
                return ""
            raise
        return base64.b64decode(str((found.get("data") or {}).get("value") or "")).decode()


async def answer(kubeconfig: str, context: str, shape: ClusterShape, request: Object) -> Object:
    async with KubeClient(from_kubeconfig(kubeconfig, context)) as client:
        group = await client.get(f"/apis/{GROUP}")
        api = str(group["preferredVersion"]["version"])
        return await ClusterApi(client, shape, str(request["target"]), api).act(request)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kubeconfig", required=True, metavar="FILE", help="of the management cluster")
    parser.add_argument("--context", default="", help="context of that kubeconfig")
    parser.add_argument("--namespace", default="default", help="in which the Cluster is made")
    parser.add_argument("--class", dest="cluster_class", required=True, metavar="NAME", help="of the ClusterClass")
    parser.add_argument("--version", required=True, help="Kubernetes version of the Cluster, as v1.36.4")
    parser.add_argument("--control-planes", type=int, default=1, metavar="N")
    given = parser.parse_args(argv)
    shape = ClusterShape(given.namespace, given.cluster_class, given.version, given.control_planes)
    return speak("cluster_api", lambda request: answer(given.kubeconfig, given.context, shape, request))


if __name__ == "__main__":
    sys.exit(main())
