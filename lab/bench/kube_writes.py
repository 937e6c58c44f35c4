"""What agents write to the API server: `python -m lab.bench.kube_writes [--minutes 60] [--nodes 12] [--write]`.

Real NodePublishers, one status a second, on a clock of their own and an API server that only counts. Loads: quiet
(noise of a twentieth of a Pod), wandering (a mean-reverting walk with a standard deviation of two Pods that forgets in
half a minute), Pods that come and go in bursts on wandering load, and a recorded trace of a real node, again and
again. Simulated time: the figures do not depend on this machine. --write puts them into lab/results/kube_writes.md.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, floor, inf, sqrt
from typing import Any

import numpy as np

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.names import RESOURCE, SLOTS, STATUS
from carico_agent.lib.kube.pods import facts
from carico_agent.node.pipeline import replay
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import NodeConfig
from carico_agent.node.publish.node_mirror import NodeFacts
from carico_agent.node.publish.node_publisher import NodePublisher
from carico_agent.node.publish.status import Status, status_of
from carico_agent.node.sampling import read_trace
from carico_agent.settings import Settings
from lab.support import TREE

RESULTS = TREE / "lab/results/kube_writes.md"
SERVER_RESULTS = TREE / "lab/results/kube_writes_server.json"
"""What lab/bench/kube_writes_server.py has measured."""
TRACE = TREE / "tests/golden/bursts.trace.gz"
CLUSTERS = (100, 1000, 5000)
MEAN, DEVIATION, FORGET_S, NOISE = 12.0, 2.0, 30.0, 0.15
FALL = 0.1
"""From so far below the published number on it is a fall (publish/throttle.py)."""

Second = tuple[float, int]
"""Slots, and how many Pods run."""


class Counting:
    """An API server of one node: takes everything."""

    def __init__(self) -> None:
        self.node: Object = {}
        self.node_writes = self.lease_writes = 0

    async def get(self, path: str, params: Object | None = None) -> Object:
        raise Refused(404, "no extender leads")

    async def patch(self, path: str, body: Object) -> Object:
        if "/leases/" in path:
            self.lease_writes += 1
            return {"metadata": {"resourceVersion": str(self.lease_writes)}}
        self.node, self.node_writes = body, self.node_writes + 1
        return {}


@dataclass(slots=True)
class Counts:
    """Of one node."""

    node_writes: int = 0
    lease_writes: int = 0
    slowest_fall_s: float = 0.0
    unused: list[float] = field(default_factory=list)
    """How far the published number was below the real one [Pods]."""


async def run_node(load: Iterator[Second], nodes: int, seconds: int) -> Counts:
    now_s, server = 1000.0, Counting()
    latest = LatestStatus(ttl_s=5.0, clock=lambda: now_s)
    running: dict[str, bool] = {}
    client: Any = server
    config = NodeConfig("a", lease_namespace="carico")
    publisher = NodePublisher(client, latest, config, lambda: running, lambda: now_s)
    publisher.mirror.pods_synced.set()
    publisher.mirror.change_node(False, NodeFacts("a"))
    writer, counts, above_since_s = publisher.writer, Counts(), inf
    writer.size(nodes)
    for _ in range(seconds):
        now_s += 1.0
        slots, pods = next(load)
        _bind(publisher, running, pods)
        latest.publish(
            Status(time="2024-01-01T00:00:00.000Z", pod_capacity=slots - pods, slots=slots, pods=pods, mode="measured")
        )
        writer.observe()
        draft = writer.draft()
        if writer.reason(draft):
            await writer.write(draft)
            _show(publisher, server.node)
        elif writer.renewal_due():
            await writer.renew()
        published = int(server.node["metadata"]["annotations"][SLOTS])
        counts.unused.append(max(0.0, slots - published))
        above = is_late(published, slots)
        above_since_s = min(above_since_s, now_s) if above else inf
        counts.slowest_fall_s = max(counts.slowest_fall_s, now_s - above_since_s + 1.0 if above else 0.0)
    counts.node_writes, counts.lease_writes = server.node_writes, server.lease_writes
    return counts


def is_late(published: int, slots: float) -> bool:
    """Whether a published number is so far above the node's own that it must fall at once."""
    return published - floor(slots + FALL) >= max(1.0, 0.03 * published)


def _bind(publisher: NodePublisher, running: dict[str, bool], pods: int) -> None:
    """Exactly so many Pods run, each of which asks for a place."""
    asks = {"containers": [{"resources": {"requests": {RESOURCE: "1"}}}], "nodeName": "a"}
    for number in range(len(running), pods):
        running[uid := str(number)] = True
        pod = {"metadata": {"uid": uid, "name": uid}, "spec": asks, "status": {"phase": "Running"}}
        publisher.mirror.change_pod(False, facts(pod, RESOURCE))
    for number in range(pods, len(running)):
        del running[str(number)]
        publisher.mirror.change_pod(True, facts({"metadata": {"uid": str(number)}}))


def _show(publisher: NodePublisher, node: Object) -> None:
    """As the watch would."""
    amount = node["status"]["allocatable"][RESOURCE]
    publisher.mirror.change_node(False, NodeFacts("a", amount, amount, node["metadata"]["annotations"][STATUS]))


def quiet(seed: int) -> Iterator[Second]:
    rng = np.random.default_rng(seed)
    while True:
        yield MEAN + 0.5 + rng.normal(0, 0.05), 0


def wandering(seed: int, bursts: bool = False) -> Iterator[Second]:
    rng = np.random.default_rng(seed)
    keep, away, pods = exp(-1 / FORGET_S), 0.0, 0
    while True:
        away = keep * away + sqrt(1 - keep * keep) * rng.normal(0, DEVIATION)
        slots = max(0.0, MEAN + away + rng.normal(0, NOISE))
        if bursts and rng.random() < 0.05:
            pods = int(rng.integers(0, 8))
        yield max(slots, float(pods)), pods


