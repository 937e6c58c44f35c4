"""What would be written to the Node object now: from the newest status, the Pods that hold something, and the low side
of the last seconds. Writes nothing; time is an argument."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import nan

from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import Offer
from carico_agent.lib.kube.workloads import NodeWorkloads
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_mirror import NodeMirror
from carico_agent.node.publish.node_offer import HeldPods, amount, held_pods, places
from carico_agent.node.publish.node_workloads import (
    by_horizon,
    less_reserved,
    node_workloads,
    pods_by_workload,
    room_less,
)
from carico_agent.node.publish.pace import hold_s
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.throttle import Lowest, Summary, ThrottleConfig, WriteThrottle

Counted = Callable[[], Mapping[str, bool]]
"""UIDs of the Pods that run here → whether they are counted."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What is published where."""

    node: str
    resource: str = RESOURCE
    """Name of the extended resource; empty: annotations only."""
    lease_namespace: str = ""
    """Namespace of the placement Leases, one per node; empty: none."""
    throttle: ThrottleConfig = field(default_factory=ThrottleConfig)
    horizon: str | float = "now"
    """For how long what is offered holds: [kubernetes] horizon."""

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"


@dataclass(frozen=True)
class Draft:
    """What would be written now."""

    summary: Summary
    offer: Offer
    status: Status
    list_workloads: Callable[[], NodeWorkloads | None] = lambda: None

    @cached_property
    def workloads(self) -> NodeWorkloads | None:
        """Listed when a write may come of it: with 110 workloads that takes 0.6 ms, and most drafts are not written."""
        return self.list_workloads()


class NodeDrafts:
    """`observe` takes note of what has happened, `draft` makes what would be written of it."""

    def __init__(
        self, latest: LatestStatus, mirror: NodeMirror, config: NodeConfig, throttle: WriteThrottle, counted: Counted
    ) -> None:
        self._latest, self._mirror, self._config = latest, mirror, config
        self._throttle, self._counted = throttle, counted
        self._lowest = Lowest(config.throttle.hold_s)  # of the extended resource
        self._lowest_slots = Lowest(0.0)
        self.held = HeldPods()

    def slow_to(self, pace_s: float) -> None:
        """A node that may write less often publishes the low side of a longer time."""
        config = self._config.throttle
        self._lowest_slots.hold_s = hold_s(pace_s, config.min_interval_s)
        self._lowest.hold_s = max(config.hold_s, self._lowest_slots.hold_s)

    def observe(self, now_s: float) -> None:
        counted = self._counted()
        self._mirror.drop_ended(counted)
        self.held = held_pods(self._mirror.pods.values(), self._mirror.ended.values(), counted)
        status = self._status()
        self._lowest_slots.add(now_s, nan if status is None or status.slots is None else status.slots)
        if self._mirror.pods_synced.is_set():
            capacity = nan if status is None or status.pod_capacity is None else status.pod_capacity
            self._lowest.add(now_s, capacity + self.held.counted_holds)

    def draft(self, offered: int | None) -> Draft:
        """As of the last `observe`. `offered`: the extended resource as published last."""
        status, resource = self._status(), self._amount(offered)
        if status is None or status.slots is None:
            return Draft(self._throttle.summary(nan, "stale"), Offer(0, resource), self._latest.status)
        low = self._lowest_slots.value
        own = status.pod_capacity if status.method == "carico" and status.pod_capacity is not None else nan
        summary = self._throttle.summary(low, status.mode, status.work.total_s, own)
        if not self._mirror.pods_synced.is_set():
            return Draft(summary, Offer(None, resource), status)
        offer = Offer(places(summary.slots or 0, status.pods, self.held), resource)
        return Draft(summary, offer, status, partial(self._workloads, status, status.slots - low))

    def _workloads(self, status: Status, less: float) -> NodeWorkloads | None:
        """With the room that goes with the published number, which is `less` than what there is at this moment."""
        lower = replace(status, room=room_less(status, less))
        return node_workloads(lower, pods_by_workload(self._mirror.pods.values(), self._counted()))

    def withdrawal(self) -> Draft:
        """What stays behind when the agent stops: nothing but what Pods hold."""
        return Draft(Summary(None, "stopped"), Offer(0, self._mirror.held()), self._latest.status)

    def _status(self) -> Status | None:
        """The newest valid one as it holds, without what local reservations hold."""
        status = self._latest.valid
        return None if status is None else by_horizon(less_reserved(status), self._config.horizon)

    def _amount(self, offered: int | None) -> int | None:
        """Of the extended resource; None when Pods are not known (yet), because then nothing is safe."""
        if not self._config.resource or not self._mirror.pods_synced.is_set():
            return None
        return amount(self._lowest.value, self.held, offered, self._config.throttle)
