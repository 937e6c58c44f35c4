"""The extender's watches of Nodes, Pods and placement Leases: opened together, and whether they show what is so."""

import asyncio
from typing import Protocol

from carico_agent.extender.published import PublishedNode, SeenLease, read_lease, read_node
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.leases import leases_path
from carico_agent.lib.kube.pods import UNFINISHED, PodFacts, facts
from carico_agent.lib.kube.watch import ResourceWatch

JUST_CLOSED_S = 5.0
"""A watch that has been closed for less still counts as open: it is being opened again [s]."""


class WatchedState(Protocol):
    """Who is called with what the watches show: a snapshot replaces everything, a change is of one object."""

    def nodes_listed(self, nodes: list[PublishedNode]) -> None: ...

    def node_changed(self, gone: bool, node: PublishedNode) -> None: ...

    def leases_listed(self, leases: list[SeenLease]) -> None: ...

    def lease_changed(self, gone: bool, lease: SeenLease) -> None: ...

    def pods_listed(self, pods: list[PodFacts]) -> None: ...

    def pod_changed(self, gone: bool, pod: PodFacts) -> None: ...


class ClusterWatches:
    """One watch per resource; `leases` is None where no namespace of placement Leases is given."""

    def __init__(self, client: KubeClient, state: WatchedState, resource: str, lease_namespace: str) -> None:
        self.health = Health("Kubernetes", "in step with the API server")
        self.nodes = ResourceWatch(
            client,
            "/api/v1/nodes",
            lambda node: read_node(node, resource=resource),
            state.nodes_listed,
            state.node_changed,
            self.health,
        )
        self.pods = ResourceWatch(
            client,
            "/api/v1/pods",
            lambda pod: facts(pod, resource),
            state.pods_listed,
            state.pod_changed,
            self.health,
            UNFINISHED,
        )
        self.leases: ResourceWatch[SeenLease] | None = None
        if lease_namespace:
            self.leases = ResourceWatch(
                client,
                leases_path(lease_namespace),
                read_lease,
                state.leases_listed,
                state.lease_changed,
                self.health,
            )

    async def run(self) -> None:
        """All watches, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            if self.leases is not None:
                group.create_task(self.leases.run())
            group.create_task(self.nodes.run())
            group.create_task(self.pods.run())

    @property
    def synced(self) -> bool:
        """Whether each has listed its objects once."""
        leases = self.leases is None or self.leases.synced.is_set()
        return leases and self.nodes.synced.is_set() and self.pods.synced.is_set()

    def open(self) -> bool:
        """Whether all are open, or have just been opened again."""
        return self.synced and all(
            watch is None or watch.closed_s() < JUST_CLOSED_S for watch in (self.nodes, self.pods, self.leases)
        )
