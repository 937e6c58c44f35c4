"""What agents write, counted by a real API server: `python -m lab.bench.kube_writes_server CASE [--write]`.

A hundred NodePublishers, each with a client and watches of its own as an agent has them, publish one status a second to
a real kube-apiserver with a real etcd. Node and Lease writes are counted by the API server (apiserver_request_total),
etcd's by etcd. A cluster of 5,000 has 4,900 more Nodes, which nobody writes: agents ask how many there are, and pace
themselves accordingly. Beside it stands the simulation of kube_writes.py with the same seeds over the same minutes.

Falls: a client that watches Nodes and Leases notes how long a number that is too high was still to be seen, from the
moment the node's own status was lower. Where an extender leads, falls wait until it has acknowledged them. --write puts
the case into lab/results/kube_writes.md.
"""

import argparse
import asyncio
import copy
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from carico_agent.lib.kube.access import Access, from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.names import SLOTS
from carico_agent.lib.kube.placement_lease import lease_record
from carico_agent.lib.kube.watch import ResourceWatch
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.times import rfc3339
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import NodeConfig
from carico_agent.node.publish.node_publisher import REQUESTS_OF_AN_AGENT, NodePublisher
from carico_agent.node.publish.status import Status
from carico_agent.plane.exposition import read
from lab.bench.kube_writes import SERVER_RESULTS, Second, is_late, quiet, run_node, wandering, write_report
from lab.support import TREE
from lab.support.control_plane import Plane, running
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for

NODES = 100
WARM_UP_S = 60
CASES = {  # load, nodes of the cluster, seconds that are counted, whether an extender leads
    "quiet-5000": ("quiet", 5000, 300, False),
    "wandering-100": ("wandering", 100, 180, False),
    "wandering-100-led": ("wandering", 100, 180, True),
    "wandering-5000": ("wandering", 5000, 300, False),
    "wandering-5000-led": ("wandering", 5000, 300, True),
}
LOADS = {"quiet": quiet, "wandering": wandering}
REQUESTS = "apiserver_request_total"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/carico/leases"


@dataclass
class Falls:
    """How long numbers that were too high could be seen by one watch [s]."""

    seen: dict[str, int] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    lasted_s: list[float] = field(default_factory=list)

    def status(self, name: str, slots: float) -> None:
        """The node has a new status."""
        if not is_late(self.seen.get(name, 0), slots):
            self.since_s.pop(name, None)  # it rose again by itself
        else:
            self.since_s.setdefault(name, time.monotonic())

    def shown(self, name: str, number: int, slots: float) -> None:
        """The watch shows a number; `slots` is the node's own."""
        self.seen[name] = number
        if name in self.since_s and not is_late(number, slots):
            self.lasted_s.append(time.monotonic() - self.since_s.pop(name))


class ServerNode:
    """A publisher as an agent has it, and the load of its node."""

    def __init__(self, name: str, access: Access, load: Iterator[Second]) -> None:
        self.name, self._load, self.slots = name, load, 0.0
        self.latest = LatestStatus(ttl_s=5.0)
        self.client = KubeClient(access, TokenBucket(*REQUESTS_OF_AN_AGENT))
        self.publisher = NodePublisher(self.client, self.latest, NodeConfig(name, lease_namespace="carico"))

    def publish(self) -> None:
        self.slots, pods = next(self._load)
        self.latest.publish(
            Status(time=rfc3339(), pod_capacity=self.slots - pods, slots=self.slots, pods=pods, mode="measured")
        )


class ServerBench:
    """One case on one control plane."""

    def __init__(self, plane: Plane, load: str, cluster: int) -> None:
        self._plane = plane
        access = from_kubeconfig(plane.kubeconfig("agent-token"))
        self.nodes = {
            name: ServerNode(name, access, LOADS[load](seed))
            for seed, name in enumerate(f"node-{number:04d}" for number in range(NODES))
        }
        self.falls = {"Node": Falls(), "Lease": Falls()}
        _add_nodes(plane, cluster)

    async def run(self, seconds: int) -> dict[str, Any]:
        tasks = [asyncio.create_task(self._watch())]
        try:
            for node in self.nodes.values():
                node.publish()
                tasks.append(asyncio.create_task(node.publisher.run()))
            tasks.append(asyncio.create_task(self._statuses()))
            await self._sleep(WARM_UP_S, tasks)
            before = await asyncio.to_thread(counters, self._plane)
            for falls in self.falls.values():
                falls.lasted_s.clear()
            await self._sleep(seconds, tasks)
            after = await asyncio.to_thread(counters, self._plane)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for node in self.nodes.values():
                await node.client.close()
        return {name: after[name] - before[name] for name in after}

    async def _sleep(self, seconds: float, tasks: list[asyncio.Task[None]]) -> None:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            raise RuntimeError("a part of the benchmark has ended")

    async def _statuses(self) -> None:
        """One a second of every node, spread over the second."""
        at_s = time.monotonic()
        while True:
            for node in self.nodes.values():
                at_s += 1.0 / NODES
                await asyncio.sleep(at_s - time.monotonic())
                node.publish()
                for falls in self.falls.values():
                    falls.status(node.name, node.slots)

    async def _watch(self) -> None:
        """As a scheduler would."""
        access = from_kubeconfig(self._plane.kubeconfig("admin-token"))
        async with KubeClient(access, TokenBucket(per_s=50.0, burst=50)) as client, asyncio.TaskGroup() as group:
            for path, pick, falls in (
                ("/api/v1/nodes", _slots_of, self.falls["Node"]),
                (LEASES, _offer_of, self.falls["Lease"]),
            ):
                watch = ResourceWatch(client, path, pick, lambda _: None, self._shown(falls), Health(path))
                group.create_task(watch.run())

    def _shown(self, falls: Falls) -> Any:
        def event(gone: bool, thing: tuple[str, int | None]) -> None:
            name, number = thing
            if not gone and number is not None and name in self.nodes:
                falls.shown(name, number, self.nodes[name].slots)

        return event


