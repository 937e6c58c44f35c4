"""`carico recommend`: every source but Prometheus, every output, and what it refuses with which exit code."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

import numpy as np
import pytest
import yaml

from carico_agent.cli import main
from carico_agent.lib.trace.containers import ContainerReading, PodsRow
from carico_agent.node.sampling import Reading, TraceRow, TraceWriter
from carico_agent.recommend.history import ContainerHistory, MinuteSample

T = 1.7e9
MIB = 2**20
PODS = ("web-7d4b9c6f5d-x2xkz", "web-7d4b9c6f5d-bbbbb")


def trace(
    path: Path, pod: str, minutes: int = 300, cores: int = 4, step_s: float = 60.0, namespace: str = "shop"
) -> str:
    """What an agent would record of a Pod with two containers; the first is killed once and throttled."""
    rng = np.random.default_rng(len(pod))
    writer = TraceWriter(path, node=pod, cores=cores, resources=("cpu",))
    writer.write(TraceRow(Reading(0.0, cores=cores, memory_total_kb=8 << 20), 1, False))
    cpu = 0.0
    for n in range(int(minutes * 60 / step_s)):
        t_s = n * step_s
        cpu += float(rng.gamma(4.0, 0.1)) * step_s
        app = ContainerReading(
            namespace,
            pod,
            "app",
            cpu_usage_usec=int(cpu * 1e6),
            memory_bytes=int((500 + 50 * rng.random()) * MIB),
            oom_kills=int(t_s > 6000),
            nr_periods=int(t_s * 10),
            nr_throttled=int(t_s),
            request_cores=0.25,
            limit_cores=0.5,
            request_bytes=600 * MIB,
        )
        side = ContainerReading(namespace, pod, "side", cpu_usage_usec=int(t_s * 1e4), memory_bytes=20 * MIB)
        writer.write_pods(PodsRow(t_s, T + t_s, (app, side)))
    writer.write(TraceRow(Reading(minutes * 60.0 + 1, cores=cores), 1, False))
    writer.close()
    return str(path)


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    return [trace(tmp_path / "one.trace.gz", PODS[0]), trace(tmp_path / "two.trace", PODS[1], cores=8)]


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["recommend", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_traces_of_several_nodes(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(result(capsys, "--json", "--trace", *traces))["recommendations"]
    app, side = rows
    assert (app["namespace"], app["kind"], app["workload"], app["container"]) == ("shop", "Deployment", "web", "app")
    assert app["pods"] == sorted(PODS) and app["samples"] >= 598 and app["oom_kills"] == 2
    assert app["throttled_ratio"] == pytest.approx(0.1, abs=0.001)
    assert app["memory"]["recommended_bytes"] >= 1.2 * 600 * MIB and app["cpu"]["current_limit_cores"] == 0.5
    assert app["cpu"]["limit_cores"] == app["cpu"]["recommended_cores"] > 0.5
    assert side["cpu"]["method"] == side["memory"]["method"] == "constant"
    assert side["cpu"]["recommended"] == "13m"  # half of the floor
    assert side["memory"]["recommended"] == "125Mi"


def test_a_finer_trace_gives_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = trace(tmp_path / "fine", PODS[0], minutes=150, step_s=10.0)
    (row, _) = json.loads(result(capsys, "--json", "--trace", fine))["recommendations"]
    assert 148 <= row["samples"] <= 151


def test_table_says_why(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = result(capsys, "--trace", *traces)
    assert out.startswith("WORKLOAD") and "shop/web" in out and "low (" in out
    assert "OOM-killed 2 times" in out and "throttled by its own quota of 0.5 cores in 10% of its periods" in out
    assert "constant: 20 MiB" in out


@pytest.mark.parametrize("method", ["vpa", "peak", "walk", "arima"])
def test_every_method(traces: list[str], method: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(result(capsys, "--json", "--method", method, "--trace", *traces))["recommendations"]
    assert rows[0]["cpu"]["method"] == method and rows[0]["cpu"]["recommended_cores"] > 0.3


def test_values_to_paste(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (vpa,) = yaml.safe_load_all(result(capsys, "--output", "vpa", "--trace", *traces))
    assert vpa["kind"] == "VerticalPodAutoscaler" and vpa["spec"]["updatePolicy"] == {"updateMode": "Off"}
    assert vpa["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    named = vpa["status"]["recommendation"]["containerRecommendations"]
    assert [one["containerName"] for one in named] == ["app", "side"] and set(named[0]["target"]) == {"cpu", "memory"}
    patch = result(capsys, "--output", "patch", "--guaranteed", "--whole-cpus", "--trace", *traces)
    assert "read off its Pods' names" in patch
    command = patch.splitlines()[-1]
    assert command.startswith("kubectl patch deployment web -n shop --type strategic -p '")
    containers = json.loads(command.split("'")[1])["spec"]["template"]["spec"]["containers"]
    assert containers[0]["resources"]["requests"] == containers[0]["resources"]["limits"]
    assert containers[0]["resources"]["requests"]["cpu"] == "1"
    resize = result(capsys, "--output", "resize", "--trace", *traces).splitlines()
    assert len(resize) == 2 and all("--subresource resize" in line for line in resize)
    assert [line.split()[3] for line in resize] == sorted(PODS)


def test_checkpoints_there_and_back(traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(result(capsys, "--json", "--trace", *traces))["recommendations"]
    saved = tmp_path / "c.json"
    saved.write_text(result(capsys, "--output", "checkpoint", "--trace", *traces))
    after = json.loads(result(capsys, "--json", "--checkpoint", str(saved)))["recommendations"]
    assert [row["samples"] for row in after] == [row["samples"] for row in before]
    assert after[0]["memory"]["recommended_bytes"] == pytest.approx(before[0]["memory"]["recommended_bytes"], rel=0.2)
    as_yaml = tmp_path / "c.yaml"
    as_yaml.write_text(yaml.safe_dump(json.loads(saved.read_text())["items"][0]))
    assert json.loads(result(capsys, "--json", "--checkpoint", str(as_yaml)))["recommendations"] == after[:1]
    assert "use --output patch" in result(capsys, "--output", "resize", "--checkpoint", str(saved))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nonsense", "an object is expected"),
        ("{[", "neither JSON nor YAML"),
        ('{"kind": "Pod"}', "kind: VerticalPodAutoscalerCheckpoint is expected, not 'Pod'"),
        ('{"kind": "VerticalPodAutoscalerCheckpoint", "spec": {}}', "spec.vpaObjectName"),
        (
            '{"kind": "VerticalPodAutoscalerCheckpoint", "spec": {"vpaObjectName": "a", "containerName": "b"},'
            ' "status": {"version": "v2"}}',
            "status.version: 'v3' is expected, not 'v2'",
        ),
        ('{"items": []}', "holds no checkpoint"),
    ],
)
def test_bad_checkpoints(text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c").write_text(text)
    assert main(["recommend", "--checkpoint", str(tmp_path / "c")]) == 1
    err = capsys.readouterr().err
    assert named in err and err.count("\n") == 1


class Agent(ThreadingMixIn, UnixStreamServer):
    """Answers GET /v1/history/containers on a socket, as documented in app/histories.py."""

    daemon_threads = True

    def __init__(self, path: str, answer: dict, status: int = 200) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/v1/history/containers"
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        super().__init__(path, Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def container(**changes: object) -> dict:
    history = ContainerHistory()
    rng = np.random.default_rng(1)
    for n in range(200):
        history.observe(MinuteSample(T + 60 * n, float(rng.gamma(4, 0.1)), float(rng.gamma(99, 6)) * MIB))
    return {
        "namespace": "shop",
        "pod": "db-0",
        "container": "pg",
        "current": {"request_cores": 2.0},
        "history": history.state(),
        **changes,
    }


def ask(tmp_path: Path, answer: dict, *arguments: str, status: int = 200) -> int:
    with Agent(str(tmp_path / "a.sock"), answer, status) as agent:
        try:
            return main(["recommend", "--socket", str(tmp_path / "a.sock"), *arguments])
        finally:
            agent.shutdown()


def test_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"node": "n1", "cores": 0.3, "memory_bytes": 64 << 30, "containers": [container()]}
    assert ask(tmp_path, answer, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert (row["kind"], row["workload"], row["cpu"]["current_request_cores"]) == ("StatefulSet", "db", 2.0)
    assert row["cpu"]["recommended"] == "300m" and "largest node" in row["cpu"]["why"][-1]


def commands(out: str) -> list[dict]:
    return [json.loads(line.split("'")[1]) for line in out.splitlines() if line.startswith("kubectl")]


@pytest.mark.parametrize("output", ["patch", "resize"])
def test_a_request_is_never_above_the_limit_that_the_command_leaves(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Throttled in 60 % of its periods at 500m: the quota says too little, and it must move with the request."""
    history = ContainerHistory()
    for n in range(200):
        cores = 0.45 + 0.05 * (n % 2)
        history.observe(MinuteSample(T + 60 * n, cores, (500.0 + n) * MIB, 0, 600, 360))
    current = {"request_cores": 0.1, "limit_cores": 0.5, "limit_bytes": 512.0 * MIB, "qos": "Burstable"}
    one = container(kind="Deployment", workload="web", current=current, history=history.state())
    answer = {"node": "n1", "cores": 8, "memory_bytes": 64 << 30, "containers": [one]}
    assert ask(tmp_path, answer, "--output", output) == 0
    (body,) = commands(capsys.readouterr().out)
    spec = body["spec"]["template"]["spec"] if output == "patch" else body["spec"]
    resources = spec["containers"][0]["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("800m", "801m")  # still Burstable
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


GUARANTEED = {"request_cores": 1.0, "limit_cores": 1.0, "request_bytes": 2.0**30, "limit_bytes": 2.0**30}


@pytest.mark.parametrize("qos", [{}, {"qos": "Guaranteed"}])
@pytest.mark.parametrize("output", ["patch", "resize"])
def test_a_guaranteed_pod_stays_guaranteed(
    output: str, qos: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"containers": [container(kind="Deployment", workload="web", current={**GUARANTEED, **qos})]}
    assert ask(tmp_path, answer, "--output", output) == 0
    (body,) = commands(capsys.readouterr().out)
    (one,) = (body["spec"]["template"]["spec"] if output == "patch" else body["spec"])["containers"]
    assert one["resources"]["limits"] == one["resources"]["requests"]


@pytest.mark.parametrize(
    ("kind", "current", "output", "printed"),
    [
        ("Pod", {"qos": "Burstable"}, "patch", "kubectl patch pod db-0 -n shop --subresource resize -p '"),
        ("Pod", {"qos": "BestEffort"}, "patch", "# shop/db-0: its Pods are BestEffort"),
        ("StatefulSet", {"qos": "BestEffort"}, "resize", "# shop/db-0: its Pods are BestEffort"),
        ("StatefulSet", {"qos": "BestEffort"}, "patch", "kubectl patch statefulset db-0 -n shop --type strategic"),
        ("Job", {}, "patch", "# shop/db-0: a Job's template cannot be changed"),
        ("Job", {"qos": "Burstable"}, "resize", "kubectl patch pod db-0 -n shop --subresource resize -p '"),
        ("Node", {}, "patch", "# shop/db-0: a static Pod; change its manifest on the node"),
        ("Node", {"qos": "Burstable"}, "resize", "# shop/db-0: a static Pod; change its manifest on the node"),
        ("Rollout", {}, "patch", "# shop/db-0: kubectl cannot patch its owner (Rollout)"),
    ],
)
def test_what_the_api_server_would_refuse_is_not_printed(
    kind: str, current: dict, output: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"containers": [container(kind=kind, workload="db-0", current=current)]}
    assert ask(tmp_path, answer, "--output", output) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(printed)


def test_a_resize_cannot_make_a_pod_guaranteed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"containers": [container(kind="Deployment", workload="web", current={"qos": "Burstable"})]}
    assert ask(tmp_path, answer, "--output", "resize", "--guaranteed") == 0
    assert "# shop/web: its Pods are not Guaranteed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "status", "named"),
    [
        ({"error": "no such path"}, 404, "keeps no history"),
        ({"error": "busy"}, 503, "busy"),
        ({"containers": [{}]}, 200, "containers[0]"),
        ({"containers": [container(history={"version": 9})]}, 200, "version"),
        ({"containers": [container(current={"colour": 1})]}, 200, "colour"),
        ({"containers": [container(current={"request_cores": "all"})]}, 200, "request_cores"),
        ({"containers": [container(current={"request_cores": -1})]}, 200, "request_cores"),
        ({"containers": []}, 200, "no container has been observed"),
        ({}, 200, "containers"),
    ],
)
def test_an_agent_that_answers_badly(
    answer: dict, status: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, answer, status=status) == 1
    err = capsys.readouterr().err
    assert named in err and err.count("\n") == 1


