"""What a node offers, computed from its status and the Pods that hold something. Pure functions.

The extended resource is what an unmodified kube-scheduler filters by and reserves itself: it subtracts what bound Pods
ask for. So a node offers

    Pod-Capacity + what those counted in it hold, its low side made whole, never below what all bound Pods hold.

Why "those counted in it" and not all holders: a Pod that is bound but has not started yet is not in Pod-Capacity. With
"all holders + Pod-Capacity" eight Pods bound to an empty node with eight places would make sixteen out of them.
Why never below: the kubelet refuses Pods at its next start if they hold more than the node has (OutOf<resource>).
Why a Pod that is gone from the API server but still counted here goes on holding: it is still in Pod-Capacity. Without
it the number dips by one at every end of a Pod, until the end is noticed here.

What local reservations hold is not offered: the status that comes in here is already less that
(node_workloads.less_reserved).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.names import POD_CAPACITY, SLOTS, STATUS, WORKLOADS
from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import NodeWorkloads, encode
from carico_agent.lib.net.times import rfc3339
from carico_agent.node.publish.status import Status, WorkStatus
from carico_agent.node.publish.throttle import Summary, ThrottleConfig, steady


@dataclass(frozen=True, slots=True)
class HeldPods:
    """The Pods of a node, by what the offer needs to know of them."""

    holds: int = 0
    """What all bound, unfinished Pods ask for of the extended resource."""
    counted_holds: int = 0
    """What those hold that are counted in Pod-Capacity, just ended ones included."""
    counted: int = 0
    """Bound Pods that are counted here."""
    uncounted: int = 0
    """Bound Pods that run here and are not counted."""


def held_pods(bound: Iterable[PodFacts], ended: Iterable[PodFacts], counted: Mapping[str, bool]) -> HeldPods:
    """`counted`: UIDs of the Pods that run here → whether they are counted."""
    bound = tuple(bound)
    here = [counted[pod.local_uid] for pod in bound if pod.local_uid in counted]
    return HeldPods(
        sum(pod.holds for pod in bound),
        sum(pod.holds for pod in (*bound, *ended) if counted.get(pod.local_uid)),
        sum(here),
        here.count(False),
    )


def places(slots: int, pods: int, held: HeldPods) -> int:
    """Slots as the API server's Pods count: without Pods it does not know, with those we do not count.

    Eight slots for three Pods, one of which the API server knows; it knows another that is not counted here:

    >>> places(8, 3, HeldPods(counted=1, uncounted=1))
    7
    """
    return max(0, slots - max(0, pods - held.counted) + held.uncounted)


def amount(low: float, held: HeldPods, published: int | None, config: ThrottleConfig) -> int:
    """Of the extended resource: `low` is the low side of Pod-Capacity + held.counted_holds, NaN when unknown."""
    return max(held.holds, steady(low, published, config) or 0)


def patch(
    status: Status,
    summary: Summary,
    offer: Offer,
    resource: str,
    ttl_s: float,
    workloads: NodeWorkloads | None = None,
    rise: str = "",
) -> Object:
    """Annotations and the extended resource, as one merge patch of nodes/status. `rise`: the id under which the node's
    placement Lease offers this (kube/placement_lease.py)."""
    known = summary.slots is not None and status.pod_capacity is not None
    body: Object = {
        "metadata": {
            "annotations": {
                POD_CAPACITY: f"{status.pod_capacity:.2f}" if known else None,
                SLOTS: str(summary.slots) if known else None,
                STATUS: _status_annotation(status, summary, offer, ttl_s, rise),
                WORKLOADS: encode(workloads) if known and workloads is not None else None,
            }
        }
    }
    if offer.resource is not None:
        quantity = {resource: str(offer.resource)}
        body["status"] = {"capacity": quantity, "allocatable": quantity}
    return body


def _work(work: WorkStatus) -> dict[str, Any]:
    body: dict[str, Any] = {"jobs": work.jobs, "sum_s": work.total_s, "max_s": work.longest_s}
    if work.lefts_s:
        body["lefts_s"] = list(work.lefts_s)
    if work.run_s is not None:
        body["run_s"] = work.run_s
    if work.contention_s or work.expected_contention_s or work.at_limit:
        body |= {"c_s": work.contention_s, "c1_s": work.expected_contention_s, "limit": work.at_limit}
    if work.top:
        body["top"] = [list(one) for one in work.top]
    return body


def _status_annotation(status: Status, summary: Summary, offer: Offer, ttl_s: float, rise: str) -> str:
    body: dict[str, Any] = {"v": 1, "mode": summary.mode, "ttl_s": ttl_s, "seq": status.sequence}
    if rise:
        body["rise"] = rise
    if summary.slots is None:
        body["time"] = rfc3339(digits="seconds")
    else:
        body |= {
            "time": status.time,
            "low": status.low,
            "high": status.high,
            "limiting": status.limiting,
            "pods": status.pods,
            "slots": status.slots,
            "places": offer.places,
        }
        if status.pod_capacity_held is not None:
            body["held"] = {"pods": status.pod_capacity_held, "horizon_s": status.horizon_s, "outlook": status.outlook}
        if status.work.jobs or status.work.unknown:
            body["work"] = _work(status.work)
    return json.dumps(body, separators=(",", ":"))
