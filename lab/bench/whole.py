"""The whole agent, node_exporter and a C loop, all at 10 Hz in the same window."""

import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.bench.lateness import Counts, between, quantile_ms, took
from lab.bench.pods import SH, WORK
from lab.bench.process import Http, agent, cpu_s, memory_mb, running
from lab.bench.table import Row, missing
from lab.support import TREE
from lab.support.containerd import PrivateContainerd
from lab.support.containerd import missing as containerd_missing
from lab.support.control_plane import running as control_plane

PERIOD_S = 0.1
EXPORTER = "prometheus-node-exporter"
CPU_BUDGET_PERCENT, MEMORY_BUDGET_MB, MEMORY_WITH_PODS_MB, EXPORTER_SHARE = 0.5, 64.0, 72.0, 1 / 3
C_LOOPS, TICK_P99_MS = 3.5, 0.5


class Unavailable(RuntimeError):
    """This machine does not have what is needed; the message says what."""


@contextmanager
def c_loop() -> Iterator[int]:
    compiler = shutil.which("cc")
    if compiler is None:
        raise Unavailable("no C compiler (cc)")
    with tempfile.TemporaryDirectory(prefix="carico-bench-") as folder:
        binary = f"{folder}/floor"
        built = subprocess.run(
            [compiler, "-O2", "-o", binary, Path(__file__).with_name("floor.c")],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise Unavailable(f"cc failed: {built.stderr.strip()[:200]}")
        with running([binary]) as process:
            yield process.pid


@contextmanager
def exporter() -> Iterator[int]:
    """node_exporter with three collectors, scraped every 100 ms over one connection. The scraper is not counted."""
    binary = shutil.which(EXPORTER)
    if binary is None:
        raise Unavailable(f"no {EXPORTER} (`make tools` brings it)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Its own metrics off as well: it is compared with what was asked of it, not with what it says about itself.
    with running(
        [
            binary,
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
            "--collector.disable-defaults",
            "--collector.cpu",
            "--collector.meminfo",
            "--collector.pressure",
            "--web.disable-exporter-metrics",
        ]
    ) as process:
        scraper, stop = _connected(port), threading.Event()
        thread = threading.Thread(target=_scrape, args=(scraper, stop), daemon=True)
        thread.start()
        try:
            yield process.pid
        finally:
            stop.set()
            thread.join(5)
            scraper.close()


def _connected(port: int) -> Http:
    for _ in range(100):
        try:
            http = Http(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
            continue
        if b"node_cpu_seconds_total" not in http.get("/metrics"):
            raise Unavailable(f"{EXPORTER} answers, but not with cpu metrics")
        return http
    raise Unavailable(f"{EXPORTER} does not answer on port {port}")


def _scrape(http: Http, stop: threading.Event) -> None:
    due_s = time.monotonic()
    while not stop.wait(max(0.0, due_s - time.monotonic())):
        http.get("/metrics")
        due_s += PERIOD_S


def measure(window_s: float) -> list[Row]:
    with ExitStack() as stack:
        own = stack.enter_context(agent())
        pids, lacking = {"agent": own.pid}, {}
        for name, start in (("exporter", exporter), ("c", c_loop)):
            try:
                pids[name] = stack.enter_context(start())
            except Unavailable as reason:
                lacking[name] = str(reason)
        time.sleep(1.0)
        ticks_before = took(own)
        before, started_s = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(window_s)
        elapsed_s = time.monotonic() - started_s
        percent = {name: 100 * (cpu_s(pid) - before[name]) / elapsed_s for name, pid in pids.items()}
        memory = {name: memory_mb(pid) for name, pid in pids.items()}
        ticks, stages = between(ticks_before, took(own)), own.about_itself()["stages"]
    return [*_rows(percent, memory, lacking), _tick_row("agent", ticks), *_in_situ(stages)]


def _rows(percent: dict[str, float], memory: dict[str, dict[str, float]], lacking: dict[str, str]) -> list[Row]:
    mine = percent["agent"]
    rows = [
        Row("agent, socket open, nobody asking: CPU", mine, "% of a core", CPU_BUDGET_PERCENT),
        Row("agent: resident (RSS)", memory["agent"]["Rss"], "MB", MEMORY_BUDGET_MB),
        Row("agent: its share of memory (PSS)", memory["agent"]["Pss"], "MB"),
    ]
    for name, label in (("exporter", "node_exporter, scraped"), ("c", "C loop, same files")):
        if name in lacking:
            rows.append(missing(label, lacking[name]))
            continue
        theirs = percent[name]
        rows += [
            Row(f"{label}: CPU", theirs, "% of a core"),
            Row(f"{label}: resident (RSS)", memory[name]["Rss"], "MB"),
            Row(
                f"agent's CPU / that of {label}", mine / theirs, "x", EXPORTER_SHARE if name == "exporter" else C_LOOPS
            ),
        ]
    return rows


def _tick_row(label: str, ticks: Counts) -> Row:
    """By the sampling thread's own clock, from its waking to its sleeping; the bound of the bucket of p99."""
    note = f"{ticks['+Inf']:.0f} ticks, p50 ≤ {quantile_ms(ticks, 0.5):g} ms; elapsed, as in /metrics"
    return Row(f"{label}: a tick, p99, at most", quantile_ms(ticks, 0.99), "ms", TICK_P99_MS, note=note)


def _in_situ(stages: dict[str, dict[str, float]]) -> list[Row]:
    """As the agent itself has clocked them in this window: caches cold, others on the machine."""
    return [
        Row(f"agent, stage {name}: mean", stage["mean_us"], "µs", note="elapsed, as in /v1/self")
        for name, stage in stages.items()
    ]


def with_kubernetes(window_s: float, count: int) -> list[Row]:
    """The same on a node of a cluster: the number goes to a real API server, with TLS, as deploy/base allows it."""
    with tempfile.TemporaryDirectory(prefix="carico-bench-") as folder, ExitStack() as stack:
        try:
            plane = stack.enter_context(contextmanager(control_plane)(Path(folder)))
        except LookupError as reason:
            return [missing("agent, containerd and Kubernetes", str(reason))]
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        plane.admin.add_node("bench")
        kubeconfig = str(plane.kubeconfig("agent-token"))
        rows = with_containers(window_s, count, ("--kubeconfig", kubeconfig, "--node", "bench"), "agent, Kubernetes,")
        writes = sum(request["verb"] == "patch" for request in plane.audit())
        if not writes:
            raise RuntimeError("nothing was published on the Node")
        return [*rows, Row("patches of the Node and its status, in all", writes, "")]


def with_containers(
    window_s: float, count: int, flags: Sequence[str] = (), name: str = "agent,", work: bool = False
) -> list[Row]:
    """The agent with what a real node adds: a containerd that is listened to, and Pods whose cgroups are read; they
    sleep, or all work a little every second."""
    label = f"{name} containerd and {count} Pods" + (" that work" if work else "")
    if why := containerd_missing():
        return [*_with_grpc(), missing(label, why)]
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="cb-", dir="/tmp"))) as containerd:
        for number in range(count):
            containerd.run(f"pod{number}", *((*SH, WORK) if work else ()))
        with c_loop() as floor, agent("--containerd", containerd.socket, *flags) as own:
            time.sleep(75.0)  # files of all Pods are opened, and each container's history has its first minute
            ticks_before = took(own)
            used_s, floor_s, started_s = cpu_s(own.pid), cpu_s(floor), time.monotonic()
            time.sleep(window_s)
            percent = 100 * (cpu_s(own.pid) - used_s) / (time.monotonic() - started_s)
            c_loops = (cpu_s(own.pid) - used_s) / (cpu_s(floor) - floor_s)
            ticks = between(ticks_before, took(own))
            client = Http(own.path)
            pods = json.loads(client.get("/v1/status"))["pods"]
            used_s, started_s = cpu_s(own.pid), time.monotonic()
            while time.monotonic() - started_s < window_s / 2:  # somebody looks: all counters are read every second
                client.get("/v1/pods")
                time.sleep(1.0)
            looked_at = 100 * (cpu_s(own.pid) - used_s) / (time.monotonic() - started_s)
            memory, stages = memory_mb(own.pid), own.about_itself()["stages"]
    return [
        Row(f"{label}: CPU", percent, "% of a core", CPU_BUDGET_PERCENT, note=f"{pods} Pods counted"),
        Row("the same / the C loop's CPU meanwhile", c_loops, "x", note="the loop reads the node's files only"),
        Row(f"{label}, /v1/pods asked every second: CPU", looked_at, "% of a core"),
        Row(f"{label}: resident (RSS)", memory["Rss"], "MB", MEMORY_WITH_PODS_MB),
        Row(f"{label}: its share of memory (PSS)", memory["Pss"], "MB"),
        _tick_row(label, ticks),
        *_in_situ(stages),
    ]


def _with_grpc() -> list[Row]:
    """What is known without a containerd: the same agent with its client's library loaded."""
    with agent(preload="grpc, google.protobuf.message") as own:
        time.sleep(1.0)
        return [Row("agent with grpc loaded: resident (RSS)", memory_mb(own.pid)["Rss"], "MB", MEMORY_BUDGET_MB)]
