"""The status as Prometheus metrics."""

from carico_agent.net.metrics import Family
from carico_agent.publish.status import MODES, Status


def status_metrics(status: Status, age_s: float) -> list[Family]:
    """One family per number; unknown numbers have no sample."""
    return [
        *_gauges(status),
        *_per_resource(status),
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
    usage = Family("carico_usage_ratio", "gauge", "Smoothed usage per resource, 1 is exhausted.")
    cost = Family("carico_pod_cost_ratio", "gauge", "What one Pod uses of each resource.")
    signals = Family("carico_signal_ratio", "gauge", "The signals usage is made of; cpu_raw is without correction.")
    for resource, value in status.usage.items():
        usage.add(value, resource=resource)
        cost.add(status.cost_vector.get(resource), resource=resource)
    for name, value in status.signals.items():
        signals.add(value, signal=name)
    return [usage, cost, signals]


def _one_of(name: str, text: str, label: str, choices: tuple[str, ...], chosen: str | None) -> Family:
    family = Family(name, "gauge", text)
    for choice in choices:
        family.add(float(choice == chosen), **{label: choice})
    return family
