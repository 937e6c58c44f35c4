"""The agent as a real process, asked over its real socket."""

import asyncio
import json
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from carico_agent.client import AgentClient, AgentError, AgentUnavailable, AsyncAgentClient
from tests.conftest import AgentProcess

Start = Callable[..., AgentProcess]
STATUS_KEYS = {
    "version",
    "node",
    "time",
    "sequence",
    "pod_capacity",
    "low",
    "high",
    "slots",
    "pods",
    "mode",
    "limiting",
    "capacity",
    "baseline",
    "per_pod_cost",
    "usage",
    "age_s",
    "ttl_s",
}


def raw(path: str, request: bytes) -> tuple[int, dict[str, object]]:
    """A request byte by byte, for what no client library would send."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += received(connection)
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        while len(body) < length:
            body += received(connection)
    return int(head.split()[1]), json.loads(body)


def received(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    assert piece, "closed in the middle of an answer"
    return piece


def test_status(start_agent: Start) -> None:
    process = start_agent("--node", "here")
    agent = process.wait()
    status = agent.status()
    assert status.keys() >= STATUS_KEYS
    assert status["node"] == "here"
    assert status["mode"] == "learning"
    assert set(status["usage"]) == {"cpu", "memory"}
    assert 0 <= status["age_s"] <= status["ttl_s"]
    assert stat.S_IMODE(Path(process.socket).stat().st_mode) == 0o660
    assert agent.request("GET", "/healthz") == {"ok": True}
    own = agent.request("GET", "/v1/self")
    assert own["ticks"] > 0
    assert own["failed_ticks"] == 0
    assert own["stages"]["read"]["runs"] > 0
    assert own["resident_bytes"] > 1_000_000
    assert process.stop() == 0
    assert not Path(process.socket).exists()


def test_a_line_per_second_for_humans(start_agent: Start) -> None:
    process = start_agent()
    process.wait(lambda agent: agent.status()["pod_capacity"] is not None)  # the first may lack a second reading
    process.stop()
    line = next(line for line in process.log.read_text().splitlines() if "Pod-Capacity" in line and "?" not in line)
    for part in ("cpu", "memory", "Pods 0", "learning", "limited by cpu"):
        assert part in line


def test_metrics_pass_promtool(start_agent: Start) -> None:
    process = start_agent()
    process.wait(lambda agent: agent.status()["pod_capacity"] is not None)
    curl = ["curl", "-sS", "--unix-socket", process.socket, "http://localhost/metrics"]
    text = subprocess.run(curl, capture_output=True, check=True).stdout
    assert b"carico_pod_capacity " in text
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: `make tools` unpacks Debian's prometheus package")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert checked.returncode == 0, checked.stderr.decode() + checked.stdout.decode()


@pytest.mark.long
def test_watch_and_several_clients(start_agent: Start) -> None:
    process = start_agent()
    process.wait()
    sequences = [status["sequence"] for status in islice(process.client().watch(), 3)]
    assert sequences == sorted(set(sequences))
    clients = [AgentClient(process.socket) for _ in range(20)]
    assert all(client.status()["sequence"] >= sequences[-1] for client in clients)


@pytest.mark.alone
def test_a_reader_who_never_reads_delays_nobody(start_agent: Start) -> None:
    process = start_agent()
    agent = process.wait()
    stuck = [socket.socket(socket.AF_UNIX) for _ in range(10)]
    for connection in stuck:
        connection.connect(process.socket)
        connection.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n")
    before = agent.status()["sequence"]
    process.wait(lambda a: a.status()["sequence"] >= before + 3)
    assert agent.request("GET", "/v1/self")["missed_ticks"] <= 1  # a loaded test machine may cost one
    for connection in stuck:
        connection.close()


BROKEN = [
    (404, b"GET /v2/nothing HTTP/1.1\r\nHost: x\r\n\r\n"),
    (404, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    (405, b"POST /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
    (405, b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET /v1/status HTTP/9.9\r\nHost: x\r\n\r\n"),
    (400, b"\x16\x03\x01\x02\x00 not http at all\r\n\r\n"),
    (400, b"GET /v1/status HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n"),
    (400, b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"),
]


def test_every_error_is_json(start_agent: Start) -> None:
    process = start_agent()
    agent = process.wait()
    for expected, request in BROKEN:
        code, body = raw(process.socket, request)
        assert code == expected, request[:60]
        assert isinstance(body["error"], str)
        assert "Traceback" not in str(body)
    with pytest.raises(AgentError, match="no such path"):
        agent.request("GET", "/nowhere")
    assert agent.status()["node"]
    assert "Traceback" not in process.log.read_text()


async def test_async_client(start_agent: Start) -> None:
    process = start_agent()
    await asyncio.to_thread(process.wait)
    agent = AsyncAgentClient(process.socket)
    assert (await agent.status())["mode"] == "learning"
    seen = []
    async for status in agent.watch():
        seen.append(status["sequence"])
        if len(seen) == 2:
            break
    assert seen[0] < seen[1]
    with pytest.raises(AgentError, match="no such path"):
        await agent.request("GET", "/nowhere")
    with pytest.raises(AgentUnavailable, match="is `carico agent` running"):
        await AsyncAgentClient(process.socket + ".no").status()


@pytest.mark.long
def test_the_client_survives_a_restart(start_agent: Start) -> None:
    process = start_agent()
    agent = process.wait()
    agent.status()
    process.stop()
    with pytest.raises(AgentUnavailable, match="is `carico agent` running"):
        agent.status()
    start_agent().wait()
    assert agent.status()["sequence"] >= 1


def test_two_agents_do_not_share_a_socket(start_agent: Start) -> None:
    start_agent().wait()
    second = start_agent()
    assert second.process.wait(timeout=60) == 1
    assert "another agent is listening" in second.log.read_text()


def test_a_file_in_the_sockets_place_is_left_alone(start_agent: Start, tmp_path: Path) -> None:
    (tmp_path / "agent.sock").write_text("precious")
    process = start_agent()
    assert process.process.wait(timeout=60) == 1
    assert (tmp_path / "agent.sock").read_text() == "precious"
    assert "is not a socket" in process.log.read_text()


def test_the_socket_of_a_killed_agent_is_replaced(start_agent: Start) -> None:
    process = start_agent()
    process.wait()
    process.process.kill()
    process.process.wait()
    assert Path(process.socket).exists()
    start_agent().wait()


@pytest.mark.long
def test_status_file_is_replaced_atomically(start_agent: Start, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[socket]\nstatus_file = "{tmp_path}/status.json"\n')
    process = start_agent("--config", str(config))
    process.wait(lambda agent: agent.status()["sequence"] >= 2)
    broken: list[str] = []
    stop = threading.Event()

    def read_often() -> None:
        while not stop.is_set():
            text = (tmp_path / "status.json").read_text()
            if not text.endswith("}\n"):
                broken.append(text)

    reader = threading.Thread(target=read_often)
    reader.start()
    process.wait(lambda agent: agent.status()["sequence"] >= 4)
    stop.set()
    reader.join()
    assert not broken
    assert json.loads((tmp_path / "status.json").read_text())["node"]


@pytest.mark.long
def test_record_and_replay(start_agent: Start, tmp_path: Path) -> None:
    trace = tmp_path / "short.trace.gz"
    process = start_agent("--record", str(trace))
    process.wait(lambda agent: agent.status()["sequence"] >= 3)
    process.stop()
    again = start_agent("--replay", str(trace), "--speed", "5", "--repeat", "--node", "replayed")
    status = again.wait(lambda agent: agent.status()["sequence"] >= 3).status()
    assert status["node"] == "replayed"
    assert status["usage"]["cpu"] is not None
