"""What the extender costs: `python -m lab.bench.extender [answers] [policies] [throughput] [--write]
[--nodes N] [--pods N] [--rounds N]`.

answers: filter + prioritize over HTTP with 5,000 nodes, as kube-scheduler asks (nodeCacheCapable), p50 and p99.
policies: the same for every policy, with nodes that publish slots and with nodes that also publish their room.
throughput: Pods per second through a real kube-scheduler, without and with the extender (lab/bench/throughput.py).
--write puts the tables, and under which conditions they were made, into lab/results/extender.md; what was not asked for
stays there as it was.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from math import nan
from pathlib import Path
from typing import Any

from carico_agent.app.extender import ExtenderServer
from carico_agent.kube.kinds import KindOnNode, NodeKinds, encode
from carico_agent.kube.pods import facts
from carico_agent.net.http import HttpServer
from carico_agent.schedule import policies
from carico_agent.schedule.cluster import read_node
from carico_agent.schedule.placement.ledger import Ledger
from carico_agent.settings import Settings, override
from lab.bench import throughput
from lab.bench.extender_nodes import name, node_object
from lab.support import TREE
from lab.support.waiting import free_port, wait_for

RESULTS = TREE / "lab/results/extender.md"
Row = tuple[str, ...]

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"carico.dev/kind": "bench"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}] * 2},
}


KINDS_SHOWN = 16
"""As many kinds as an annotation holds; the Pod that is asked about is of the last of them."""


def kinds_annotation(room_cores: float) -> str:
    """A node that measures its Pods: its room and what 16 kinds take."""
    kinds = {f"default/app-{i}": KindOnNode((0.2 + 0.1 * i, 1e8, nan, nan), pods=0) for i in range(KINDS_SHOWN - 1)}
    kinds["default/bench"] = KindOnNode((1.0, 2e8, nan, nan), pods=3)
    return encode(NodeKinds((room_cores, 8e9, nan, nan), (1.0, 2e8, nan, nan), kinds))


# ---- answers


@dataclass(frozen=True)
class Case:
    """What is asked of an extender."""

    full_ratio: float = 0.5
    unprofiled: bool = False
    policy: str = "pod-capacity"
    room: bool = False
    """Nodes publish their room and what kinds take of it."""


def serve(count: int, port: int, case: Case) -> None:
    """An extender with a cluster that comes from no API server."""

    async def life() -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "x"}}],
                    "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
                },
                file,
            )
            file.flush()
            settings = override(Settings(), "kubernetes", kubeconfig=file.name)
            server = ExtenderServer(override(settings, "extender", listen=f"127.0.0.1:{port}", policy=case.policy))
        cluster = server.cluster
        cluster.ledger = Ledger(profile_s=3600.0 if case.unprofiled else 0.0)
        full = round(case.full_ratio * count)
        notes = [kinds_annotation(room) if case.room else "" for room in (0.5, 5.0)]
        cluster.nodes_listed([read_node(node_object(name(n), 8, notes[n >= full])) for n in range(count)])
        pods = [
            facts(
                {
                    "metadata": {"uid": f"{n}-{i}", "namespace": "default", "labels": {"carico.dev/kind": "bench"}},
                    "spec": {"nodeName": name(n)},
                    "status": {"phase": "Running"},
                }
            )
            for n in range(count)
            for i in range(3 if case.room or n >= full else 8)
        ]
        cluster.pods_listed(pods)
        for watch in (cluster._nodes_watch, cluster._pods_watch, cluster._leases_watch):
            if watch is not None:
                watch.synced.set()
        api = HttpServer(server.routes())
        await api.listen("127.0.0.1", port)
        gc.collect()
        gc.freeze()
        await server.extender.expire_loop()

    asyncio.run(life())


def ask(connection: HTTPConnection, path: str, body: bytes) -> tuple[Any, float]:
    """The answer, and the time until its last byte was here [ms]; decoding it is kube-scheduler's business."""
    started_s = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    took_s = time.perf_counter() - started_s
    return json.loads(answer), 1e3 * took_s


ANSWERS = (
    "nodes",
    "full",
    "Pods",
    "filter p50 [ms]",
    "filter + prioritize p50 [ms]",
    "p99 [ms]",
    "most [ms]",
    "CPU p50 [ms]",
    "CPU p99 [ms]",
    "pass",
)


def answers(count: int = 5000) -> list[Row]:
    steady = [Case(0.0), Case(0.5), Case(0.95), Case(0.5, unprofiled=True)]
    return [
        (str(count), f"{case.full_ratio:.0%}", _about(case), *_asked(case, count))
        for case in [*steady, Case(0.0, room=True), Case(0.5, room=True)]
    ]


def _about(case: Case) -> str:
    return "just started" if case.unprofiled else f"{KINDS_SHOWN} kinds per node" if case.room else "steady"


