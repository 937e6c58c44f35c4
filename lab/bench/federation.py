"""How many nodes one aggregator serves: `python -m lab.bench.federation [--nodes N …] [--write]`.

The aggregator is a real process. Every node has its own mTLS connection and certificate, its contributions are those
of a real model under load that wanders, and it sends when the agent would: on change, and on a heartbeat. Columns:

cpu      of the aggregator, share of one core, over the counted seconds
kB/node  resident memory above that of the idle aggregator, per node
answer   from when a node should have sent to its answer: p50, p99 [ms]; "late" is the p99 of the load generator's own
         lateness, which is part of it
back     after the aggregator was killed and started again: until all nodes are in its view [s]

`--estimate` is what exchanging on change costs a node's estimate, `--methods` compares the exact mean with the
queue of pairwise merges.
"""

import argparse
import asyncio
import dataclasses
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "results" / "federation.md"
SERVER = """
import asyncio, json, os, sys
os.environ["GRPC_VERBOSITY"] = "NONE"
from carico_agent.app.aggregator import AggregatorDaemon
from carico_agent.settings import AggregatorSettings
daemon = AggregatorDaemon(AggregatorSettings(**json.loads(sys.argv[1])))
asyncio.run(daemon.run(lambda address: print("ready", address, flush=True)))
"""
TARGETS = "targets at 5,000 nodes: cpu ≤ 60 %, ≤ 110 kB/node, p99 ≤ 50 ms, estimate ≤ 0.05 Pods"
SHARED = """Load generator and aggregator share the cores: where "late" grows, the generator
itself has too little of them, and the times of answers are its own."""
NODES_PER_PROCESS = 1250
WARM_S = 8


@dataclasses.dataclass
class LoadRow:
    nodes: int
    sent_per_s: float = 0.0
    pushed_per_s: float = 0.0
    cpu: float = 0.0
    kb_per_node: float = 0.0
    idle_mb: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    late_ms: float = 0.0
    unanswered: int = 0
    in_view: int = 0
    back_s: float = float("nan")

    def line(self) -> str:
        return (
            f"| {self.nodes} | {self.sent_per_s:.0f} | {self.pushed_per_s:.0f} | {self.cpu:.0%} "
            f"| {self.cpu / max(self.sent_per_s + self.pushed_per_s, 1) * 1e6:.0f} | {self.kb_per_node:.0f} "
            f"| {self.idle_mb:.0f} | {self.p50_ms:.1f} | {self.p99_ms:.1f} | {self.late_ms:.1f} "
            f"| {self.unanswered} | {self.in_view} | {self.back_s:.1f} |"
        )


COLUMNS = (
    *("nodes", "answers/s", "pushes/s", "cpu", "µs each", "kB/node", "idle MB"),
    *("p50 ms", "p99 ms", "late ms", "lost", "in view", "back s"),
)
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e3


