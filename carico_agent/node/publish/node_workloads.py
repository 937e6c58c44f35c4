"""From a status to the annotation `carico.dev/workloads` (kube/workloads.py), and whether it is worth a write. Pure
functions.

Which workloads: those that arrive most often or make up most of the Pods that run. Daemons are counted only: they never
are the next Pod, and their Pods come by themselves. A workload whose cost is not learned yet is listed with its Pods
alone, so that they are not taken for Pods on their way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import nan

from carico_agent.lib.kube.pods import PodFacts
from carico_agent.lib.kube.workloads import MAX_WORKLOADS, RESOURCES, UNKNOWN, Amounts, NodeWorkloads, WorkloadOnNode
from carico_agent.node.publish import status as published
from carico_agent.node.publish.status import Status, WorkloadStatus

MOVED_RATIO, MIN_RATIO = 0.10, 0.05
"""A workload's cost has changed when it is off by a tenth of itself and by a twentieth of the next Pod's cost: a tenth
of what a sleeping Pod takes is nothing."""


def less_reserved(status: Status) -> Status:
    """The status as others should see it: what local reservations hold is not offered. `reserved` counts Pods of the
    next workload, and never takes more than there is.

    >>> seen = less_reserved(Status(pod_capacity=5.0, low=4.0, high=6.0, slots=8.0, pods=3, reserved=2))
    >>> seen.pod_capacity, seen.low, seen.high, seen.slots
    (3.0, 2.0, 4.0, 6.0)
    """
    if not status.reserved or status.pod_capacity is None:
        return status
    taken = min(float(status.reserved), status.pod_capacity)
    return replace(
        status,
        pod_capacity=status.pod_capacity - taken,
        low=None if status.low is None else max(0.0, status.low - taken),
        high=None if status.high is None else max(0.0, status.high - taken),
        slots=None if status.slots is None else status.slots - taken,
        room=room_less(status, taken),
        pod_capacity_held=None if status.pod_capacity_held is None else max(0.0, status.pod_capacity_held - taken),
    )


def by_horizon(status: Status, horizon: str | float) -> Status:
    """The status whose slots and room hold for as long as `[kubernetes] horizon` says: what is offered to schedulers.

    While no whole day was seen "lifetime" is "now": a guess about tomorrow must not close a node that was just started.

    >>> seen = Status(pod_capacity=5.0, slots=8.0, pods=3, pod_capacity_held=2.0, room_held={"cpu": 0.1})
    >>> seen = replace(seen, outlook="known")
    >>> by_horizon(seen, "now") is seen, by_horizon(seen, "lifetime").slots, by_horizon(seen, 3600.0).room
    (True, 5.0, {'cpu': 0.1})
    >>> by_horizon(replace(seen, outlook="first day"), "lifetime").slots
    8.0
    """
    if horizon == "now" or status.pod_capacity_held is None or status.slots is None or status.pod_capacity is None:
        return status
    if horizon == "lifetime" and status.outlook != "known":
        return status
    less = max(0.0, status.pod_capacity - status.pod_capacity_held)
    return replace(
        status,
        pod_capacity=status.pod_capacity - less,
        low=None if status.low is None else min(status.low, status.pod_capacity - less),
        high=status.held_high,
        slots=status.slots - less,
        room=status.room_held or status.room,
    )


def room_less(status: Status, pods: float) -> dict[str, float | None]:
    """The room that is left beside so many more Pods of the next workload."""
    return {name: _less(amount, pods, status.cost_vector.get(name)) for name, amount in status.room.items()}


def pods_by_workload(bound: Iterable[PodFacts], running: Mapping[str, bool]) -> dict[str, int]:
    """The API server's Pods that run here, and so are in the node's room, by workload."""
    found: dict[str, int] = {}
    for pod in bound:
        if pod.local_uid in running:
            found[pod.workload] = found.get(pod.workload, 0) + 1
    return found


def node_workloads(status: Status, pods: Mapping[str, int]) -> NodeWorkloads | None:
    """None until Pods are measured one by one: then there is no room to speak of. `pods`: see `pods_by_workload`."""
    if not status.pods_measured or not status.room:
        return None
    together = max(1, sum(pods.values()))

    def weight(workload: WorkloadStatus) -> float:
        return max(workload.arrivals, pods.get(workload.workload, 0) / together)

    matter = [workload for workload in status.workloads if not workload.per_node and weight(workload) > 0]
    listed = sorted(matter, key=weight, reverse=True)[:MAX_WORKLOADS]
    rows = {workload.workload: _on_node(workload, status.sizes, pods.get(workload.workload, 0)) for workload in listed}
    other = sum(count for name, count in pods.items() if name not in rows)
    room, following, used = (
        _absolute(shares, status.sizes) for shares in (status.room, status.cost_vector, status.usage)
    )
    return NodeWorkloads(room, following, rows, other, used)


def moved(old: NodeWorkloads | None, new: NodeWorkloads | None) -> str | None:
    """What has changed so much that consumers should know before the next heartbeat; None: nothing."""
    if new is None or old is None:
        return None if new is old else "room is known" if old is None else "room is unknown"
    for name, workload in new.workloads.items():
        before = old.workloads[name].cost if name in old.workloads else UNKNOWN
        if _moved(before, workload.cost, new.next):
            return f"the cost of {name}"
    return None


def _moved(old: Amounts, new: Amounts, following: Amounts) -> bool:
    for was, now, scale in zip(old, new, following, strict=True):
        if (was == was) != (now == now):
            return True
        if abs(now - was) > MOVED_RATIO * was and not abs(now - was) <= MIN_RATIO * scale:
            return True
    return False


def _on_node(workload: WorkloadStatus, sizes: published.Amounts, pods: int) -> WorkloadOnNode:
    if not workload.trusted:
        return WorkloadOnNode(pods=pods)
    return WorkloadOnNode(_absolute(workload.cost, sizes), nan if workload.fits is None else workload.fits, pods)


def _absolute(shares: published.Amounts, sizes: published.Amounts) -> Amounts:
    """Shares of this node as cores, bytes, and so on."""
    values = [_product(shares.get(name), sizes.get(name)) for name in RESOURCES]
    return values[0], values[1], values[2], values[3]


def _product(share: float | None, size: float | None) -> float:
    return nan if share is None or size is None else share * size


def _less(amount: float | None, taken: float, cost: float | None) -> float | None:
    return amount if amount is None or cost is None else amount - taken * cost
