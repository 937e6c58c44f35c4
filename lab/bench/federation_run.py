"""One run of the federation's benchmark: a real aggregator, so many nodes, and what was measured.

Where there are two CPUs or more, the aggregator has the first one for itself and the nodes have the others: their work
does not make it slower, and its share of a core is what it would be on a machine of its own.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from carico_agent.federation.status import fetch_status
from carico_agent.lib.net.tls import TlsFiles
from lab.bench.federation_certificates import certificates
from lab.bench.federation_load import LoadResult, load_process
from lab.bench.federation_nodes import plans
from lab.bench.process import cpu_s
from lab.support import TREE

SERVER = """
import asyncio, json, os, sys
os.sched_setaffinity(0, json.loads(sys.argv[2]))
from carico_agent.federation.daemon import AggregatorDaemon
from carico_agent.settings import AggregatorSettings
daemon = AggregatorDaemon(AggregatorSettings(**json.loads(sys.argv[1])))
asyncio.run(daemon.run(lambda address: print("ready", address, flush=True)))
"""
NODES_PER_PROCESS = 2500
WARM_S = 8
BACK_S = 120.0
ON_TIME_MS = 5.0
"""A node that sends within this time of when it should is on time."""


@dataclass
class LoadRow:
    nodes: int
    sent_per_s: float = 0.0
    pushed_per_s: float = 0.0
    cpu: float = 0.0
    kb_per_node: float = 0.0
    idle_mb: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    on_time_ms: float = 0.0
    late_ms: float = 0.0
    load_cpu: float = 0.0
    unanswered: int = 0
    in_view: int = 0
    back_s: float = float("nan")

    def line(self) -> str:
        return (
            f"| {self.nodes} | {self.sent_per_s:.0f} | {self.pushed_per_s:.0f} | {self.cpu:.0%} "
            f"| {self.cpu / max(self.sent_per_s + self.pushed_per_s, 1) * 1e6:.0f} | {self.kb_per_node:.1f} "
            f"| {self.idle_mb:.0f} | {self.p50_ms:.1f} | {self.p99_ms:.1f} | {self.on_time_ms:.1f} "
            f"| {self.late_ms:.1f} | {self.load_cpu:.0%} | {self.unanswered} | {self.in_view} | {self.back_s:.1f} |"
        )


COLUMNS = (
    *("nodes", "answers/s", "pushes/s", "cpu", "µs each", "kB/node", "idle MB"),
    *("p50 ms", "p99 ms", "on time ms", "late ms", "load cpu", "lost", "in view", "back s"),
)
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def rss_kb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e3


def shared_cpus() -> tuple[set[int], set[int]]:
    """The CPUs of the aggregator and those of the nodes: apart where there is more than one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


class AggregatorProcess:
    """The aggregator, started, killed and started again at the same address."""

    def __init__(self, folder: Path, cpus: set[int]) -> None:
        self.tls = TlsFiles(str(folder / "aggregator.pem"), str(folder / "node.key"), str(folder / "ca.pem"))
        self._settings = {
            "listen": "127.0.0.1:0",
            "name": "bench",
            "tls_ca": self.tls.ca,
            "tls_cert": self.tls.cert,
            "tls_key": self.tls.key,
        }
        self._cpus = cpus
        self.address = ""

    async def start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", SERVER, json.dumps(self._settings), json.dumps(sorted(self._cpus))),
            cwd=TREE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._child.stdout is not None
        self.address = (await self._child.stdout.readline()).decode().split()[1]
        self._settings["listen"] = self.address

    @property
    def pid(self) -> int:
        return self._child.pid

    async def nodes_in_view(self, timeout_s: float) -> int:
        return int((await fetch_status(self.address, self.tls, timeout_s=timeout_s))["view"]["nodes"])

    async def kill(self) -> None:
        self._child.kill()
        await self._child.wait()


class LoadProcesses:
    """All nodes, in as few processes as hold them."""

    def __init__(self, address: str, folder: Path, nodes: int, seconds: int, cpus: set[int]) -> None:
        spawn, made = multiprocessing.get_context("spawn"), plans(nodes, seconds)
        self._pipes, self._workers = [], []
        for first in range(0, nodes, NODES_PER_PROCESS):
            mine, theirs = spawn.Pipe()
            given = (theirs, address, str(folder), first, nodes, made[first : first + NODES_PER_PROCESS], cpus)
            self._workers.append(spawn.Process(target=load_process, args=given))
            self._workers[-1].start()
            self._pipes.append(mine)

    async def connected(self) -> None:
        for pipe in self._pipes:
            await asyncio.to_thread(pipe.recv)

    def send(self, seconds: int, start_s: float, count_from: int) -> None:
        for pipe in self._pipes:
            pipe.send((seconds, start_s, count_from))

    async def results(self) -> list[LoadResult]:
        return [await asyncio.to_thread(pipe.recv) for pipe in self._pipes]

    async def stop(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for one in self._workers:
            await asyncio.to_thread(one.join, 60)
            if one.is_alive():
                one.kill()


async def measure(nodes: int, seconds: int) -> LoadRow:
    os.environ["GRPC_VERBOSITY"] = "NONE"  # else every failed handshake is logged
    folder, (its_cpus, load_cpus) = certificates(nodes), shared_cpus()
    server = AggregatorProcess(folder, its_cpus)
    await server.start()
    await asyncio.sleep(1.0)
    row, idle_kb = LoadRow(nodes), rss_kb(server.pid)
    load = LoadProcesses(server.address, folder, nodes, WARM_S + seconds, load_cpus)
    try:
        await load.connected()
        start_s = time.monotonic() + 0.5
        load.send(WARM_S + seconds, start_s, WARM_S)
        await asyncio.sleep(start_s + WARM_S - time.monotonic())
        before_s, began_s = cpu_s(server.pid), time.monotonic()
        await asyncio.sleep(start_s + WARM_S + seconds - time.monotonic())
        row.cpu = (cpu_s(server.pid) - before_s) / (time.monotonic() - began_s)
        row.kb_per_node, row.idle_mb = (rss_kb(server.pid) - idle_kb) / nodes, idle_kb / 1e3
        _fill(row, await load.results(), seconds)
        row.in_view = await server.nodes_in_view(timeout_s=20.0)
        row.back_s = await _restart(server, nodes)
    finally:
        await load.stop()
        await server.kill()
    return row


def _fill(row: LoadRow, found: list[LoadResult], seconds: int) -> None:
    answers, late = (np.concatenate([getattr(one, part) for one in found]) * 1e3 for part in ("answers_s", "late_s"))
    row.p50_ms, row.p99_ms = (float(np.percentile(answers, percent)) for percent in (50, 99))
    row.late_ms = float(np.percentile(late, 99))
    row.on_time_ms = float(np.percentile(answers[late <= ON_TIME_MS], 99))
    row.sent_per_s = sum(one.sent for one in found) / seconds
    row.pushed_per_s = sum(one.pushed for one in found) / seconds
    row.load_cpu = sum(one.cpu_s for one in found) / seconds
    row.unanswered = sum(one.unanswered for one in found)


async def _restart(server: AggregatorProcess, nodes: int) -> float:
    """Kill the aggregator and start it again; how long until all nodes are in its view [s]. NaN: not within BACK_S."""
    await server.kill()
    await server.start()
    began_s = time.monotonic()
    while time.monotonic() - began_s < BACK_S:
        try:
            if await server.nodes_in_view(timeout_s=5.0) == nodes:
                return time.monotonic() - began_s
        except ConnectionError:
            pass  # busy with handshakes
        await asyncio.sleep(0.5)
    return float("nan")
