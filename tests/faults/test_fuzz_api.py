"""The socket API against schemathesis, which reads the description that the agent itself serves."""

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carico_agent.client import Agent, AgentError
from tests.conftest import AgentProcess
from tests.test_reservations_api import roomy

__all__ = ["roomy"]
Start = Callable[..., AgentProcess]
STREAMS = ("/v1/watch", "/v1/events")


@contextmanager
def on_tcp(path: str) -> Iterator[str]:
    """The unix socket at a URL: schemathesis speaks TCP only. Bytes are passed on as they are."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            other = socket.socket(socket.AF_UNIX)
            other.connect(path)
            for pair in ((one, other), (other, one)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_the_description_is_the_route_table(start_agent: Start) -> None:
    agent = start_agent().wait()
    described = agent.request("GET", "/v1/openapi.json")
    assert described["openapi"].startswith("3.")
    with pytest.raises(AgentError) as nowhere:
        agent.request("GET", "/nowhere")
    assert sorted(described["paths"]) == nowhere.value.body["paths"]
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert about["summary"] != path, f"{method} {path} has no docstring"


def test_schemathesis(start_agent: Start, roomy: list[str], tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("schemathesis")
    if not command.exists() and shutil.which("schemathesis") is None:
        pytest.skip("schemathesis is not installed")
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    with on_tcp(process.socket) as url:
        skipped = [part for path in STREAMS for part in ("--exclude-path", path)]
        # what the description cannot say: room for Pods changes, and a valid wish may get 409
        said = subprocess.run(
            [str(command), "run", f"{url}/v1/openapi.json", "--url", url, *skipped, "--max-examples", "150",
             "--phases", "examples,coverage,fuzzing", "--exclude-checks", "positive_data_acceptance",
             "--suppress-health-check", "all", "--continue-on-failure", "--no-color", "--seed", "1"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300)  # fmt: skip
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]
    assert Agent(process.socket).status()["sequence"] > 0
    assert "Traceback" not in process.log.read_text()
    assert json.loads(json.dumps(process.client().request("GET", "/v1/self")))["failed_ticks"] == 0
