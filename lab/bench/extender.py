"""What the extender costs: `python -m lab.bench.extender [answers] [throughput] [--write]`.

answers: filter + prioritize over HTTP with 5,000 nodes, as kube-scheduler asks (nodeCacheCapable), p50 and p99.
throughput: Pods per second through a real kube-scheduler on 1,000 nodes, without and with the extender, between the
first and the last binding by the API server's own clock. Needs the control plane of the tests (tests/kube/build.sh).
--write puts the tables, and under which conditions they were made, into lab/results/extender.md.
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
from concurrent.futures import ThreadPoolExecutor
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
from carico_agent.schedule.cluster import read_node
from carico_agent.schedule.placement.ledger import Ledger
from carico_agent.settings import Settings, override
from lab.support import TREE
from lab.support.control_plane import HOOKS, Plane, free_port, wait_for
from lab.support.extender_process import ExtenderProcess
from lab.support.webhook import Webhook

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


def node_object(name: str, slots: int, kinds: str = "") -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status = json.dumps({"time": now, "ttl_s": 3000, "places": slots, "pods": 0, "mode": "measured"})
    have = {"cpu": "4", "memory": "16Gi", "pods": "110", "carico.dev/pods": str(slots)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {
            "capacity": have,
            "allocatable": have,
            "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}],
        },
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"carico.dev/slots": str(slots), "carico.dev/status": status}
            | ({"carico.dev/kinds": kinds} if kinds else {}),
        },
    }


# ---- answers


def serve(count: int, port: int, full_ratio: float, unprofiled: bool, kinds: bool) -> None:
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
            server = ExtenderServer(override(settings, "extender", listen=f"127.0.0.1:{port}"))
        cluster = server.cluster
        cluster.ledger = Ledger(profile_s=3600.0 if unprofiled else 0.0)
        full = round(full_ratio * count)
        notes = [kinds_annotation(room) if kinds else "" for room in (0.5, 5.0)]
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
            for i in range(3 if kinds or n >= full else 8)
        ]
        cluster.pods_listed(pods)
        cluster._nodes_watch.synced.set()
        cluster._pods_watch.synced.set()
        api = HttpServer(server.routes())
        await api.listen("127.0.0.1", port)
        gc.collect()
        gc.freeze()
        await server.extender.expire_loop()

    asyncio.run(life())


def name(number: int) -> str:
    return f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal"


def ask(connection: HTTPConnection, path: str, body: bytes) -> tuple[Any, float]:
    """The answer, and the time until its last byte was here [ms]; decoding it is kube-scheduler's business."""
    started_s = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    took_s = time.perf_counter() - started_s
    return json.loads(answer), 1e3 * took_s


CLUSTERS = (
    (0.0, False, False),
    (0.5, False, False),
    (0.95, False, False),
    (0.5, True, False),
    (0.0, False, True),
    (0.5, False, True),
)
"""How full, whether its Pods have just started, and whether nodes publish room and kinds."""

ANSWERS = (
    "nodes",
    "full",
    "Pods",
    "filter p50 [ms]",
    "filter + prioritize p50 [ms]",
    "p99 [ms]",
    "most [ms]",
    "CPU [ms]",
    "pass",
)


def answers(count: int = 5000, rounds: int = 300) -> list[Row]:
    rows = []
    for full_ratio, unprofiled, kinds in CLUSTERS:
        port = free_port()
        code = f"from lab.bench.extender import serve; serve({count}, {port}, {full_ratio}, {unprofiled}, {kinds})"
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(command, cwd=TREE)
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            wait_for(partial(_up, port), "the extender listens")
            names = [name(n) for n in range(count)]
            request = json.dumps({"Pod": POD, "Nodes": None, "NodeNames": names}).encode()
            both, alone = [], []
            before_s = _cpu_s(process.pid)
            for _ in range(rounds):
                filtered, one_ms = ask(connection, "/filter", request)
                passed = filtered["NodeNames"]
                second = json.dumps({"Pod": POD, "Nodes": None, "NodeNames": passed}).encode()
                scored, two_ms = ask(connection, "/prioritize", second)
                assert len(scored) == len(passed)
                both.append(one_ms + two_ms)
                alone.append(one_ms)
            cpu_ms = 1e3 * (_cpu_s(process.pid) - before_s) / rounds
            kind = "just started" if unprofiled else f"{KINDS_SHOWN} kinds per node" if kinds else "steady"
            rows.append(
                (
                    str(count),
                    f"{full_ratio:.0%}",
                    kind,
                    f"{statistics.median(alone):.1f}",
                    f"{statistics.median(both):.1f}",
                    f"{_p99(both):.1f}",
                    f"{max(both):.1f}",
                    f"{cpu_ms:.1f}",
                    str(len(passed)),
                )
            )
        finally:
            process.terminate()
            process.wait()
    return rows


def _cpu_s(pid: int) -> float:
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")


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


# ---- throughput

