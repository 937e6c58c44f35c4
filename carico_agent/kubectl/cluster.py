"""The cluster as the extender would see it, made once from lists instead of watches: the same code answers."""

import time

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.placement.tally import PROFILE_S
from carico_agent.extender.published import read_node
from carico_agent.kubectl.reading import Scope, Seen
from carico_agent.lib.kube.client import KubeClient


def cluster_of(client: KubeClient, seen: Seen, scope: Scope) -> Cluster:
    """What was read, as a Cluster. Pods that run count as measured: they may be new, but that lists do not show."""
    cluster = Cluster(client, scope.resource)
    cluster.nodes_listed([read_node(node, resource=scope.resource) for node in seen.nodes or ()])
    cluster.leases_listed(list(seen.leases.values()))
    cluster.pods_listed([pod.facts for pod in seen.pods if pod.facts.node])
    cluster.refresh_all(time.monotonic() + PROFILE_S)
    return cluster
