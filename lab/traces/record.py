"""Records real series for the backtest: CPU and memory of real processes, once a second, into lab/series/recorded.npz.

    python -m lab.traces.record --seconds 290

What is recorded: 48 workloads started here (six workloads, real allocations and real computation, about one per cent of
a core each), and every other process of this machine that lives through the recording: shells, editors, containerd,
test suites and builds of whoever works here. Names of other processes are not kept.

A second stands for a minute: the methods know samples, not seconds, and two hours of 1,664 containers as in the source
cannot be had here. Real are the processes, allocators, garbage collectors and the scheduler; the time scale is not.
"""

import argparse
import gc
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parents[1] / "series" / "recorded.npz"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
VARIANTS = 8
LEAST = 130


def compute(seconds: float) -> None:
    """Real work for so much CPU time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(i * i for i in range(200))


def requests(rng: random.Random, size: float) -> None:
    """Poisson arrivals; each takes memory while it is worked on."""
    while True:
        time.sleep(rng.expovariate(1.2))
        held = bytearray(int(rng.lognormvariate(0, 0.8) * size * 2**20))
        compute(rng.expovariate(120.0))
        time.sleep(rng.uniform(0.0, 0.6))
        del held


def garbage(rng: random.Random, size: float) -> None:
    """Cyclic garbage until a collector comes round: a sawtooth."""
    gc.disable()
    made = 0
    while True:
        cycle: list[Any] = [bytearray(int(size * 2**17))]
        cycle.append(cycle)
        made += 1
        compute(0.001)
        time.sleep(rng.uniform(0.1, 0.2))
        if made % rng.randint(35, 45) == 0:
            gc.collect()


def cache(rng: random.Random, size: float) -> None:
    """Fills quickly, then slowly, with evictions."""
    held: dict[int, bytearray] = {}
    while True:
        held[rng.randint(0, int(200 * size))] = bytearray(2**15)
        if rng.random() < 0.02:
            for key in list(held)[:20]:
                del held[key]
        compute(0.0006)
        time.sleep(0.06)


def cron(rng: random.Random, size: float) -> None:
    """Idle, and every quarter of a minute or so a job."""
    while True:
        time.sleep(rng.uniform(10, 20))
        held = [bytearray(2**20) for _ in range(int(8 * size))]
        compute(0.08)
        time.sleep(rng.uniform(0.5, 2.5))
        held.clear()


def leak(rng: random.Random, size: float) -> None:
    """Never gives anything back."""
    held = []
    while True:
        held.append(bytearray(int(rng.uniform(0, 2) * size * 2**15)))
        compute(0.002)
        time.sleep(rng.uniform(0.1, 0.4))


def wave(rng: random.Random, size: float) -> None:
    """Load that comes and goes, half a minute to a minute and a half per turn."""
    turn = rng.uniform(30, 90)
    while True:
        load = 1.0 + math.sin(2 * math.pi * time.monotonic() / turn)
        held = bytearray(int(load * size * 4 * 2**20))
        compute(0.006 * load)
        time.sleep(0.45)
        del held


WORKLOADS: dict[str, Callable[[random.Random, float], None]] = {
    workload.__name__: workload for workload in (requests, garbage, cache, cron, leak, wave)
}


def read(pid: int) -> tuple[float, float] | None:
    """CPU time [s] and resident memory that is not shared [bytes] of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            cpu_ns = int(file.read().split()[0])
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError, IndexError):
        return None
    return cpu_ns / 1e9, float(max(resident - shared, 0) * PAGE_BYTES)


def start() -> dict[int, str]:
    """The workloads, each a process of its own."""
    started = {}
    for name in WORKLOADS:
        for variant in range(VARIANTS):
            command = [sys.executable, "-m", "lab.traces.record", "--workload", name, "--variant", str(variant)]
            started[subprocess.Popen(command, start_new_session=True).pid] = f"{name} {variant}"
    return started


def record(seconds: int, own: dict[int, str]) -> tuple[list[str], Any, Any]:
    """Names, CPU [cores] and memory [bytes] per second, of all processes that lived through it and ever changed."""
    rows: dict[int, list[tuple[float, float, float]]] = {}
    begun = time.monotonic()
    for tick in range(seconds + 1):
        time.sleep(max(begun + tick - time.monotonic(), 0.0))
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if tick == 0 else list(rows)
        for pid in pids:
            found = read(pid)
            if found is not None:
                rows.setdefault(pid, []).append((time.monotonic(), *found))
    names, cpu, memory = [], [], []
    for pid, kept in rows.items():
        table = np.array(kept)
        if len(table) < seconds + 1 or pid == os.getpid():
            continue
        rate = np.diff(table[:, 1]) / np.diff(table[:, 0])
        if np.ptp(rate) > 1e-4 or np.ptp(table[:, 2]) > 0:
            names.append(own.get(pid, "other"))
            cpu.append(rate)
            memory.append(table[1:, 2])
    return names, np.array(cpu, dtype=np.float32), np.array(memory, dtype=np.float32)


def load(path: Path = RECORDED) -> dict[str, Any]:
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.traces.record", description="record real series for the backtest"
    )
    parser.add_argument("--seconds", type=int, default=290)
    parser.add_argument("--workload", choices=tuple(WORKLOADS), help=argparse.SUPPRESS)
    parser.add_argument("--variant", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.workload:
        WORKLOADS[given.workload](random.Random(given.variant), 0.5 + given.variant / 2)
    if given.seconds < LEAST:
        print(f"lab.traces.record: at least {LEAST} seconds", file=sys.stderr)
        return 2
    own = start()
    try:
        names, cpu, memory = record(given.seconds, own)
    finally:
        for pid in own:
            os.kill(pid, 9)
    RECORDED.parent.mkdir(exist_ok=True)
    np.savez_compressed(RECORDED, names=np.array(names), cpu=cpu, memory=memory)
    print(f"{RECORDED}: {len(names)} processes, {given.seconds} seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
