"""The node's number on its Node object: annotations for those who read them, an extended resource for everybody else.

Its parts: a mirror of what the API server says (node_mirror.py), the offer as pure functions of status and held Pods
(node_offer.py), what would be written now (node_draft.py), why it should be (node_reasons.py, throttle.py), and the
writer (node_writer.py).
"""

import asyncio
from collections.abc import Callable

from carico_agent.lib.kube.access import access_to
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.clock import describe
from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.placement_lease import PlacementLeases
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.net.times import boottime_s
from carico_agent.node.publish.identity import agent_identity
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import Counted, NodeConfig
from carico_agent.node.publish.node_mirror import NodeMirror
from carico_agent.node.publish.node_writer import NodeWriter
from carico_agent.node.publish.own_lease import OwnLease
from carico_agent.node.publish.pace import follow_size
from carico_agent.node.publish.publisher import PublisherContext
from carico_agent.node.publish.throttle import ThrottleConfig
from carico_agent.settings import KubernetesSettings

REQUESTS_OF_AN_AGENT = 4.0, 40
"""Per second and at once: two watches, and while the number falls a write of the Node, one of its Lease and two looks
at whether that was acknowledged every second for some seconds."""


class NodePublisher:
    """Keeps one Node object true."""

    name = "kubernetes"

    def __init__(
        self,
        client: KubeClient,
        latest: LatestStatus,
        config: NodeConfig,
        counted: Counted = dict,
        clock: Callable[[], float] = boottime_s,
        identity: str = "",
    ) -> None:
        """`identity`: this agent, the same after a restart."""
        self.client = client
        self.health = Health(f"Kubernetes node {config.node}", "published")
        leases = PlacementLeases(client, config.lease_namespace) if config.lease_namespace else None
        lease = OwnLease(leases, config.node, config.throttle.ttl_s, clock, identity)
        self.lease = lease
        self.mirror = NodeMirror(client, config.node, config.resource, self.health, lease.pods_bound)
        self.writer = NodeWriter(client, latest, self.mirror, lease, config, self.health, counted, clock)

    @property
    def condition(self) -> str:
        """Published, or what is wrong."""
        skew = describe(self.client.clock_skew_s)
        condition = self.health.condition if self.writer.writes or not self.health.well else "not published yet"
        return f"{condition}; {skew}" if skew else condition

    def declared(self, uid: str) -> DeclaredPod | None:
        """As `KnowsPods` asks."""
        return self.mirror.declared(uid)

    def families(self) -> list[Family]:
        """Metrics of its own."""
        text = "How far this node's clock is ahead of the API server's; 0 within a second."
        skew = Family("carico_kubernetes_clock_skew_seconds", "gauge", text)
        return [skew.add(self.client.clock_skew_s)]

    @property
    def counters(self) -> dict[str, int]:
        return {
            "requests": self.client.requests,
            "writes": self.writer.writes,
            "lease_writes": self.lease.writes,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.mirror.run())
            group.create_task(self.writer.run())
            group.create_task(follow_size(self.client, self.writer.size))

    async def stop(self) -> None:
        await self.writer.withdraw()
        await self.client.close()


def node_config(settings: KubernetesSettings, node: str) -> NodeConfig:
    throttle = ThrottleConfig(
        min_interval_s=settings.min_interval_s, heartbeat_s=settings.heartbeat_s, ttl_s=settings.ttl_s
    )
    return NodeConfig(node, settings.resource, settings.lease_namespace, throttle, settings.horizon)


async def open_node_publisher(context: PublisherContext) -> NodePublisher:
    """Raises BadAccess when the settings cannot work."""
    settings = context.settings().kubernetes
    client = KubeClient(access_to(settings.kubeconfig, settings.context), TokenBucket(*REQUESTS_OF_AN_AGENT))
    identity = await context.disk.run(agent_identity, context.settings().state_path / "agent-id")
    config = node_config(settings, context.node)
    return NodePublisher(client, context.latest, config, context.counted, identity=identity)
