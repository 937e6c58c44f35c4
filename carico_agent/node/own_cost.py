"""What the agent itself costs and how its parts are doing: for /v1/self and /metrics."""

from typing import Any

from carico_agent.lib.net.metrics import Family, histogram, process
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.ticker import Lateness, TimeHistogram


def self_metrics(cost: OwnCost, lateness: Lateness, worked: TimeHistogram, failures: int) -> list[Family]:
    """What the agent itself costs, as Prometheus metrics."""
    seconds = Family("carico_stage_seconds_total", "counter", "Time spent per stage of the agent.")
    runs = Family("carico_stage_runs_total", "counter", "Runs per stage of the agent.")
    for name, stage in list(cost.stages.items()):
        seconds.add(stage.total_s, stage=name)
        runs.add(stage.runs, stage=name)
    return [
        *process(cost.cpu_s(), cost.resident_bytes(), "the agent"),
        _histogram("carico_tick_lateness_seconds", "How late ticks of the sampling began.", lateness),
        _histogram("carico_tick_seconds", "How long ticks of the sampling took.", worked),
        Family("carico_missed_ticks_total", "counter", "Ticks skipped by a late agent.").add(lateness.missed),
        Family("carico_failed_ticks_total", "counter", "Ticks that failed.").add(failures),
        seconds,
        runs,
    ]


def _histogram(name: str, help: str, taken: TimeHistogram) -> Family:
    return histogram(name, help, taken.bounds_s, taken.counts, taken.sum_s)


def self_body(
    cost: OwnCost, lateness: Lateness, worked: TimeHistogram, cpu_ratio: float, failures: int
) -> dict[str, Any]:
    """The body of /v1/self, as far as sampling knows it."""
    return {
        "cpu_ratio": round(cpu_ratio, 5),
        "cpu_s": round(cost.cpu_s(), 3),
        "resident_bytes": cost.resident_bytes(),
        "ticks": lateness.ticks,
        "missed_ticks": lateness.missed,
        "failed_ticks": failures,
        "lateness_ms": _quantiles_ms(lateness),
        "tick_ms": _quantiles_ms(worked),
        "stages": {
            name: {"runs": s.runs, "mean_us": round(1e6 * s.mean_s, 1), "max_us": round(1e6 * s.max_s, 1)}
            for name, s in list(cost.stages.items())
        },
    }


def _quantiles_ms(taken: TimeHistogram) -> dict[str, float]:
    return {
        "p50": round(1e3 * taken.quantile_s(0.5), 3),
        "p99": round(1e3 * taken.quantile_s(0.99), 3),
        "most": round(1e3 * taken.max_s, 3),
    }
