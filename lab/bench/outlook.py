"""What the outlook costs in an agent: 110 Pods of 60 workloads, after a week. python -m lab.bench.outlook

Per minute the agent observes once, asks once how far usage will rise, and holds its number once a second; every ten
minutes it writes the week to disk. Budget: 0.03 % of a core and 2 MB.
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

from carico_agent.core import CapacityModel, ModelConfig, Outlook, PodSample
from carico_agent.core.held import held
from carico_agent.node.state import sealed

PODS, WORKLOADS, SLOTS = 110, 60, 2016
DAY_S = 86400.0
BUDGET_RATIO, BUDGET_BYTES = 3e-4, 2e6


def samples(slot: int) -> list[PodSample]:
    share = 0.4 + 0.3 * (slot % 288 > 144)
    return [PodSample(f"p-{i}", f"w-{i % WORKLOADS}", (share / PODS, 0.5 / PODS)) for i in range(PODS)]


def cpu_ms(call: Callable[[], object], times: int) -> float:
    started_s = time.process_time()
    for _ in range(times):
        call()
    return 1000 * (time.process_time() - started_s) / times


def measured() -> dict[str, float]:
    tracemalloc.start()
    outlook = Outlook(("cpu", "memory"))
    for slot in range(0, SLOTS, 3):  # two of three slots are missing: filling them is the dear case
        outlook.observe(slot * 300.0, samples(slot))
    outlook.peak(DAY_S)
    memory_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    pods, t = samples(0), [SLOTS * 300.0]

    def minute() -> None:
        t[0] += 60.0
        outlook.observe(t[0], pods)

    shares = {f"w-{i}": 1 / WORKLOADS for i in range(WORKLOADS)}
    observe_ms = cpu_ms(minute, 40)
    sum_ms = cpu_ms(lambda: (minute(), outlook.together()), 20) - observe_ms
    rise_ms = cpu_ms(lambda: (minute(), outlook.rises(DAY_S, shares)), 20) - observe_ms - sum_ms
    peak_ms = cpu_ms(lambda: (minute(), outlook.peak_time(DAY_S, "cpu")), 20) - observe_ms - sum_ms
    model = CapacityModel(("cpu", "memory"), ModelConfig(cores=64))
    model.outlook = outlook
    now = model.estimate(workloads=False)
    room = (0.3, 0.3)
    now = replace(now, pod_capacity=20.0, low=15.0, high=25.0, room=room, cost_vector=(0.01, 0.01))
    hold_ms = cpu_ms(lambda: held(now, outlook, DAY_S, shares), 2000)
    save_ms = cpu_ms(lambda: sealed(outlook.state()), 5)
    profile_ms = cpu_ms(lambda: [outlook.profile(f"w-{i}") for i in range(32)], 5)
    per_minute_ms = observe_ms + sum_ms + rise_ms + peak_ms + 60 * hold_ms + save_ms / 10
    return {
        "observe_ms": observe_ms,
        "sum_ms": sum_ms,
        "rises_ms": rise_ms,
        "peak_time_ms": peak_ms,
        "hold_ms": hold_ms,
        "save_ms": save_ms,
        "profiles_ms": profile_ms,
        "cpu_ratio": per_minute_ms / 60_000,
        "memory_bytes": memory_bytes,
        "file_bytes": len(sealed(outlook.state())),
    }


if __name__ == "__main__":
    found = measured()
    print(json.dumps({name: float(f"{value:.4g}") for name, value in found.items()}, indent=1))
    print(f"budget: {BUDGET_RATIO:.2%} of a core, {BUDGET_BYTES / 1e6:g} MB")
