"""10 Hz under full load: two busy loops per core beside three agents: real time, niceness −10, and neither.

Only the window counts, not the start of the agents, so the histogram of /metrics is read before and after it; p99 is
therefore the upper bound of a bucket (…, 5, 10, 20, 50 ms).
"""

import os
import time
from contextlib import ExitStack

from lab.bench.process import Http, OwnAgent, agent, running
from lab.bench.table import Row

LOOPS_PER_CORE, P99_BUDGET_MS = 2, 20.0
WORKLOADS = {"real time (the default)": (True, 0), "niceness -10": (False, -10), "niceness 0": (False, 0)}
CONFIG = "[sampling]\nrealtime = {}\nniceness = {}\n"
Counts = dict[str, float]


def measure(window_s: float) -> list[Row]:
    loops = LOOPS_PER_CORE * len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        agents = {
            workload: stack.enter_context(agent(config=CONFIG.format(str(realtime).lower(), niceness)))
            for workload, (realtime, niceness) in WORKLOADS.items()
        }
        for _ in range(loops):
            stack.enter_context(running(["sh", "-c", "while :; do :; done"]))
        time.sleep(2.0)
        before = {workload: ticks(own) for workload, own in agents.items()}
        time.sleep(window_s)
        after = {workload: ticks(own) for workload, own in agents.items()}
    rows = []
    for workload in WORKLOADS:
        rows += _rows(workload, between(before[workload], after[workload]), loops)
    return rows


def ticks(own: OwnAgent, family: str = "carico_tick_lateness_seconds") -> Counts:
    """Ticks so far by upper bound of their lateness [s], or of another histogram, and those missed."""
    counts: Counts = {}
    for line in Http(own.path).get("/metrics").decode().splitlines():
        if line.startswith(f"{family}_bucket"):
            counts[line.split('"')[1]] = float(line.rsplit(" ", 1)[1])
        elif line.startswith("carico_missed_ticks_total"):
            counts["missed"] = float(line.rsplit(" ", 1)[1])
    return counts


def took(own: OwnAgent) -> Counts:
    """The same by how long they took."""
    return ticks(own, "carico_tick_seconds")


def between(before: Counts, after: Counts) -> Counts:
    return {key: after[key] - before[key] for key in after}


def quantile_ms(counts: Counts, q: float) -> float:
    """The bound of the bucket that the q-quantile falls into.

    >>> quantile_ms({"0.001": 5, "0.02": 9, "+Inf": 10, "missed": 0}, 0.5)
    1.0
    """
    bounds = [key for key in counts if key != "missed"]
    return 1e3 * next(float(bound) for bound in bounds if counts[bound] >= q * counts["+Inf"])


def _rows(workload: str, counts: Counts, loops: int) -> list[Row]:
    granted = workload == "niceness 0" or os.geteuid() == 0
    label = workload if granted else f"{workload}, not granted"
    later, budget = counts["+Inf"] - counts["0.02"], workload.startswith("real")  # the others are there for comparison
    note = (
        f"{counts['+Inf']:.0f} ticks, {loops} busy loops, p50 ≤ {quantile_ms(counts, 0.5):g} ms, "
        f"{later:.0f} beyond 20 ms"
    )
    return [
        Row(f"{label}: ticks missed", counts["missed"], "", 0 if budget else None),
        Row(
            f"{label}: p99 lateness, at most",
            quantile_ms(counts, 0.99),
            "ms",
            P99_BUDGET_MS if budget else None,
            note=note,
        ),
    ]
