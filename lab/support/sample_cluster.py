"""The cluster's page in front of an invented cluster: the extender's own tables and the real server, no API server.

`python -m lab.support.sample_cluster NODES PORT [--hostile]` prints its address and serves until it is terminated.
Every second a twentieth of the nodes publishes again. One node of twenty is stale, one of fifty never publishes.
"""

import asyncio
import random
import sys
from collections.abc import Iterator

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.cluster_page import ClusterPage
from carico_agent.extender.daemon import ExtenderFacts
from carico_agent.extender.published import PublishedNode, PublishedWork
from carico_agent.lib.kube.access import Access
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.settings import ClusterPageSettings
from lab.support.sample_node import HOSTILE

NAN = float("nan")
DAEMON = "kube-system/kube-proxy"
WORKLOADS = (  # name, cpu [cores] and memory [bytes] of one, Pods per node
    ("shop/web", 0.45, 3.2e8, 6),
    ("shop/checkout", 0.3, 5.1e8, 3),
    ("shop/cache", 0.12, 2.1e9, 2),
    ("batch/thumbnails", 0.95, 2.5e8, 3),
    ("batch/training", 2.1, 3.9e9, 1),
    (DAEMON, 0.03, 6e7, 1),
)


def sample_cluster() -> Cluster:
    """An extender's Cluster without an API server, whose watches count as listed."""
    cluster = Cluster(KubeClient(Access("http://127.0.0.1:9"), TokenBucket(1.0, 1)))
    cluster.watches.nodes.synced.set()
    cluster.watches.pods.synced.set()
    return cluster


class SampleCluster:
    """A Cluster filled by hand."""

    def __init__(self, nodes: int, hostile: bool) -> None:
        self._random, self._mark, self._count = random.Random(7), HOSTILE if hostile else "", nodes
        self.cluster = sample_cluster()
        self.cluster.pods_listed([pod for number in range(nodes) for pod in self._pods(number)])
        self.cluster.nodes_listed([self._published(number) for number in range(nodes)])

    def name(self, number: int) -> str:
        return f"pool-{'abc'[number % 3]}-{number}{self._mark}"

    def _pods(self, number: int) -> Iterator[PodFacts]:
        load = self._random.uniform(0.15, 1.1)
        for workload, *_, most in WORKLOADS:
            for place in range(round(most * load)):
                uid = f"{number}-{workload}-{place}"
                yield PodFacts(uid, uid, "x", self.name(number), "Running", f"{workload}{self._mark}")

    def _published(self, number: int) -> PublishedNode:
        name, sizes = self.name(number), {"cores": 8.0, "cpu": 8.0, "memory": 3.2e10}
        if number % 50 == 7:
            return PublishedNode(name, **sizes)
        have = self.cluster.ledger.workloads(name)
        counts = {
            workload: have[workload + self._mark].pods if workload + self._mark in have else 0
            for workload, *_ in WORKLOADS
        }
        used = sum(counts[workload] * cpu for workload, cpu, *_ in WORKLOADS) * self._random.uniform(0.9, 1.1)
        memory = sum(counts[workload] * size for workload, _, size, _ in WORKLOADS)
        room = (max(0.0, self._random.uniform(9.0, 14.5) - 1.3 * used), max(0.0, 2.6e10 - memory), NAN, NAN)
        jobs = counts["batch/training"] + counts["batch/thumbnails"]
        workloads = {
            workload + self._mark: WorkloadOnNode((cpu, size, NAN, NAN), pods=counts[workload])
            for workload, cpu, size, _ in WORKLOADS
            if workload != DAEMON  # a node lists no daemons
        }
        return PublishedNode(
            name,
            places=sum(counts.values()) + round(room[0] / 0.7, 1),
            age_s=400.0 if number % 20 == 3 else 60.0 * self._random.random(),
            ttl_s=150.0,
            work=PublishedWork(jobs, jobs * 900.0 * self._random.random()),
            workloads=NodeWorkloads(room, workloads=workloads),
            **sizes,
        )

    def publish_some(self) -> None:
        for number in self._random.sample(range(self._count), max(1, self._count // 20)):
            self.cluster.node_changed(False, self._published(number))


async def serve(nodes: int, port: int, hostile: bool) -> None:
    sample = SampleCluster(nodes, hostile)
    page = ClusterPage(ClusterPageSettings(f"127.0.0.1:{port}"), ExtenderFacts(sample.cluster))
    await page.start()
    print(page.address, flush=True)
    while True:
        await asyncio.sleep(1.0)
        sample.publish_some()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), "--hostile" in sys.argv))