def _slots_of(node: Object) -> tuple[str, int | None]:
    text = (node["metadata"].get("annotations") or {}).get(SLOTS)
    return node["metadata"]["name"], None if text is None else int(text)


def _offer_of(lease: Object) -> tuple[str, int | None]:
    return lease["metadata"]["name"], lease_record(lease).offered.places


def _add_nodes(plane: Plane, count: int) -> None:
    """The first through the API; all others are copies of it."""
    plane.admin.add_node("node-0000")
    template = plane.admin.node("node-0000")
    objects = {}
    for number in range(1, count):
        node, name = copy.deepcopy(template), f"node-{number:04d}"
        node["metadata"] |= {"name": name, "uid": f"{number:08x}{node['metadata']['uid'][8:]}"}
        node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        for key in ("resourceVersion", "managedFields", "selfLink"):
            node["metadata"].pop(key, None)
        objects[f"/registry/minions/{name}"] = {"apiVersion": "v1", "kind": "Node", **node}
    plane.etcd.put(objects)
    cached = "/api/v1/nodes?resourceVersion=0"
    wait_for(lambda: len(plane.admin.get(cached)["items"]) == count, "the API server knows all nodes")


def counters(plane: Plane) -> dict[str, float]:
    """Of the API server and etcd, and their CPU time."""
    text = plane.admin.get("/metrics").encode()
    found = read([text], {REQUESTS: ("resource", "subresource", "verb")})[REQUESTS]
    etcd = read([plane.etcd.metrics().encode()], {"etcd_mvcc_put_total": (), "etcd_debugging_mvcc_put_total": ()})
    puts = etcd.get("etcd_mvcc_put_total") or etcd["etcd_debugging_mvcc_put_total"]
    cpu_s = plane.cpu_s()
    return {
        "node": found.get(("nodes", "status", "PATCH"), 0.0),
        "lease": found.get(("leases", "", "PATCH"), 0.0) + found.get(("leases", "", "POST"), 0.0),
        "lists": sum(value for (_, _, verb), value in found.items() if verb == "LIST"),
        "etcd_puts": sum(puts.values()),
        "api_cpu_s": cpu_s["kube-apiserver"],
        "etcd_cpu_s": cpu_s["etcd"],
    }


async def simulated(load: str, cluster: int, seconds: int) -> tuple[float, float]:
    """Node and Lease writes per node and minute in the same minutes of the same load."""
    node, lease = [], []
    for seed in range(NODES):
        whole = await run_node(LOADS[load](seed), cluster, WARM_UP_S + seconds)
        begun = await run_node(LOADS[load](seed), cluster, WARM_UP_S)
        node.append(whole.node_writes - begun.node_writes)
        lease.append(whole.lease_writes - begun.lease_writes)
    return float(np.mean(node)) * 60 / seconds, float(np.mean(lease)) * 60 / seconds


def measure(name: str) -> dict[str, Any]:
    load, cluster, seconds, led = CASES[name]
    row: dict[str, Any] = {"load": load, "cluster": cluster, "nodes": NODES, "seconds": seconds, "led": led}
    with tempfile.TemporaryDirectory(prefix="carico-writes-") as folder:
        for plane in running(Path(folder)):
            plane.apply(*sorted((TREE / "deploy/base").glob("[0-9]*.yaml")))
            bench = ServerBench(plane, load, cluster)
            extender = ExtenderProcess(Path(folder), plane.kubeconfig("extender-token")).ready() if led else None
            try:
                counted = asyncio.run(bench.run(seconds))
            finally:
                if extender is not None:
                    extender.stop()
            row["version"] = ".".join(map(str, plane.version))
    per_minute = 60 / seconds / NODES
    row |= {"node": counted["node"] * per_minute, "lease": counted["lease"] * per_minute}
    row |= {"etcd_puts_per_s": counted["etcd_puts"] / seconds, "lists": counted["lists"]}
    row |= {f"{part}_cores": counted[f"{part}_cpu_s"] / seconds for part in ("api", "etcd")}
    for source, falls in bench.falls.items():
        late = falls.lasted_s or [float("nan")]
        row[f"{source.lower()}_falls"] = len(falls.lasted_s)
        row[f"{source.lower()}_fall_ms"] = [1e3 * float(np.quantile(late, q)) for q in (0.5, 0.99, 1.0)]
        row[f"{source.lower()}_unseen"] = len(falls.since_s)
    row["simulated_node"], row["simulated_lease"] = asyncio.run(simulated(load, cluster, seconds))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    row = measure(options.case)
    print(json.dumps(row, indent=1))
    if options.write:
        known = json.loads(SERVER_RESULTS.read_text()) if SERVER_RESULTS.exists() else {}
        SERVER_RESULTS.write_text(json.dumps(dict(sorted({**known, options.case: row}.items())), indent=1) + "\n")
        write_report()


if __name__ == "__main__":
    main()