def test_backtest(traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = result(capsys, "--backtest", "--json", "--trace", *traces)
    assert {row["method"] for row in json.loads(out)["memory"]} == {"vpa", "peak", "walk", "arima"}
    short = trace(tmp_path / "short", PODS[0], minutes=50)
    assert main(["recommend", "--backtest", "--trace", short]) == 1
    assert "no series of 65 minutes" in capsys.readouterr().err


def test_a_picture_without_matplotlib(traces: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\nfrom carico_agent.cli import main\n"
        f"arguments = ['--picture', {str(tmp_path / 'p.png')!r}, '--trace', {traces[0]!r}]\n"
        "sys.exit(main(['recommend', '--backtest', *arguments]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "matplotlib is missing; install carico-agent[lab]" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--method", "tea-leaves"], 2, "known are vpa, arima, peak, walk"),
        (["--half-life", "1h"], 2, "--half-life"),
        (["--picture", "x.png"], 2, "only with --backtest"),
        (["--largest-node", "many"], 2, "CPU,SIZE is expected"),
        (["--safety", "-1"], 2, "0 to 100"),
        (["--trace", "/nonexistent"], 1, "No such file"),
        (["--trace", "tests/golden/bursts.trace.gz"], 1, "no trace holds containers"),
        (["--checkpoint", "/nonexistent"], 1, "No such file"),
        (["--socket", "/nonexistent/s"], 1, "is `carico agent` running?"),
    ],
)
def test_refusals(arguments: list[str], code: int, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", *arguments]) == code
    err = capsys.readouterr().err
    assert named in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "xml"],
        ["--percentile", "0"],
        ["--percentile", "101"],
        ["--margin", "-1"],
        ["--since", "yesterday"],
        ["--trace", "a", "--prometheus", "b"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recommend", *arguments])
    assert ended.value.code == 2
