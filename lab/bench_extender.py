"""What the extender costs: `python -m lab.bench_extender [answers] [throughput]`.

answers: filter + prioritize over HTTP with 5,000 nodes, as kube-scheduler asks (nodeCacheCapable), p50 and p99.
throughput: Pods per second through a real kube-scheduler on 1,000 nodes, without and with the extender. Needs the
control plane of the tests (tests/kube/build.sh).
"""

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from carico_agent.app.extender import ExtenderServer
from carico_agent.kube.pods import facts
from carico_agent.publish.api import LocalApi
from carico_agent.schedule.cluster import read_node
from carico_agent.schedule.policy import Ledger
from carico_agent.settings import Settings, override
from tests.conftest import TREE
from tests.kube.plane import Admin, Plane, free_port, wait_for

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "bench"}},
       "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}] * 2}}  # fmt: skip


def node_object(name: str, slots: int) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    status = json.dumps({"time": now, "ttl_s": 3000, "places": slots, "pods": 0, "mode": "measured"})
    have = {"cpu": "4", "memory": "16Gi", "pods": "110", "carico.dev/pods": str(slots)}
    return {"apiVersion": "v1", "kind": "Node", "status": {"capacity": have, "allocatable": have, "conditions": [
                {"type": "Ready", "status": "True", "reason": "", "message": ""}]},
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name},
                         "annotations": {"carico.dev/slots": str(slots), "carico.dev/status": status}}}  # fmt: skip


# ---- answers


def serve(count: int, port: int, full_ratio: float, strangers: bool) -> None:
    """An extender with a cluster that no API server told it."""

    async def life() -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],
                       "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}]}, file)  # fmt: skip
            file.flush()
            settings = override(Settings(), "kubernetes", kubeconfig=file.name)
            server = ExtenderServer(override(settings, "extender", listen=f"127.0.0.1:{port}"))
        cluster = server.cluster
        cluster.ledger = Ledger(proof_s=3600.0 if strangers else 0.0)
        cluster._nodes_are([read_node(node_object(name(n), 8)) for n in range(count)])
        pods = [facts({"metadata": {"uid": f"{n}-{i}"}, "spec": {"nodeName": name(n)}, "status": {"phase": "Running"}})
                for n in range(count) for i in range(8 if n < full_ratio * count else 3)]  # fmt: skip
        cluster._pods_are(pods)
        cluster._nodes_watch.synced.set()
        cluster._pods_watch.synced.set()
        api = LocalApi(server.routes())
        await api.listen("127.0.0.1", port)
        gc.collect()
        gc.freeze()
        await server.extender.keep_house()

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


def answers(count: int = 5000, rounds: int = 300) -> None:
    for full_ratio, strangers in ((0.0, False), (0.5, False), (0.95, False), (0.5, True)):
        port = free_port()
        code = f"from lab.bench_extender import serve; serve({count}, {port}, {full_ratio}, {strangers})"
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
            kind = "just started" if strangers else "steady"
            said = (f"{count} nodes, {full_ratio:.0%} full, {kind}: filter p50 {statistics.median(alone):.1f} ms, "
                    f"filter + prioritize p50 {statistics.median(both):.1f} ms, p99 {_p99(both):.1f} ms, "
                    f"most {max(both):.1f} ms; CPU {cpu_ms:.1f} ms ({len(passed)} pass)")  # fmt: skip
            print(said, flush=True)
        finally:
            process.terminate()
            process.wait()


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


def throughput(nodes: int = 1000, pods: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plane = Plane(Path(folder))
        try:
            plane.start()
            plane.apply(TREE / "deploy/base/00-namespace.yaml", TREE / "deploy/base/10-rbac.yaml")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: plane.admin.post("/api/v1/nodes", node_object(name(n), 50)), range(nodes)))
            cases = (("without", None), ("filter + prioritize", ()), ("filter + prioritize + bind", ("bind",)))
            for title, verbs in cases:
                rate = _run(plane, pods, verbs, Path(folder))
                print(f"{nodes} nodes, extender: {title}: {rate:.0f} Pods/s", flush=True)
        finally:
            plane.stop()


def _run(plane: Plane, pods: int, verbs: tuple[str, ...] | None, folder: Path) -> float:
    """Pods wait until the scheduler starts; the rate is counted between the first and the last binding."""
    extender, config = None, {}
    if verbs is not None:
        from tests.kube.conftest import ExtenderProcess

        extender = ExtenderProcess(folder, plane.kubeconfig("extender-token")).ready()
        config = {"extenders": [{
            "urlPrefix": extender.url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 5,
            "nodeCacheCapable": True, **({"bindVerb": "bind"} if verbs else {})}]}  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: _new(plane.admin, n), range(pods)))
    plane.start_scheduler(config)
    try:
        counts = []
        while not counts or counts[-1][1] < pods:
            time.sleep(0.25)
            counts.append((time.monotonic(), sum(plane.admin.bound().values())))
        started = [(t, n) for t, n in counts if n]
        first, last = started[0], next(row for row in started if row[1] >= pods)
        if extender is not None:
            print("   ", [line for line in extender.metrics().splitlines() if "_sum" in line or "_count" in line])
        return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)
    finally:
        plane.stop_scheduler()
        if extender is not None:
            extender.stop()
        plane.admin.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        wait_for(lambda: not plane.admin.pods(), "the Pods are gone", 300)


def _new(admin: Admin, number: int) -> None:
    admin.add_pod(f"bench-{number}", 0)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["answers", "throughput"]
    if "answers" in wanted:
        answers()
    if "throughput" in wanted:
        throughput()
