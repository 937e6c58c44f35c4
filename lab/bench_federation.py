"""How many nodes one aggregator serves: `python -m lab.bench_federation [--quick]`.

The aggregator is a real process bound to one core; nodes speak at 1 Hz from processes on the other cores, evenly spread
over the second, each with two-resource subspaces that change every time. An answer's time runs from the moment a node
*should* have spoken, so a late load generator makes the numbers worse, never better. Columns:

cpu        of the aggregator, share of one core
nodes/core what that extrapolates to at 1 Hz
answer     p50, p99, largest [ms]; "late" is the p99 of the load generator's own lateness, contained in them
RSS        of the aggregator at the end [MB]; "conns" is the number of TCP connections (real nodes have one each)
"""

import argparse
import asyncio
import dataclasses
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from lab.http2_load import load

ROOT = Path(__file__).resolve().parents[1]
SERVER = """
import asyncio, json, sys
from carico_agent.settings import AggregatorSettings
from carico_agent.federation.server import serve
settings = AggregatorSettings(**json.loads(sys.argv[1]))
asyncio.run(serve(settings, ready=lambda address: print("ready", address, flush=True)))
"""


@dataclasses.dataclass
class Row:
    transport: str
    nodes: int
    connections: int
    answers: int = 0
    wanted: int = 0
    cpu: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    most_ms: float = 0.0
    rss_mb: float = 0.0
    idle_rss_mb: float = 0.0
    late_ms: float = 0.0
    seen: int = 0


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def speaker(node: str) -> Callable[[], bytes]:
    """What a node says: another subspace and the present time on each call."""
    from carico_agent.core.subspace import Subspace
    from carico_agent.federation import wire
    from carico_agent.federation.contribution import Contribution
    from carico_agent.federation.proto import federation_pb2 as pb

    usage = [[random.random()] * 2, [random.random(), random.random()]]
    told = Contribution(("cpu", "memory"), Subspace.of_batch(usage), 10, [0.1, 0.05], [400.0, 400.0], 3, [8.0, 16.0])
    message = pb.Contribution.FromString(wire.write_contribution(node, told, 1))

    def say() -> bytes:
        message.time_unix_nano = time.time_ns()
        message.subspace.sigma[0] = random.random()
        return message.SerializeToString()

    return say


def worker(pipe: Connection, core: int, *args: object) -> None:
    def ready() -> float:
        pipe.send("ready")
        return float(pipe.recv())

    os.sched_setaffinity(0, {core})
    pipe.send(asyncio.run(load(*args, speaker, "carico.federation.v1.Federation", ready)))  # type: ignore[arg-type]


