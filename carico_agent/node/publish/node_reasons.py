"""Why a draft should be written over what was written last, beside the reasons of the WriteThrottle. Pure functions."""

from dataclasses import dataclass

from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.kube.pods import whole
from carico_agent.lib.kube.workloads import NodeWorkloads
from carico_agent.node.publish.node_draft import Draft
from carico_agent.node.publish.node_mirror import NodeFacts
from carico_agent.node.publish.node_offer import HeldPods
from carico_agent.node.publish.node_workloads import moved

WORKLOADS_INTERVAL_S = 30.0
"""A workload that costs more or less than published is written after this long at the earliest [s]. Consumers subtract
what they assign themselves, so an old cost is off by a tenth for half a minute, and a node writes once more at most."""

FOREIGN = "the annotations were changed"
"""By a client other than this agent."""


@dataclass(frozen=True, slots=True)
class LastWrite:
    """What the API server took from us last."""

    offer: Offer
    wanted: Offer
    """The same without Pods that were being bound."""
    annotation: str
    """carico.dev/status, to notice that another client wrote it."""
    in_flight: int
    """Pods that were being bound at that moment."""
    workloads: NodeWorkloads | None = None


def fell(draft: Draft, last: LastWrite | None, resource: str) -> str | None:
    """Fewer places of the extended resource than we wanted to publish last."""
    now = draft.offer.resource
    if now is None or last is None or last.wanted.resource is None:
        return None
    return f"{resource} {last.wanted.resource} -> {now}" if now < last.wanted.resource else None


def overwritten(
    draft: Draft, last: LastWrite | None, node: NodeFacts | None, held: HeldPods, resource: str
) -> str | None:
    """The server has not what we wrote: a kubelet restarted, another client wrote; or more is held than that."""
    if node is None:
        return None
    if last is not None and node.status != last.annotation:
        return FOREIGN
    if draft.offer.resource is None:
        return None
    wrote = draft.offer.resource if last is None or last.offer.resource is None else last.offer.resource
    have = {None if quantity is None else whole(quantity) for quantity in (node.capacity, node.allocatable)}
    if have != {wrote}:
        return f"{resource} is {have}, not {wrote}"
    return f"{held.holds} {resource} are held" if held.holds > wrote else None


def changed(draft: Draft, last: LastWrite | None, since_s: float, resource: str) -> str | None:
    """What has changed so much that it is worth a write, if one is allowed now. `since_s`: since the last write [s]."""
    if last is None:
        return None
    if draft.offer.resource is not None and draft.offer.resource != last.offer.resource:
        return f"{resource} {last.offer.resource} -> {draft.offer.resource}"
    return moved(last.workloads, draft.workloads) if since_s >= WORKLOADS_INTERVAL_S else None
