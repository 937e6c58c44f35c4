"""One Status from all parts of the agent: the model's answer, and what the others know at that moment.

The table of workloads is made every TABLE_S, and at once when Pods come or go or when the answer has moved to another
whole number; statuses in between carry the last one. Why: with 110 workloads and cold caches the table takes 3.1 ms,
all the rest of a status 0.5 ms, and it moves as slowly as Pods are measured, once in 5 s each.
"""

import time
from collections.abc import Callable, Sequence
from math import floor, inf, isfinite

from carico_agent.core import Estimate
from carico_agent.node.learning import ClusterLearning
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.progress import ProgressApi
from carico_agent.node.publish.publisher import Publisher
from carico_agent.node.publish.status import (
    AgentFacts,
    Status,
    WorkloadStatus,
    WorkStatus,
    by_name,
    known,
    status_of,
    workload_status,
)
from carico_agent.node.reserve import ReservationApi
from carico_agent.node.source import Source

TABLE_S = 30.0
"""Between two tables of workloads, while nothing else asks for one [s]."""


class StatusMaker:
    """`make` is the loop's."""

    def __init__(
        self,
        node: str,
        source: Source,
        runtime: Runtime,
        reservations: ReservationApi,
        learning: ClusterLearning,
        progress: ProgressApi,
        publishers: Sequence[Publisher],
        horizon_s: Callable[[], float | None],
    ) -> None:
        """`horizon_s()`: for how long what is published must hold [s]; None: for as long as the next Pod stays."""
        self._node, self._source, self._runtime, self._horizon_s = node, source, runtime, horizon_s
        self._reservations, self._learning, self._progress = reservations, learning, progress
        self._publishers = publishers
        self._sizes = by_name(source.resources, source.sizes)
        self._table: tuple[WorkloadStatus, ...] = ()
        self._table_of: tuple[int, float] = (-1, inf)  # Pods and whole Pod-Capacity when it was made
        self._table_s = -inf

    def make(self, now: Estimate) -> Status:
        """The status of this answer; `now` need not list workloads."""
        feed, usage = self._source.feed, self._source.feed.usage
        assert usage is not None
        return status_of(
            self._node,
            self._source.resources,
            now,
            usage.detail,
            self._facts(now),
            feed.ahead(now, self._horizon_s()),
            self._workloads(now),
        )

    def _facts(self, now: Estimate) -> AgentFacts:
        source = self._source
        return AgentFacts(
            sizes=self._sizes,
            work=WorkStatus() if source.replaying else self._progress.status(),
            reserved=self._reservations.reserved(),
            available=self._reservations.available(known(now.pod_capacity, 3)),
            absent=source.absent,
            runtime=self._runtime.condition,
            federation=self._learning.status(),
            sampling=source.status(),
            publishers={one.name: one.condition for one in self._publishers},
        )

    def _workloads(self, now: Estimate) -> tuple[WorkloadStatus, ...]:
        if not now.measured:
            self._table_s = -inf
            return ()
        made_of, now_s = (now.pods, floor(now.pod_capacity) if isfinite(now.pod_capacity) else inf), time.monotonic()
        if self._source.replaying or made_of != self._table_of or now_s - self._table_s >= TABLE_S:
            self._table = tuple(workload_status(self._source.resources, one) for one in self._source.feed.table())
            self._table_of, self._table_s = made_of, now_s
        return self._table
