"""What the agent itself costs and how its parts are doing: for /v1/self and /metrics."""

from typing import Any

from carico_agent.net.metrics import Family, histogram
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.ticker import LATENESS_BOUNDS_S, Lateness


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
