"""Extenders on a SmallServer, as tests need them: one alone, or several of which one leads."""

import asyncio
from typing import Any

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender import Extender
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.placement.placement import Placement
from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.extender.published import PublishedNode, read_lease
from carico_agent.lib.kube.client import Object
from tests.kube.small_server import SmallServer

LENIENT = PodCapacity(PodCapacitySettings(starting_ratio=1.0))


def extender_of(
    server: SmallServer, nodes: list[PublishedNode], policy: PodCapacity = LENIENT, **config: Any
) -> tuple[Extender, Cluster]:
    """It sees these nodes and no Pods, and every Lease at once. Alone unless `lease_namespace` is given."""
    namespace = config.setdefault("lease_namespace", "")
    client: Any = server
    made = ExtenderConfig(**config)
    placement = Placement(client, made)
    cluster = Cluster(client, made.resource, namespace, placement)
    extender = Extender(client, cluster, policy, made, placement)

    def show(lease: Object) -> None:
        cluster.lease_changed(False, read_lease(lease))

    if namespace:
        cluster.leases_listed([read_lease(lease) for lease in server.leases.values()])
        server.lease_watchers.append(show)
    cluster.nodes_listed(nodes)
    cluster.pods_listed([])
    for watch in (cluster.watches.nodes, cluster.watches.pods, cluster.watches.leases):
        if watch is not None:
            watch.synced.set()
            watch._lost_s = None
    return extender, cluster


def start(extender: Extender) -> list[asyncio.Task[None]]:
    """What its daemon runs beside the answers; cancel them to kill it."""
    assert extender.replicas is not None
    return [asyncio.create_task(task()) for task in extender.replica_tasks().values()]