POLICIES = ("policy", "nodes publish", *ANSWERS[3:])
"""Beside p99, which waits for a CPU that others use, the CPU time of the answers themselves."""


def each_policy(count: int = 5000) -> list[Row]:
    cases = [Case(policy=policy, room=room) for policy in policies.find() for room in (False, True)]
    return [(case.policy, "slots, room" if case.room else "slots", *_asked(case, count)) for case in cases]


def _asked(case: Case, count: int, rounds: int = 300) -> Row:
    port = free_port()
    code = f"from lab.bench.extender import Case, serve; serve({count}, {port}, {case!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=TREE)
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        wait_for(partial(_up, port), "the extender listens")
        names = [name(n) for n in range(count)]
        request = json.dumps({"Pod": POD, "Nodes": None, "NodeNames": names}).encode()
        both, alone, spent = [], [], []
        for _ in range(rounds):
            before_ms = _ran_ms(process.pid)
            filtered, one_ms = ask(connection, "/filter", request)
            passed = filtered["NodeNames"]
            second = json.dumps({"Pod": POD, "Nodes": None, "NodeNames": passed}).encode()
            scored, two_ms = ask(connection, "/prioritize", second)
            assert len(scored) == len(passed)
            both.append(one_ms + two_ms)
            alone.append(one_ms)
            spent.append(_ran_ms(process.pid) - before_ms)
        return (
            f"{statistics.median(alone):.1f}",
            f"{statistics.median(both):.1f}",
            f"{_p99(both):.1f}",
            f"{max(both):.1f}",
            f"{statistics.median(spent):.1f}",
            f"{_p99(spent):.1f}",
            str(len(passed)),
        )
    finally:
        process.terminate()
        process.wait()


def _ran_ms(pid: int) -> float:
    """For how long its main thread, which answers, has had a CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _up(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


# ---- the report


def conditions() -> str:
    cpu = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, load average before: {load}."
    )


def table(heads: Row, rows: list[Row]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def stolen_ticks() -> tuple[int, int]:
    """CPU time that the hypervisor gave to others, and all time, since boot: a virtual machine is never quite alone."""
    ticks = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="answers|policies|throughput", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.relative_to(TREE)}")
    size = parser.add_argument_group("throughput")
    size.add_argument("--nodes", type=int, default=1000)
    size.add_argument("--pods", type=int, default=1000)
    size.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(PARTS)}")
    for part in given.parts or PARTS:
        before, about = stolen_ticks(), conditions()
        title, text, heads, measure = PARTS[part]
        rows = measure(given)
        stolen, whole = (now - then for now, then in zip(stolen_ticks(), before, strict=True))
        about = f"{about} The hypervisor gave {stolen / whole:.0%} of this machine's CPU time to others meanwhile."
        section = f"{text}\n\n{about}\n\n{table(heads, rows)}"
        print(f"## {title}\n\n{section}", flush=True)
        if given.write:
            RESULTS.write_text(with_section(RESULTS.read_text() if RESULTS.exists() else "", title, section))


PARTS: dict[str, tuple[str, str, Row, Callable[[argparse.Namespace], list[Row]]]] = {
    "answers": (
        "Answers",
        "Over HTTP on loopback, until the last byte is there; CPU is the extender's, for both verbs.",
        ANSWERS,
        lambda given: answers(),
    ),
    "policies": (
        "Policies",
        "The same for every policy: 5,000 nodes, half of them full by slots. Goal: p99 of filter + prioritize ≤ 15 ms. "
        "On a machine that others use, p99 is also their doing; CPU is the extender's alone.",
        POLICIES,
        lambda given: each_policy(),
    ),
    "throughput": (
        "kube-scheduler's throughput",
        "1,000 Pods on 1,000 nodes (unless asked otherwise), kube-scheduler 1.20 (or that of KUBEBUILDER_ASSETS) with "
        "qps 500 and burst 1000, control plane and extender on the same machine; medians of three "
        "rounds, mean time of an answer.",
        throughput.HEADS,
        lambda given: throughput.throughput(given.nodes, given.pods, given.rounds),
    ),
}


def with_section(old: str, title: str, section: str) -> str:
    """The report with this section renewed; the others stay, in the order of PARTS.

    >>> made = with_section(with_section("", "Policies", "a"), "Answers", "b")
    >>> [line for line in with_section(made, "Policies", "c").splitlines() if line[:2] in ("##", "a", "b", "c")]
    ['## Answers', 'b', '## Policies', 'c']
    """
    found = dict(part.split("\n", 1) for part in old.split("\n## ")[1:])
    found[title] = f"\n{section}\n"
    order = [known for known, *_ in PARTS.values() if known in found]
    body = "\n\n".join(f"## {known}\n\n{found[known].strip()}" for known in order)
    head = (
        "# What the extender costs\n\n`python -m lab.bench.extender [PART] --write` makes this file, a part at a time."
    )
    return f"{head}\n\n{body}\n"


if __name__ == "__main__":
    main()