def certificates(nodes: int) -> Path:
    """A folder with an authority, the aggregator's certificate and one per node; made once and kept in the cache."""
    base = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache" / "carico")
    folder = base / "bench-federation"
    fresh = folder / "names.ext"  # written last
    if not fresh.exists() or time.time() - fresh.stat().st_mtime > 20 * 86_400:
        for old in folder.glob("*"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        _openssl(folder, "req", "-x509", *key, "-days", "30", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
        _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "node.key")
        _openssl(folder, "ec", "-in", "node.key", "-pubout", "-out", "node.pub")
        (folder / "names.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("aggregator", *(f"node-{i:05d}" for i in range(nodes))):
        if not (folder / f"{name}.pem").exists():
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30", "-extfile", "names.ext")
            named = ("-subj", f"/CN={name}", "-force_pubkey", "node.pub", "-out", f"{name}.pem")
            _openssl(folder, "x509", "-new", *named, *signed)
    return folder


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def load_process(pipe: Connection, address: str, folder: str, first: int, count: int, total: int) -> None:
    """Connect; then for each ("send", seconds, start, count_from) send and report; None ends it."""
    os.environ["GRPC_VERBOSITY"] = "NONE"
    from lab.bench.federation_load import LoadResult, NodeConnections
    from lab.bench.federation_nodes import players

    async def work() -> None:
        fleet = NodeConnections(address, Path(folder), first, total)
        await fleet.connect(players(count))
        pipe.send("connected")
        while (order := await asyncio.to_thread(pipe.recv)) is not None:
            fleet.found = LoadResult()
            await fleet.send(*order)
            pipe.send(fleet.found)
        await fleet.stop()

    asyncio.run(work())


class Server:
    """The aggregator's process."""

    def __init__(self, folder: Path) -> None:
        self._settings = {
            "listen": "127.0.0.1:0",
            "name": "bench",
            "tls_ca": str(folder / "ca.pem"),
            "tls_cert": str(folder / "aggregator.pem"),
            "tls_key": str(folder / "node.key"),
        }
        self.address = ""

    async def start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, json.dumps(self._settings), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert self._child.stdout is not None
        self.address = (await self._child.stdout.readline()).decode().split()[1]
        self._settings["listen"] = self.address

    @property
    def pid(self) -> int:
        return self._child.pid

    async def kill(self) -> None:
        self._child.kill()
        await self._child.wait()


async def measure(nodes: int, seconds: int) -> LoadRow:
    from carico_agent.federation.status import fetch_status
    from carico_agent.net.tls import TlsFiles

    folder = certificates(nodes)
    tls = TlsFiles(str(folder / "aggregator.pem"), str(folder / "node.key"), str(folder / "ca.pem"))
    server = Server(folder)
    await server.start()
    await asyncio.sleep(1.0)
    row, idle_kb = LoadRow(nodes), rss_kb(server.pid)
    spawn, pipes, workers = multiprocessing.get_context("spawn"), [], []
    for first in range(0, nodes, NODES_PER_PROCESS):
        mine, theirs = spawn.Pipe()
        count = min(NODES_PER_PROCESS, nodes - first)
        workers.append(
            spawn.Process(target=load_process, args=(theirs, server.address, str(folder), first, count, nodes))
        )
        workers[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        await asyncio.to_thread(pipe.recv)
    start_s = time.monotonic() + 0.5
    for pipe in pipes:
        pipe.send((WARM_S + seconds, start_s, WARM_S))
    await asyncio.sleep(start_s + WARM_S - time.monotonic())
    before_s, began_s = used_s(server.pid), time.monotonic()
    await asyncio.sleep(start_s + WARM_S + seconds - time.monotonic())
    row.cpu = (used_s(server.pid) - before_s) / (time.monotonic() - began_s)
    row.kb_per_node, row.idle_mb = (rss_kb(server.pid) - idle_kb) / nodes, idle_kb / 1e3
    found = [await asyncio.to_thread(pipe.recv) for pipe in pipes]
    row.in_view = (await fetch_status(server.address, tls, timeout_s=20.0))["view"]["nodes"]
    answers, late = (np.concatenate([getattr(one, part) for one in found]) * 1e3 for part in ("answers_s", "late_s"))
    row.p50_ms, row.p99_ms, row.late_ms = (
        float(np.percentile(*of)) for of in ((answers, 50), (answers, 99), (late, 99))
    )
    row.sent_per_s, row.pushed_per_s = (
        sum(getattr(one, part) for one in found) / seconds for part in ("sent", "pushed")
    )
    row.unanswered = sum(one.unanswered for one in found)
    row.back_s = await _restart(server, tls, nodes)
    for pipe in pipes:
        pipe.send(None)
    for one in workers:
        await asyncio.to_thread(one.join, 60)
        if one.is_alive():
            one.kill()
    await server.kill()
    return row


async def _restart(server: Server, tls: object, nodes: int) -> float:
    """Kill the aggregator and start it again; how long until all nodes are in its view [s]. NaN: not within 120 s."""
    from carico_agent.federation.status import fetch_status

    await server.kill()
    await server.start()
    began_s = time.monotonic()
    while time.monotonic() - began_s < 120:
        try:
            if (await fetch_status(server.address, tls, timeout_s=5.0))["view"]["nodes"] == nodes:  # type: ignore[arg-type]
                return time.monotonic() - began_s
        except ConnectionError:
            pass  # busy with handshakes
        await asyncio.sleep(0.5)
    return float("nan")


def compare_methods() -> str:
    """The exact mean and the queue of pairwise merges, both against the truth, after nodes sent unevenly and left."""
    from carico_agent.core.subspace import Subspace
    from carico_agent.federation.contribution import Contribution
    from carico_agent.federation.moments import Moments
    from carico_agent.federation.queue import Queue

    rng = np.random.default_rng(0)
    lines = [
        "| method | σ₁ error | after 50 of 100 nodes left | µs/update | ms/view of 10,000 |",
        "|---|---|---|---|---|",
    ]
    for name, store in (("moments", Moments()), ("queue", Queue())):
        last, cost_us = {}, 0.0
        for step in range(3000):
            node = int(rng.integers(100)) if step % 2 else 7  # node 7 sends often, and is heavy
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
        lines.append(f"| {name} | {errors[0]:.1e} | {errors[1]:.1e} | {cost_us:.1f} | {view_ms:.2f} |")
    return "\n".join(lines)


def estimate_difference(nodes: int, seconds: int) -> str:
    from lab.bench.federation_estimate import compare

    found = compare(nodes, seconds)
    return (
        f"Estimate, {found.nodes} nodes over {found.seconds} s, one in five never ran a Pod: on change against every "
        f"second differs by {found.most_pods:.3f} Pods at most, {found.p99_pods:.3f} at p99, "
        f"{found.mean_pods:.4f} in the mean; "
        f"{found.exchanges_per_s:.2f} exchanges and {found.pushes_per_s:.2f} pushed views per node and second."
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[600], help="numbers of nodes, one run each")
    parser.add_argument("--seconds", type=int, default=20, help="counted seconds per run")
    parser.add_argument("--estimate", action="store_true", help="only what exchanging on change costs the estimate")
    parser.add_argument("--methods", action="store_true", help="only the comparison of methods")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parts = [
        f"# Federation: one aggregator, one mTLS connection per node\n\n`python -m lab.bench.federation`; {TARGETS}."
    ]
    if not (given.estimate or given.methods):
        print(HEAD, flush=True)
        rows = []
        for nodes in given.nodes:
            rows.append((await measure(nodes, given.seconds)).line())
            print(rows[-1], flush=True)
        load = f"load average {os.getloadavg()[0]:.1f} at the end"
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {load}"
        parts.append("\n".join([HEAD, *rows]) + f"\n\nMeasured on {machine}. {SHARED}")
    if given.estimate or not given.methods:
        parts.append(estimate_difference(40, 180))
        print(parts[-1], flush=True)
    if given.methods or not given.estimate:
        parts.append(compare_methods())
        print(parts[-1], flush=True)
    if given.write:
        RESULTS.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
