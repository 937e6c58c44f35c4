"""What decides about places beside the cluster's state: the other extenders, and what was refused lately.

The cluster tells it what its watches show; see `ClusterListener`.
"""

from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.placement.replicas import Replicas
from carico_agent.extender.published import SeenLease
from carico_agent.extender.setup_warnings import SetupWarnings
from carico_agent.lib.kube.client import KubeClient


class Placement:
    """`replicas` is None where there are no placement Leases: then this extender is alone."""

    def __init__(self, client: KubeClient, config: ExtenderConfig) -> None:
        namespace = config.lease_namespace
        self.replicas = Replicas(client, namespace, config.bound_within_s) if namespace else None
        self.warnings = SetupWarnings(config.resource, config.bound_within_s, self.may_place)

    def may_place(self) -> bool:
        """Whether this extender places Pods: it is alone, or it leads and knows all that it must."""
        return self.replicas is None or self.replicas.may_place

    def lease_seen(self, gone: bool, lease: SeenLease) -> None:
        if self.replicas is not None:
            self.replicas.lease_seen(gone, lease)

    def pod_bound(self, uid: str, node: str, name: str) -> None:
        self.warnings.bound(uid, node, name)
