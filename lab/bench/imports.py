"""What each dependency costs in a fresh interpreter: resident memory and time of the import."""

import importlib.util
import json
import os
import subprocess
import sys

from lab.bench.table import Row, missing

MODULES = (
    "asyncio",
    "numpy",
    "aiohttp.web",
    "grpc",
    "google.protobuf.message",
    "psutil",
    "pyroute2",
    "prometheus_client",
    "filterpy.kalman",
    "carico_agent.core",
    "carico_agent.node.agent",
)
PROBE = """
import json, sys, time
def resident():
    with open("/proc/self/statm") as statm: return int(statm.read().split()[1]) * 4096
before, started = resident(), time.process_time()
if len(sys.argv) > 1: __import__(sys.argv[1])
print(json.dumps([(resident() - before) / 2**20, 1e3 * (time.process_time() - started), before / 2**20]))
"""


def probe(*module: str) -> tuple[float, float, float]:
    """MB and CPU milliseconds added, MB before; the least of three runs."""
    runs = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *module],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        runs.append(tuple(json.loads(done.stdout)))
    added, took, before = (min(column) for column in zip(*runs, strict=True))
    return added, took, before


def measure() -> list[Row]:
    rows = [Row("python alone", probe()[2], "MB")]
    for module in MODULES:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            rows.append(missing(f"import {module}", "not installed", failed=False))
            continue
        try:
            added, took, _ = probe(module)
        except subprocess.CalledProcessError as error:
            rows.append(missing(f"import {module}", error.stderr.strip().splitlines()[-1]))
            continue
        rows.append(Row(f"import {module}", added, "MB", note=f"{took:.0f} ms"))
    return rows
