"""What happened between two readings of a component's metrics. A counter that went backwards is unknown, never 0."""

from dataclasses import dataclass, field

from carico_agent.plane.exposition import Totals, total

WANTED: dict[str, tuple[str, ...]] = {
    "process_cpu_seconds_total": (),
    "process_start_time_seconds": (),
    "process_resident_memory_bytes": (),
    "go_memstats_alloc_bytes_total": (),
    "apiserver_request_duration_seconds_count": ("verb", "resource", "subresource"),
    "apiserver_request_duration_seconds_sum": ("verb", "resource", "subresource"),
    "apiserver_current_inqueue_requests": (),
    "apiserver_flowcontrol_current_inqueue_requests": ("priority_level",),
    "apiserver_flowcontrol_request_execution_seconds_sum": ("priority_level", "flow_schema"),
    "apiserver_flowcontrol_request_execution_seconds_count": ("priority_level", "flow_schema"),
    "apiserver_flowcontrol_request_wait_duration_seconds_sum": ("priority_level",),
    "apiserver_flowcontrol_rejected_requests_total": ("priority_level",),
    "apiserver_flowcontrol_priority_level_seat_utilization_sum": ("priority_level", "phase"),
    "apiserver_flowcontrol_priority_level_seat_utilization_count": ("priority_level", "phase"),
    "apiserver_flowcontrol_current_executing_seats": ("priority_level",),
    "apiserver_flowcontrol_current_limit_seats": ("priority_level",),
    "apiserver_flowcontrol_request_concurrency_limit": ("priority_level",),
    "apiserver_flowcontrol_nominal_limit_seats": ("priority_level",),
    "apiserver_storage_list_total": ("resource",),
    "apiserver_storage_list_fetched_objects_total": ("resource",),
    "apiserver_cache_list_total": ("resource",),
    "apiserver_cache_list_fetched_objects_total": ("resource",),
    "apiserver_watch_cache_consistent_read_total": ("resource", "success"),
    "apiserver_resource_size_estimate_bytes": ("resource",),
    "rest_client_rate_limiter_duration_seconds_sum": (),
    "rest_client_rate_limiter_duration_seconds_count": (),
    "grpc_server_handled_total": ("grpc_method",),
    "scheduler_schedule_attempts_total": (),
    "scheduler_pending_pods": (),
    "workqueue_work_duration_seconds_count": ("name",),
    "workqueue_depth": (),
}
"""Families and the labels that are kept of them. Those with seats came with 1.26 or later, all others are in 1.20."""

GAUGES = frozenset(
    {
        "process_start_time_seconds",
        "process_resident_memory_bytes",
        "apiserver_current_inqueue_requests",
        "apiserver_flowcontrol_current_inqueue_requests",
        "apiserver_flowcontrol_request_concurrency_limit",
        "apiserver_flowcontrol_nominal_limit_seats",
        "apiserver_flowcontrol_current_executing_seats",
        "apiserver_flowcontrol_current_limit_seats",
        "apiserver_resource_size_estimate_bytes",
        "scheduler_pending_pods",
        "workqueue_depth",
    }
)


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape, and when it was made (monotonic) [s]."""

    time_s: float
    totals: Totals

    @property
    def start_s(self) -> float | None:
        """When the process behind it began: another one answers behind a load balancer, or after a restart."""
        return total(self.totals, "process_start_time_seconds")


@dataclass(frozen=True, slots=True)
class Window:
    """Counters as what they grew by, gauges as they are now."""

    length_s: float
    counted: Totals = field(default_factory=dict)
    gauges: Totals = field(default_factory=dict)

    def grown(self, family: str) -> float | None:
        return total(self.counted, family)

    def now(self, family: str) -> float | None:
        return total(self.gauges, family)


def between(old: Scrape, new: Scrape) -> Window | None:
    """The window from `old` to `new`; None when it cannot be known: another process, a counter that fell, no time.

    >>> one = Scrape(0, {"process_cpu_seconds_total": {(): 5.0}, "process_start_time_seconds": {(): 1.0}})
    >>> two = Scrape(60, {"process_cpu_seconds_total": {(): 8.0}, "process_start_time_seconds": {(): 1.0}})
    >>> between(one, two).grown("process_cpu_seconds_total"), between(two, one)
    (3.0, None)
    """
    if new.time_s <= old.time_s or new.start_s != old.start_s:
        return None
    counted: Totals = {}
    for family, values in new.totals.items():
        if family in GAUGES:
            continue
        before = old.totals.get(family, {})
        grown = {key: value - before.get(key, 0.0) for key, value in values.items()}
        if any(difference < 0 for difference in grown.values()):
            return None
        counted[family] = grown
    gauges = {family: values for family, values in new.totals.items() if family in GAUGES}
    return Window(new.time_s - old.time_s, counted, gauges)
