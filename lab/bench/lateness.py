"""10 Hz under full load: two busy loops per core beside two agents, one with niceness −10 and one without."""

import os
import time
from contextlib import ExitStack
from typing import Any

from lab.bench.process import agent, running
from lab.bench.table import Row

LOOPS_PER_CORE, P99_BUDGET_MS = 2, 20.0


def measure(window_s: float) -> list[Row]:
    loops = LOOPS_PER_CORE * len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for _ in range(loops):
            stack.enter_context(running(["sh", "-c", "while :; do :; done"]))
        agents = {niceness: stack.enter_context(agent(config=f"[sampling]\nniceness = {niceness}\n"))
                  for niceness in (-10, 0)}
        time.sleep(window_s)
        seen = {niceness: own.about_itself() for niceness, own in agents.items()}
    return [row for niceness, body in seen.items() for row in _rows(niceness, body, loops)]


def _rows(niceness: int, body: dict[str, Any], loops: int) -> list[Row]:
    late, granted = body["lateness_ms"], niceness >= 0 or os.geteuid() == 0
    label = f"niceness {niceness}" + ("" if granted else " (not granted)")
    worst = f"{body['ticks']} ticks, {loops} busy loops, p50 {late['p50']} ms, worst {late['most']} ms"
    return [
        Row(f"{label}: ticks missed", body["missed_ticks"], "", 0),
        Row(f"{label}: p99 lateness", late["p99"], "ms", P99_BUDGET_MS, note=worst),
    ]
