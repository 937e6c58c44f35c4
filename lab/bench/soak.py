"""Flat memory: a trace replayed at ten times its speed, again and again, with a reader on the socket."""

import tempfile
import time
from pathlib import Path

from carico_agent.node.sampling import Reading, TraceWriter
from lab.bench.process import Http, agent, memory_mb
from lab.bench.table import Row
from lab.sim.synthetic import SCENARIOS, samples

SPEED, LOOK_S, GROWTH_BUDGET_MB = 10, 10.0, 1.0
TRACE_S = 120.0


def write_trace(path: Path) -> None:
    """Two minutes of bursts of Pods, as counters the kernel could have shown."""
    scenario = SCENARIOS[0]
    writer = TraceWriter(path, "soak", scenario.cores, ("cpu", "memory"))
    total = idle = pressure_usec = 0
    for sample in samples(scenario, 1, TRACE_S):
        utilisation = min(1.0, 2 * sample.usage[0])
        total, idle = total + 40, idle + round(40 * (1 - utilisation))
        pressure_usec += round(1e5 * max(0.0, 2 * sample.usage[0] - 1))
        writer.write(
            Reading(
                sample.t,
                scenario.cores,
                total,
                idle,
                pressure_usec,
                memory_total_kb=1_000_000,
                memory_available_kb=round(1e6 * (1 - sample.usage[1])),
            ),
            sample.pods,
            False,
        )
    writer.close()


def measure(minutes: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="carico-soak-") as folder:
        trace = Path(folder) / "soak.trace"
        write_trace(trace)
        with agent("--replay", str(trace), "--speed", str(SPEED), "--repeat") as own:
            resident = _watch(own.pid, own.path, 60 * minutes)
            sequence = Http(own.path).get("/v1/status").split(b'"sequence":')[1].split(b",")[0]
    first = resident[min(2, len(resident) - 1)]
    seen = ", ".join(f"{mb:.1f}" for mb in resident[:: max(1, len(resident) // 10)])
    note = f"{minutes:g} min at {SPEED}x, {sequence.decode()} updates; RSS {seen} MB"
    return [
        Row(f"RSS growth after the first {2 * LOOK_S:.0f} s", resident[-1] - first, "MB", GROWTH_BUDGET_MB, note=note)
    ]


def _watch(pid: int, path: str, length_s: float) -> list[float]:
    """RSS every ten seconds; everything the agent answers is asked for once in between."""
    resident, until_s = [], time.monotonic() + length_s
    while True:
        resident.append(memory_mb(pid)["Rss"])
        if time.monotonic() >= until_s:
            return resident
        http = Http(path)
        for question in ("/v1/status", "/v1/self", "/v1/pods", "/metrics", "/healthz", "/nowhere"):
            http.get(question)
        http.close()
        time.sleep(min(LOOK_S, max(0.0, until_s - time.monotonic())))