THROUGHPUT = ("extender", "Pods/s", "each run", "filter [ms]", "prioritize [ms]", "bind [ms]", "admit [ms]")
CASES = {
    "none": (),
    "asked by the API server before each binding": ("admit",),
    "filter, prioritize": ("filter", "prioritize"),
    "filter, prioritize, bind": ("filter", "prioritize", "bind"),
}
VERBS = ("filter", "prioritize", "bind", "admit")


def throughput(nodes: int = 1000, pods: int = 1000, runs: int = 3) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        plane = Plane(Path(folder))
        try:
            plane.start()
            plane.apply(TREE / "deploy/base/00-namespace.yaml", TREE / "deploy/base/10-rbac.yaml")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: plane.admin.post("/api/v1/nodes", node_object(name(n), 50)), range(nodes)))
            for title, verbs in CASES.items():
                found = [_run(plane, pods, verbs, Path(folder)) for _ in range(runs)]
                rates, means = [rate for rate, _ in found], [mean for _, mean in found]
                rows.append(
                    (
                        title,
                        f"{statistics.median(rates):.0f}",
                        " ".join(f"{rate:.0f}" for rate in rates),
                        *(_middle([mean[verb] for mean in means if verb in mean]) for verb in VERBS),
                    )
                )
        finally:
            plane.stop()
    return rows


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else ""


def _run(plane: Plane, pods: int, verbs: tuple[str, ...], folder: Path) -> tuple[float, dict[str, float]]:
    """Pods wait until the scheduler starts. The rate, and what an answer of each verb took [ms]."""
    asked: ExtenderProcess | Webhook | None = None
    config = {}
    if "filter" in verbs:
        asked = ExtenderProcess(folder, plane.kubeconfig("extender-token")).ready()
        config = {
            "extenders": [
                {
                    "urlPrefix": asked.url,
                    "weight": 5,
                    "nodeCacheCapable": True,
                    **{f"{verb}Verb": verb for verb in verbs},
                }
            ]
        }
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: plane.admin.add_pod(f"bench-{n}", int("admit" in verbs)), range(pods)))
    if "admit" in verbs:
        asked = Webhook(plane, folder)
    before = len(plane.audit())
    plane.start_scheduler(config)
    try:
        wait_for(lambda: len(_bindings(plane, before)) >= pods, "all Pods are bound", 900, every_s=1.0)
        times_s = sorted(_bindings(plane, before))
        return (pods - 1) / (times_s[-1] - times_s[0]), _means(asked.metrics()) if asked is not None else {}
    finally:
        plane.stop_scheduler()
        if asked is not None:
            asked.stop()
        plane.admin.delete(HOOKS)
        plane.admin.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        wait_for(lambda: not plane.admin.pods(), "the Pods are gone", 300)


def _bindings(plane: Plane, before: int) -> list[float]:
    """When the server received each binding [s since 1970]."""
    bindings = [entry for entry in plane.audit()[before:] if entry["objectRef"].get("subresource") == "binding"]
    return [
        datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        for entry in bindings
        if entry["responseStatus"]["code"] < 300
    ]


def _means(text: str) -> dict[str, float]:
    """Mean time of each verb that was asked for [ms], from the extender's own metrics."""
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    parts = {
        verb: [float(rows[f"carico_extender_{verb}_seconds_{what}"]) for what in ("sum", "count")]
        for verb in VERBS
        if f"carico_extender_{verb}_seconds_sum" in rows
    }
    return {verb: 1e3 * total_s / count for verb, (total_s, count) in parts.items() if count}


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
    parser.add_argument("parts", nargs="*", metavar="answers|throughput", help="default: both")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.relative_to(TREE)}")
    given = parser.parse_args()
    if unknown := set(given.parts) - {"answers", "throughput"}:
        parser.error(f"{', '.join(sorted(unknown))}: known are answers and throughput")
    tables, before, about = [], stolen_ticks(), conditions()
    if not given.parts or "answers" in given.parts:
        tables.append(
            "## Answers\n\nOver HTTP on loopback, until the last byte is there; CPU is the extender's, for "
            f"both verbs.\n\n{table(ANSWERS, answers())}"
        )
        print(tables[-1], flush=True)
    if not given.parts or "throughput" in given.parts:
        tables.append(
            "## kube-scheduler's throughput\n\n1,000 Pods on 1,000 nodes, kube-scheduler 1.20 (or that of "
            "KUBEBUILDER_ASSETS) with qps 500 and burst 1000, control plane and extender on the same machine; "
            f"median of three runs, mean time of an answer.\n\n{table(THROUGHPUT, throughput())}"
        )
        print(tables[-1], flush=True)
    stolen, whole = (now - then for now, then in zip(stolen_ticks(), before, strict=True))
    about = f"{about} The hypervisor gave {stolen / whole:.0%} of this machine's CPU time to others meanwhile."
    print(about)
    if given.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(
            "\n".join(
                [
                    f"# What the extender costs\n\n{about}\n",
                    *tables,
                    "`python -m lab.bench.extender --write` made this file.\n",
                ]
            )
        )


if __name__ == "__main__":
    main()