def recorded(seed: int) -> Iterator[Second]:
    """Slots of the trace, begun somewhere in it; its Pods are not the API server's."""
    header, rows = read_trace(TRACE)
    seconds = [
        status_of(header.node, header.resources, one.estimate, one.usage.detail)
        for one in replay(header, rows, Settings())
    ]
    known = [one.slots for one in seconds if one.slots is not None]
    at = int(np.random.default_rng(seed).integers(len(known)))
    while True:
        yield known[at % len(known)], 0
        at += 1


LOADS = {
    "quiet": quiet,
    "wandering": wandering,
    "wandering, Pods come and go": lambda seed: wandering(seed, bursts=True),
    "recorded bursts, without a pause": recorded,
}


async def measure(minutes: int, nodes: int) -> list[dict[str, Any]]:
    rows = []
    for name, load in LOADS.items():
        for size in CLUSTERS:
            counts = [await run_node(load(seed), size, 60 * minutes) for seed in range(nodes)]
            node = float(np.mean([one.node_writes for one in counts])) / minutes
            lease = float(np.mean([one.lease_writes for one in counts])) / minutes
            rows.append(
                {
                    "load": name,
                    "cluster": size,
                    "node": node,
                    "lease": lease,
                    "node_per_s": node * size / 60,
                    "lease_per_s": lease * size / 60,
                    "fall_s": max(one.slowest_fall_s for one in counts),
                    "unused": float(np.mean([np.mean(one.unused) for one in counts])),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| load | nodes | Node writes per node and minute | Lease writes | all nodes: Node/s | Lease/s "
        "| late falls, longest [s] | places held back, mean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['load']} | {row['cluster']:,} | {row['node']:.2f} | {row['lease']:.2f} | {row['node_per_s']:.0f} "
        f"| {row['lease_per_s']:.0f} | {row['fall_s']:.0f} | {row['unused']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


TEXT = """# What agents write to the API server

## In simulation

`python -m lab.bench.kube_writes --write`: {nodes} nodes per line, {minutes} simulated minutes each, one status a
second; the publisher is the agent's own, the API server only counts. "Wandering": slots go up and down around
{mean:.0f} with a standard deviation of {deviation:.0f} Pods and forget within {forget:.0f} s. "Late falls": for how
long a number that was too high stayed published after the first status that was lower; 0: that very status was written.
"Places held back": how far the published number was below the real one, rounding down (0.5) included: that is what a
slow pace costs. The first write of every node is included.

{table}

Before (an earlier version with wandering load, 5,000 nodes): 528 to 761 Node and 1,033 to 1,500 Lease writes a second.
For comparison: kubelets of 5,000 nodes renew 500 Leases a second and write 17 Nodes.
Where an extender leads, it acknowledges every fall with one more Lease write, which comes on top.
"""

SERVER_TEXT = """
## Counted by a real API server

`python -m lab.bench.kube_writes_server CASE --write`: {nodes} publishers with clients and watches of their own on a
real kube-apiserver {version} and etcd, one status a second. In a cluster of 5,000 the other 4,900 Nodes are objects
that nobody writes. Writes are those of `apiserver_request_total`, after a minute of warm-up; in brackets the simulation
with the same seeds over the same minutes. "Seen after": how long a client that watches Nodes, or Leases, still saw a
number that was too high, from the moment the node's own status was lower (median, p99, longest; this client, the
publishers, the API server and etcd share two cores). Where an extender leads, its acknowledgements are among the Lease
writes, and a fall is on the Node after it.

{table}
"""


def server_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| load | an extender leads | nodes of the cluster "
        "| counted [min] | Node writes per node and minute | Lease writes | etcd puts/s "
        "| API server, etcd [cores] | falls on the Node: seen after [ms] | in the Lease [ms] |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['load']} | {'yes' if row.get('led') else 'no'} | {row['cluster']:,} "
        f"| {row['seconds'] / 60:.0f} | {row['node']:.2f} ({row['simulated_node']:.2f}) "
        f"| {row['lease']:.2f} ({row['simulated_lease']:.2f}) "
        f"| {row['etcd_puts_per_s']:.1f} | {row['api_cores']:.2f}, {row['etcd_cores']:.2f} "
        f"| {_falls(row, 'node')} | {_falls(row, 'lease')} |"
        for row in rows
    ]
    return "\n".join(lines)


def _falls(row: dict[str, Any], source: str) -> str:
    if not row[f"{source}_falls"]:
        return "no falls"
    return ", ".join(f"{value:.0f}" for value in row[f"{source}_fall_ms"]) + f" ({row[f'{source}_falls']} falls)"


def write_report() -> None:
    """lab/results/kube_writes.md, from what was measured last."""
    known = json.loads(RESULTS.with_suffix(".json").read_text())
    text = TEXT.format(
        nodes=known["nodes"],
        minutes=known["minutes"],
        mean=MEAN,
        deviation=DEVIATION,
        forget=FORGET_S,
        table=table(known["rows"]),
    )
    if SERVER_RESULTS.exists():
        rows = list(json.loads(SERVER_RESULTS.read_text()).values())
        text += SERVER_TEXT.format(nodes=rows[0]["nodes"], version=rows[0]["version"], table=server_table(rows))
    RESULTS.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = asyncio.run(measure(options.minutes, options.nodes))
    print(table(rows))
    if options.write:
        known = {"nodes": options.nodes, "minutes": options.minutes, "rows": rows}
        RESULTS.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n")
        write_report()


if __name__ == "__main__":
    main()
