"""Against a real Prometheus: days of history, real processes it scrapes, its limits and its error answers."""

import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import psutil
import pytest

from carico_agent.cli import main
from carico_agent.recommend.sources.prometheus import Prometheus, PrometheusError
from carico_agent.recommend.sources.prometheus_history import from_prometheus, selector

from .prometheus_server import Exporter, Server, fill, free_port, need

MINUTES = 2 * 1440
MIB = 2**20
WEB = 'namespace="shop",pod="web-7d4b9c6f5d-x2xkz",container="app"'
DB = 'namespace="shop",pod="db-0",container="postgres"'
IDLE = 'namespace="ops",pod="agent-x2xkz",container="agent"'


def history(end_s: int) -> Iterator[str]:
    """Two days of three containers, a sample a minute: one restarts, one is OOM-killed and throttled, one is new."""
    rng = np.random.default_rng(1)
    times = [end_s - 60 * (MINUTES - n) for n in range(MINUTES)]
    cpu = {WEB: np.cumsum(rng.gamma(4, 0.1, MINUTES) * 60), DB: np.cumsum(np.full(MINUTES, 30.0))}
    cpu[WEB][1000:] -= cpu[WEB][999]  # restarted
    memory = {WEB: 300 * MIB + rng.random(MINUTES) * 100 * MIB, DB: np.full(MINUTES, 800.0 * MIB)}
    events = {WEB: np.zeros(MINUTES), DB: np.where(np.arange(MINUTES) > 2000, 1.0, 0.0)}
    tables = {
        "container_cpu_usage_seconds": ("counter", cpu),
        "container_memory_working_set_bytes": ("gauge", memory),
        "container_oom_events": ("counter", events),
        "container_cpu_cfs_periods": ("counter", {DB: np.arange(MINUTES) * 600.0}),
        "container_cpu_cfs_throttled_periods": ("counter", {DB: np.arange(MINUTES) * 150.0}),
    }
    for name, (kind, series) in tables.items():
        suffix = "_total" if kind == "counter" else ""
        yield f"# TYPE {name} {kind}"
        for labels, values in series.items():
            yield from (f"{name}{suffix}{{{labels}}} {v} {t}" for t, v in zip(times, values, strict=True))
        if not suffix:
            yield from (f"{name}{{{IDLE}}} {5e6 + n} {t}" for n, t in enumerate(times[-50:]))
    now = {
        "kube_pod_container_resource_requests": [(f'{DB},resource="cpu"', 0.5), (f'{DB},resource="memory"', 900 * MIB)],
        "kube_pod_container_resource_limits": [(f'{DB},resource="cpu"', 0.5)],
        "kube_pod_owner": [
            ('namespace="shop",pod="db-0",owner_kind="StatefulSet",owner_name="db"', 1),
            ('namespace="shop",pod="web-7d4b9c6f5d-x2xkz",owner_kind="ReplicaSet",owner_name="web-7d4b9c6f5d"', 1),
        ],
        "kube_replicaset_owner": [
            ('namespace="shop",replicaset="web-7d4b9c6f5d",owner_kind="Deployment",owner_name="web"', 1)
        ],
        "machine_cpu_cores": [('node="n1"', 4)],
        "machine_memory_bytes": [('node="n1"', 8e9)],
    }
    for name, rows in now.items():
        yield f"# TYPE {name} gauge"
        yield from (f"{name}{{{labels}}} {value} {times[-1]}" for labels, value in rows)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need("prometheus", "promtool")
    folder = tmp_path_factory.mktemp("prometheus")
    fill(folder, history(int(time.time()) // 60 * 60))
    yield folder


@pytest.fixture(scope="module")
def server(filled: Path) -> Iterator[Server]:
    made = Server(filled)
    yield made
    made.close()


def recommend(capsys: pytest.CaptureFixture[str], server: Server, *arguments: str) -> dict[str, dict]:
    assert main(["recommend", "--prometheus", server.url, "--since", "3d", "--json", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)["recommendations"]
    return {row["workload"]: row for row in rows}


def test_days_of_history(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    rows = recommend(capsys, server)
    assert {(row["namespace"], row["kind"], name) for name, row in rows.items()} == {
        ("shop", "Deployment", "web"),
        ("shop", "StatefulSet", "db"),
        ("ops", "DaemonSet", "agent"),
    }
    web, db, agent = rows["web"], rows["db"], rows["agent"]
    assert web["samples"] >= MINUTES - 10 and 1.9 < web["confidence_days"] < 2.01
    rng = np.random.default_rng(1)
    p90 = float(np.quantile(rng.gamma(4, 0.1, MINUTES), 0.9))
    assert web["cpu"]["recommended_cores"] == pytest.approx(1.15 * p90, rel=0.07)  # a bucket is 5 % wide
    assert 400 * MIB * 1.15 <= web["memory"]["recommended_bytes"] <= 400 * MIB * 1.15 * 1.09
    assert any("1 counter reset" in why for why in web["cpu"]["why"])
    assert db["oom_kills"] == 1 and any("OOM-killed once" in why for why in db["memory"]["why"])
    assert db["memory"]["recommended_bytes"] >= 1080 * MIB  # 1.2 · its request of 900
    assert db["throttled_ratio"] == pytest.approx(0.25, abs=0.01) and db["cpu"]["current_request_cores"] == 0.5
    assert db["cpu"]["recommended_cores"] == pytest.approx(0.625, abs=0.01)
    assert agent["memory"]["recommended"] is None and "100 are needed" in agent["memory"]["why"][0]


def test_one_workload_and_the_largest_node(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(recommend(capsys, server, "shop/d*")) == {"db"}
    small = recommend(capsys, server, "web", "--largest-node", "0.2,1Gi")["web"]
    assert small["cpu"]["recommended"] == "200m" and "largest node" in small["cpu"]["why"][-2]
    assert main(["recommend", "nothing", "--prometheus", server.url]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_backtest_and_picture(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "b.png"
    arguments = ["recommend", "web", "--prometheus", server.url, "--backtest", "--picture", str(picture)]
    assert main(arguments) == 0
    result = capsys.readouterr().out
    assert "× vpa's excess at equal shortages" in result and picture.read_bytes().startswith(b"\x89PNG")


def test_more_points_than_the_server_gives_at_once(server: Server) -> None:
    client = Prometheus(server.url)
    end_s = time.time() // 60 * 60
    query = f"container_memory_working_set_bytes{selector('shop/web')}"
    with pytest.raises(PrometheusError, match="maximum resolution of 11,000 points"):
        client._ask(
            "query_range", {"query": query, "start": f"{end_s - 172800}", "end": f"{end_s}", "step": "10"}, "matrix"
        )
    shares: list[float] = []
    (fine,) = client.range(query, end_s - 172_800, end_s, 10.0, shares.append)
    (coarse,) = client.range(query, end_s - 172_800, end_s, 60.0)
    assert fine.t_s.size > 15_000 and (np.diff(fine.t_s) > 0).all()
    assert shares == sorted(shares) and len(shares) == 2 and shares[-1] == 1.0
    both, left, right = np.intersect1d(fine.t_s, coarse.t_s, return_indices=True)
    assert both.size > 2000 and np.array_equal(fine.values[left], coarse.values[right])


def test_a_server_that_allows_few_samples_is_asked_in_pieces(filled: Path, server: Server, tmp_path: Path) -> None:
    shutil.copytree(filled / "data", tmp_path / "data", ignore=shutil.ignore_patterns("lock", "queries.active"))
    small = Server(tmp_path, "--query.max-samples=1500")
    try:
        end_s = time.time() // 60 * 60
        asked = (f"container_memory_working_set_bytes{selector('shop/web')}", end_s - 172_800, end_s, 60.0)
        assert Prometheus(small.url).range(*asked)[0].values.size == Prometheus(server.url).range(*asked)[0].values.size
    finally:
        small.close()


def test_its_error_answers_are_one_line(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    client = Prometheus(server.url)
    for query, named in (("sum(", "bad_data"), ("rate(up)", "bad_data"), ("up{", "bad_data")):
        with pytest.raises(PrometheusError, match=named) as refused:
            client.instant(query, time.time())
        assert "\n" not in str(refused.value) and "HTTP status 400" in str(refused.value)
    with pytest.raises(PrometheusError, match="matrix is expected"):
        client._ask("query", {"query": "1"}, "matrix")
    for url, named in (
        (f"{server.url}/nowhere", "HTTP status 404"),
        (f"http://127.0.0.1:{free_port()}", "Connection refused"),
        ("localhost:9090", "http://HOST:PORT is expected"),
        ("http://name.invalid", ""),
    ):
        assert main(["recommend", "--prometheus", url]) == 1
        result = capsys.readouterr().err
        assert result.count("\n") == 1 and named in result


def test_a_server_that_never_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert main(["recommend", "--prometheus", url, "--timeout", "0.3s"]) == 1
    assert capsys.readouterr().err == f"carico: {url}: no answer within 0.3 s\n"


@pytest.mark.parametrize(
    "body",
    [
        "<html>login</html>",
        "{}",
        "[]",
        "",
        '{"status":"success"}',
        '{"status":"error","error":"a\\nb"}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[["x"]]}]}}',
    ],
)
def test_what_is_not_prometheus(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    answering = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=answering.serve_forever, daemon=True).start()
    try:
        assert main(["recommend", "--prometheus", f"http://127.0.0.1:{answering.server_address[1]}"]) == 1
    finally:
        answering.shutdown()
        answering.server_close()
    assert capsys.readouterr().err.count("\n") == 1


BUSY = """
import time
held = bytearray(40 << 20)
while True:
    t = time.monotonic()
    while time.monotonic() - t < {on}:
        pass
    time.sleep({off})
"""


@pytest.mark.long
def test_real_processes_that_it_scrapes(tmp_path: Path) -> None:
    """Two processes, one a third busy and one nearly idle, exported as containers and scraped ten times a second."""
    need("prometheus")
    processes = {
        "busy": subprocess.Popen([sys.executable, "-c", BUSY.format(on=0.01, off=0.02)]),
        "calm": subprocess.Popen([sys.executable, "-c", BUSY.format(on=0.001, off=0.1)]),
    }

    def metrics() -> str:
        lines = ["# TYPE container_cpu_usage_seconds_total counter", "# TYPE container_memory_working_set_bytes gauge"]
        for name, process in processes.items():
            seen, labels = psutil.Process(process.pid), f'{{namespace="real",pod="{name}-0",container="main"}}'
            times = seen.cpu_times()
            lines.append(f"container_cpu_usage_seconds_total{labels} {times.user + times.system}")
            lines.append(f"container_memory_working_set_bytes{labels} {seen.memory_info().rss}")
        return "\n".join(lines) + "\n"

    exporter = Exporter(metrics)
    try:
        server = Server(tmp_path, scrape=exporter.port)
        try:
            server.wait_for("container_cpu_usage_seconds_total", 130)
            spent = {n: sum(psutil.Process(p.pid).cpu_times()[:2]) for n, p in processes.items()}
            found = from_prometheus(Prometheus(server.url), None, time.time(), 60.0, 0.1)
        finally:
            server.close()
    finally:
        exporter.close()
        for process in processes.values():
            process.kill()
            process.wait()
    by_name = {key.workload.name: history for key, history in found.histories.items()}
    assert set(by_name) == {"busy", "calm"}
    for name, history in by_name.items():
        assert history.samples >= 100 and history.highest["memory"] > 40 * MIB
        assert math.isfinite(history.cpu.percentile(0.9)) and spent[name] > 0
    assert by_name["busy"].cpu.percentile(0.9) > by_name["calm"].cpu.percentile(0.9)
