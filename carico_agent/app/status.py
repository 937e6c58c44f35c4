"""What the agent says about itself and its node, as plain data: status, metrics, and one line for humans."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from carico_agent.core import Estimate
from carico_agent.net.metrics import Family, histogram
from carico_agent.net.times import rfc3339
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.ticker import LATENESS_BOUNDS_S, Lateness

MODES = ("learning", "measured", "predicted")


def known(value: float, digits: int = 6) -> float | None:
    """A finite number, rounded; None for NaN and infinity, which JSON does not know."""
    return round(float(value), digits) if isfinite(value) else None


def by_name(names: Iterable[str], values: Iterable[float]) -> dict[str, float | None]:
    return {name: known(value) for name, value in zip(names, values, strict=True)}


def status_of(node: str, resources: tuple[str, ...], e: Estimate, detail: Mapping[str, float]) -> dict[str, Any]:
    """The body of /v1/status, as far as the estimate knows it."""
    now = rfc3339()
    return {
        "node": node,
        "time": now,
        "pod_capacity": known(e.pod_capacity, 3),
        "low": known(e.low, 3),
        "high": known(e.high, 3),
        "slots": known(e.slots, 3),
        "pods": e.pods,
        "mode": e.mode,
        "limiting": e.limiting,
        "capacity": known(e.capacity),
        "baseline": known(e.baseline),
        "per_pod_cost": known(e.per_pod_cost),
        "cost_vector": by_name(resources, e.cost_vector),
        "usage": by_name(resources, e.usage),
        "sigma": known(e.sigma),
        "direction": by_name(resources, e.direction),
        "signals": {key: known(value) for key, value in detail.items()},
    }


def human_line(status: Mapping[str, Any]) -> str:
    """One line a second: time, usage per resource, Pods, Pod-Capacity with interval and mode, what limits it."""
    usage = "  ".join(f"{name} {_percent(value)}" for name, value in status["usage"].items())
    capacity = "unknown"
    if status["pod_capacity"] is not None:
        high = f"{status['high']:.1f}" if status["high"] is not None else "∞"
        capacity = f"{status['pod_capacity']:.1f} [{status['low']:.1f}–{high}]"
    limited = f"limited by {status['limiting']}" if status["limiting"] else "no limit seen"
    answer = f"Pod-Capacity {capacity} {status['mode']}, {limited}"
    return f"{status['time'][11:19]}  {usage}  Pods {status['pods']}  {answer}"


def _percent(value: float | None) -> str:
    return "    ?" if value is None else f"{value:5.1%}"


def status_metrics(status: Mapping[str, Any], age_s: float) -> list[Family]:
    """The status as Prometheus metrics."""
    gauges = {
        "carico_pod_capacity": ("How many more Pods this node can take.", "pod_capacity"),
        "carico_pod_capacity_low": ("Lower end of the interval of Pod-Capacity.", "low"),
        "carico_pod_capacity_high": ("Upper end of the interval of Pod-Capacity.", "high"),
        "carico_slots": ("Pods counted plus Pod-Capacity, of the same instant.", "slots"),
        "carico_pods": ("Pods running on this node.", "pods"),
        "carico_capacity": ("Capacity k, in units of the learned workload.", "capacity"),
        "carico_baseline_capacity": ("Capacity without Pods.", "baseline"),
        "carico_pod_cost": ("Capacity that one Pod takes.", "per_pod_cost"),
        "carico_workload_magnitude": ("Magnitude of the recent workload (first singular value).", "sigma"),
    }
    families = [Family(name, "gauge", text).add(status[key]) for name, (text, key) in gauges.items()]
    usage = Family("carico_usage_ratio", "gauge", "Smoothed usage per resource, 1 is exhausted.")
    cost = Family("carico_pod_cost_ratio", "gauge", "What one Pod uses of each resource.")
    for resource, value in status["usage"].items():
        usage.add(value, resource=resource)
        cost.add(status["cost_vector"][resource], resource=resource)
    mode = Family("carico_mode", "gauge", "1 for the mode in which Pod-Capacity was made.")
    for name in MODES:
        mode.add(float(status["mode"] == name), mode=name)
    limiting = Family("carico_limiting", "gauge", "1 for the resource that runs out first.")
    for name in dict.fromkeys([*status["usage"], "pods"]):
        limiting.add(float(status["limiting"] == name), resource=name)
    signals = Family("carico_signal_ratio", "gauge", "The signals usage is made of; cpu_raw is without correction.")
    for name, value in status["signals"].items():
        signals.add(value, signal=name)
    age = Family("carico_status_age_seconds", "gauge", "Age of the status; void when older than its TTL.").add(age_s)
    return [*families, usage, cost, mode, limiting, signals, age]


def self_metrics(cost: OwnCost, lateness: Lateness, failures: int) -> list[Family]:
    """What the agent itself costs, as Prometheus metrics."""
    seconds = Family("carico_stage_seconds_total", "counter", "Time spent per stage of the agent.")
    runs = Family("carico_stage_runs_total", "counter", "Runs per stage of the agent.")
    for name, stage in list(cost.stages.items()):
        seconds.add(stage.total_s, stage=name)
        runs.add(stage.runs, stage=name)
    return [
        Family("process_cpu_seconds_total", "counter", "CPU time of the agent.").add(cost.cpu_s()),
        Family("process_resident_memory_bytes", "gauge", "Resident memory of the agent.").add(cost.resident_bytes()),
        histogram(
            "carico_tick_lateness_seconds",
            "How late ticks of the sampling began.",
            LATENESS_BOUNDS_S,
            lateness.counts,
            lateness.sum_s,
        ),
        Family("carico_missed_ticks_total", "counter", "Ticks skipped by a late agent.").add(lateness.missed),
        Family("carico_failed_ticks_total", "counter", "Ticks that failed.").add(failures),
        seconds,
        runs,
    ]


def self_body(cost: OwnCost, lateness: Lateness, cpu_ratio: float, failures: int) -> dict[str, Any]:
    """The body of /v1/self, as far as sampling knows it."""
    return {
        "cpu_ratio": round(cpu_ratio, 5),
        "cpu_s": round(cost.cpu_s(), 3),
        "resident_bytes": cost.resident_bytes(),
        "ticks": lateness.ticks,
        "missed_ticks": lateness.missed,
        "failed_ticks": failures,
        "lateness_ms": {
            "p50": round(1e3 * lateness.quantile_s(0.5), 3),
            "p99": round(1e3 * lateness.quantile_s(0.99), 3),
            "most": round(1e3 * lateness.most_s, 3),
        },
        "stages": {
            name: {"runs": s.runs, "mean_us": round(1e6 * s.mean_s, 1), "most_us": round(1e6 * s.most_s, 1)}
            for name, s in list(cost.stages.items())
        },
    }
