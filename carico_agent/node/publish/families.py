"""The status as Prometheus metrics."""

from carico_agent.lib.net.metrics import Family
from carico_agent.node.publish.status import MODES, OUTLOOKS, Status

MAX_WORKLOADS = 20
"""Workloads with series of their own, those with most Pods: each has seven, and a cluster has thousands of nodes."""


def status_metrics(status: Status, age_s: float) -> list[Family]:
    """One family per number; unknown numbers have no sample."""
    return [
        *_gauges(status),
        *_per_resource(status),
        *_per_workload(status),
        _one_of("carico_outlook", "1 for what is known of the coming hours.", "outlook", OUTLOOKS, status.outlook),
        _one_of("carico_mode", "1 for the mode in which Pod-Capacity was made.", "mode", MODES, status.mode),
        _one_of(
            "carico_limiting",
            "1 for the resource that runs out first.",
            "resource",
            tuple(dict.fromkeys([*status.usage, "pods"])),
            status.limiting,
        ),
        Family("carico_status_age_seconds", "gauge", "Age of the status; void when older than its TTL.").add(age_s),
    ]


def _gauges(status: Status) -> list[Family]:
    numbers = (
        ("carico_pod_capacity", "How many more Pods this node can take.", status.pod_capacity),
        ("carico_pod_capacity_low", "Lower end of the interval of Pod-Capacity.", status.low),
        ("carico_pod_capacity_high", "Upper end of the interval of Pod-Capacity.", status.high),
        ("carico_pod_capacity_held", "Pods that fit and still have room at the horizon.", status.pod_capacity_held),
        ("carico_pod_capacity_held_low", "Lower end of its interval.", status.held_low),
        ("carico_pod_capacity_held_high", "Upper end of its interval.", status.held_high),
        ("carico_horizon_seconds", "For how long carico_pod_capacity_held holds.", status.horizon_s),
        ("carico_slots", "Pods counted plus Pod-Capacity, of the same instant.", status.slots),
        ("carico_pods", "Pods running on this node.", status.pods),
        ("carico_capacity", "Capacity k, in units of the learned workload.", status.capacity),
        ("carico_baseline_capacity", "Capacity without Pods.", status.baseline),
        ("carico_pod_cost", "Capacity that one Pod takes.", status.per_pod_cost),
        ("carico_workload_magnitude", "Magnitude of the recent workload (first singular value).", status.sigma),
        ("carico_jobs", "Pods whose work left is known.", status.work.jobs),
        ("carico_jobs_unknown", "Pods that reported progress and are stale or too new.", status.work.unknown),
        ("carico_work_left_seconds", "CPU seconds that all jobs still need.", status.work.total_s),
        ("carico_work_left_longest_seconds", "CPU seconds of the job with most left.", status.work.longest_s),
        ("carico_sampling_period_seconds", "Time between samples; longer when slowed.", status.sampling.period_s),
    )
    return [Family(name, "gauge", text).add(value) for name, text, value in numbers]


def _per_resource(status: Status) -> list[Family]:
    direction = Family("carico_workload_direction", "gauge", "First singular vector of recent usage; method carico.")
    for resource, value in status.direction.items():
        direction.add(value, resource=resource)
    usage = Family("carico_usage_ratio", "gauge", "Smoothed usage per resource, 1 is exhausted.")
    held = Family("carico_room_held_ratio", "gauge", "What is left of each resource at the horizon.")
    room = Family("carico_room_ratio", "gauge", "What is left of each resource for Pods, below its limit.")
    host = Family("carico_host_ratio", "gauge", "What is used of each resource by no Pod.")
    cost = Family("carico_pod_cost_ratio", "gauge", "What one Pod uses of each resource.")
    signals = Family("carico_signal_ratio", "gauge", "The signals usage is made of; cpu_raw is without correction.")
    for resource, value in status.usage.items():
        usage.add(value, resource=resource)
        cost.add(status.cost_vector.get(resource), resource=resource)
        room.add(status.room.get(resource), resource=resource)
        held.add(status.room_held.get(resource), resource=resource)
        host.add(status.host.get(resource), resource=resource)
    for name, value in status.signals.items():
        signals.add(value, signal=name)
    return [usage, direction, cost, room, held, host, signals]


def _per_workload(status: Status) -> list[Family]:
    fits = Family("carico_workload_fits", "gauge", "How many more Pods of a workload this node can take.")
    pods = Family("carico_workload_pods", "gauge", "Pods of a workload that run on this node.")
    arrivals = Family("carico_workload_arrivals_ratio", "gauge", "Chance that the next Pod to arrive is of a workload.")
    cost = Family("carico_workload_cost_ratio", "gauge", "What one Pod of a workload uses of each resource.")
    for workload in sorted(status.workloads, key=lambda one: (-one.pods, -one.arrivals, one.workload))[:MAX_WORKLOADS]:
        pods.add(workload.pods, workload=workload.workload)
        for resource, value in workload.cost.items():
            cost.add(value, workload=workload.workload, resource=resource)
        if not workload.per_node:
            fits.add(workload.fits, workload=workload.workload)
            arrivals.add(workload.arrivals, workload=workload.workload)
    return [fits, pods, arrivals, cost]


def _one_of(name: str, text: str, label: str, choices: tuple[str, ...], chosen: str | None) -> Family:
    family = Family(name, "gauge", text)
    for choice in choices:
        family.add(float(choice == chosen), **{label: choice})
    return family
