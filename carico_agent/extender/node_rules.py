"""Why one node cannot take a Pod: by the policy, by the extended resource, and by the lower of what its Lease and its
Node object offer. A binding is decided by this; filter, which looks at many nodes, asks the policy alone.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import NodeState, PendingPod
from carico_agent.extender.policy import Policy
from carico_agent.extender.workload_costs import less
from carico_agent.lib.kube.placement_lease import Offer, PlacedPod
from carico_agent.lib.net.times import boottime_s

NO_SUCH_NODE = "unknown: no such node"

NodeRule = Callable[[NodeState, PendingPod], str | None]


class NodeRules:
    """`by_policy` and `by_resource` are the rules, `check` asks one of them about a node as it is offered."""

    def __init__(self, cluster: Cluster, policy: Policy[Any], resource: str) -> None:
        self._cluster, self._policy, self._resource = cluster, policy, resource

    def by_policy(self, state: NodeState, pod: PendingPod) -> str | None:
        """For our own bindings."""
        return self._policy.refusal(state, pod, boottime_s()) or self.by_resource(state, pod)

    def by_resource(self, state: NodeState, pod: PendingPod) -> str | None:
        """For those by others, whose Pods count by what they ask of the extended resource."""
        if not pod.holds or state.resource is None or state.held + pod.holds <= state.resource:
            return None
        return f"no room: {state.resource} {self._resource}, {state.held} held"

    def check(self, node: str, pod: PendingPod, rule: NodeRule, lately: Mapping[str, PlacedPod]) -> str | None:
        """Why `node` cannot take the Pod, as the watches and its Lease show it, and with the Pods placed there
        `lately`. A place that the Pod itself holds there, from this or an earlier try, does not count."""
        state = self._cluster.nodes.get(node)
        if state is None:
            return NO_SUCH_NODE
        return rule(self._as_offered(self._cluster.without(pod.uid, state), pod.uid, lately), pod)

    def _as_offered(self, state: NodeState, uid: str, lately: Mapping[str, PlacedPod]) -> NodeState:
        """The node with the lower of what its Lease and its Node object say: the Lease falls first. A Pod counts on
        every node that it was placed on lately, this one aside: which of its bindings is made is not known."""
        name = state.name
        offer = self._cluster.lease(name).offer(time.time(), state.rise)
        new = [one for other, one in lately.items() if other != uid and not self._cluster.knows(other, name)]
        resource = offer.least(Offer(None, state.resource)).resource
        if not new and (offer.places is None or offer.places >= state.places):
            return state if resource == state.resource else replace(state, resource=resource)
        behind = 0.0 if offer.places is None else max(0.0, state.places - offer.places)
        return replace(
            _without_next(state, len(new) + behind),
            assigned=state.assigned + len(new),
            held=state.held + sum(one.holds for one in new),
            places=state.places if offer.places is None else min(state.places, offer.places),
            resource=resource,
        )


def _without_next(state: NodeState, pods: float) -> NodeState:
    """The node with that many Pods less room. A Lease counts Pods, not workloads: they are taken for the next to
    arrive."""
    if state.workloads is None or not pods > 0:
        return state
    lower = replace(state)
    lower.left = less(state.left, pods, state.workloads.next)
    return lower