async def measure(transport: str, nodes: int, connections: int, seconds: int) -> Row:
    from carico_agent.federation.status import fetch_status

    cores = sorted(os.sched_getaffinity(0))
    others = cores[1:] or cores
    settings = {"listen": "127.0.0.1:0", "name": "bench"}
    child = await asyncio.create_subprocess_exec(
        "taskset",
        "-c",
        str(cores[0]),
        sys.executable,
        "-c",
        SERVER,
        json.dumps(settings),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    address = (await child.stdout.readline()).decode().split()[1]
    row = Row(transport, nodes, connections, wanted=nodes * (seconds - 2), idle_rss_mb=rss_mb(child.pid))
    spawn = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    share = nodes // len(others)
    for k, core in enumerate(others):
        mine, theirs = spawn.Pipe()
        own = max(1, connections // len(others))
        args = (theirs, core, address, transport, k * share, share, own, seconds)
        workers.append(spawn.Process(target=worker, args=args))
        workers[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        await asyncio.to_thread(pipe.recv)
    start_s = time.monotonic() + 0.2
    for pipe in pipes:
        pipe.send(start_s)
    await asyncio.sleep(start_s + 2 - time.monotonic())
    before_s, began_s = used_s(child.pid), time.monotonic()
    await asyncio.sleep(start_s + seconds - 0.2 - time.monotonic())
    row.cpu = (used_s(child.pid) - before_s) / (time.monotonic() - began_s)
    row.rss_mb = rss_mb(child.pid)
    status = await fetch_status(address)
    row.seen = status["view"]["nodes"]
    found = [await asyncio.to_thread(pipe.recv) for pipe in pipes]
    took, late = (np.concatenate([one[i] for one in found]) * 1e3 for i in (0, 1))
    for one in workers:
        one.join()
    child.terminate()
    await child.wait()
    row.answers = len(took)
    row.p50_ms, row.p99_ms, row.most_ms = np.percentile(took, 50), np.percentile(took, 99), took.max()
    row.late_ms = np.percentile(late, 99)
    return row


def table(rows: list[Row]) -> str:
    head = (
        f"{'transport':9} {'nodes':>6} {'conns':>6} {'answers':>8} {'cpu':>7} {'nodes/core':>10} "
        f"{'p50 ms':>7} {'p99 ms':>7} {'max ms':>7} {'late ms':>7} {'RSS MB':>7} {'idle':>6} {'seen':>6}"
    )
    lines = [head, "-" * len(head)]
    lines += [
        f"{r.transport:9} {r.nodes:6} {r.connections:6} {r.answers:8} {r.cpu:7.1%} "
        f"{r.nodes / max(r.cpu, 0.01):10.0f} "
        f"{r.p50_ms:7.1f} {r.p99_ms:7.1f} {r.most_ms:7.1f} {r.late_ms:7.1f} "
        f"{r.rss_mb:7.1f} {r.idle_rss_mb:6.1f} {r.seen:6}"
        for r in rows
    ]
    return "\n".join(lines)


def compare_methods() -> str:
    """The exact mean and the paper's queue, both against the truth, after nodes spoke unevenly and some left."""
    from carico_agent.core.subspace import Subspace
    from carico_agent.federation.contribution import Contribution
    from carico_agent.federation.moments import Moments
    from carico_agent.federation.queue import Queue

    rng = np.random.default_rng(0)
    lines = [
        f"{'method':8} {'σ₁ error':>10} {'after 50 of 100 nodes left':>28} {'µs/update':>10} {'ms/view 10,000':>15}"
    ]
    for name, store in (("moments", Moments()), ("queue", Queue())):
        last, cost_us = {}, 0.0
        for step in range(3000):
            node = int(rng.integers(100)) if step % 2 else 7  # node 7 is chatty, and heavy
            usage = rng.random((2, 3)) * (1.0 if node == 7 else 0.3)
            last[node] = Contribution(("cpu", "memory"), Subspace.of_batch(usage))
            began_s = time.perf_counter()
            store.put(str(node), last[node])
            cost_us += (time.perf_counter() - began_s) / 3000 * 1e6
        errors = []
        for gone in ((), range(50)):
            for node in gone:
                store.drop(str(node))
                last.pop(node, None)
            exact = np.hstack([c.subspace.u * c.subspace.sigma for c in last.values()]) / np.sqrt(len(last))
            errors.append(abs(store.sums().subspace().magnitude - np.linalg.svd(exact)[1][0]))
        for i in range(10_000):
            store.put(f"x{i}", Contribution(("cpu", "memory"), Subspace.of_batch(rng.random((2, 2)))))
        began_s = time.perf_counter()
        store.sums().subspace()
        view_ms = (time.perf_counter() - began_s) * 1e3
        lines.append(f"{name:8} {errors[0]:10.1e} {errors[1]:28.1e} {cost_us:10.1f} {view_ms:15.2f}")
    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5 s each and without 10,000 nodes")
    parser.add_argument("--only", help="transport:nodes:connections, e.g. stream:5000:50")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--realtime", action="store_true", help="SCHED_RR, to measure on a machine others use (root)")
    given = parser.parse_args()
    if given.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    seconds = given.seconds or (6 if given.quick else 12)
    if given.only:
        transport, nodes, connections = given.only.split(":")
        plan = [(transport, int(nodes), int(connections))]
    else:
        sizes = (100, 1000, 5000) if given.quick else (100, 1000, 5000, 10_000)
        plan = [("stream", n, max(1, n // 100)) for n in sizes] + [("unary", n, max(1, n // 100)) for n in sizes[:3]]
        plan += [] if given.quick else [("stream", 1000, 1000), ("stream", 5000, 5000)]
    rows = []
    for transport, nodes, connections in plan:
        rows.append(await measure(transport, nodes, connections, seconds))
        print(table(rows[-1:]) if len(rows) == 1 else table(rows[-1:]).splitlines()[-1], flush=True)
    if not given.only:
        print()
        print(compare_methods())


if __name__ == "__main__":
    asyncio.run(main())
