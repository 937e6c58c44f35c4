"""What recommendations cost: a minute of 330 containers' history, and one ARIMA fit. Prints JSON.

python -m lab.bench.recommend
"""

import json
import sys
import time
import tracemalloc

import numpy as np

from carico_agent.recommend.arima import fit
from carico_agent.recommend.history import ContainerHistory, MinuteSample
from lab.traces.simulated import arima

CONTAINERS = 330
MINUTES = 200
FITS = 100


def history() -> dict[str, float]:
    """CPU time per minute for all containers, and bytes that one of them takes."""
    rng = np.random.default_rng(1)
    cpu, memory = rng.gamma(2, 0.2, (MINUTES, CONTAINERS)), rng.gamma(50, 4e6, (MINUTES, CONTAINERS))
    tracemalloc.start()
    kept = [ContainerHistory() for _ in range(CONTAINERS)]
    for one in kept:
        one.observe(MinuteSample(1.7e9 - 60, 0.1, 1e8))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    begun = time.process_time()
    for minute in range(MINUTES):
        for n, one in enumerate(kept):
            one.observe(MinuteSample(1.7e9 + 60 * minute, float(cpu[minute, n]), float(memory[minute, n]), 0, 600, 3))
    spent = (time.process_time() - begun) / MINUTES
    begun = time.process_time()
    saved = len(json.dumps([one.state() for one in kept]))
    return {
        "history_ms_per_minute": spent * 1e3,
        "history_share_of_a_core": spent / 60,
        "bytes_per_container": size / CONTAINERS,
        "save_ms": (time.process_time() - begun) * 1e3,
        "saved_bytes_per_container": saved / CONTAINERS,
    }


def fits() -> dict[str, float]:
    """CPU time of a fit of 120 samples, mean and worst."""
    rng, spent = np.random.default_rng(2), []
    for _ in range(FITS):
        x = arima(rng, 120)
        begun = time.process_time()
        fit(x)
        spent.append(time.process_time() - begun)
    return {"arima_ms_mean": float(np.mean(spent)) * 1e3, "arima_ms_worst": max(spent) * 1e3}


if __name__ == "__main__":
    print(json.dumps({name: round(value, 6) for name, value in {**history(), **fits()}.items()}, indent=2))
    sys.exit(0)
