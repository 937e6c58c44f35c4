"""filter + prioritize over HTTP with 5,000 nodes, as kube-scheduler asks (nodeCacheCapable): p50 and p99."""

import json
import statistics
import subprocess
import sys
import time
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from carico_agent.extender import policies
from lab.bench.extender_nodes import name
from lab.bench.extender_sample import WORKLOADS_SHOWN, Case
from lab.support import TREE
from lab.support.waiting import free_port, wait_for

Row = tuple[str, ...]
POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"carico.dev/workload": "bench"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}] * 2},
}


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
    return "just started" if case.unprofiled else f"{WORKLOADS_SHOWN} workloads per node" if case.room else "steady"


POLICIES = ("policy", "nodes publish", *ANSWERS[3:])
"""Beside p99, which waits for a CPU that others use, the CPU time of the answers themselves."""


def each_policy(count: int = 5000) -> list[Row]:
    cases = [Case(policy=policy, room=room) for policy in policies.find() for room in (False, True)]
    return [(case.policy, "slots, room" if case.room else "slots", *_asked(case, count)) for case in cases]


def _asked(case: Case, count: int, rounds: int = 300) -> Row:
    port = free_port()
    code = f"from lab.bench.extender_sample import Case, serve; serve({count}, {port}, {case!r})"
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
