"""The socket API against 10,000 damaged requests, and against schemathesis, which reads the description that the agent
itself serves.

Why damaged bytes for the bulk: schemathesis takes 10 ms to make a case, and all of them are HTTP as a library would
write it. Why its Python half and not only its command: the command starts from anew for each case what we keep
(connection, reports), and has nothing to vary on an operation without parameters. It is run too, for what only it does
(coverage of the schema, methods that do not exist).
"""

import json
import math
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from carico_agent.client import AgentClient, AgentError
from tests.conftest import AgentProcess
from tests.faults.damage import CASES, SEED, damaged
from tests.faults.tally import Progress, counted

Start = Callable[..., AgentProcess]
STREAMS = ("/v1/watch", "/v1/events")
OF_THE_DESCRIPTION = CASES // 5
CHECKED = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
OF_THEM_WRONG = 0.15
"""The share of cases that break the description; they take three times as long to make."""


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


@pytest.mark.long
def test_schemathesis(start_agent: Start, roomy: list[str], tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("schemathesis")
    if not command.exists() and shutil.which("schemathesis") is None:
        pytest.skip("schemathesis is not installed")
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    with on_tcp(process.socket) as url:
        skipped = [part for path in STREAMS for part in ("--exclude-path", path)]
        # what the description cannot say: room for Pods changes, and a valid wish may get 409
        result = subprocess.run(
            [
                str(command),
                "run",
                f"{url}/v1/openapi.json",
                "--url",
                url,
                *skipped,
                "--max-examples",
                "150",
                "--phases",
                "examples,coverage,fuzzing",
                "--exclude-checks",
                "positive_data_acceptance",
                "--suppress-health-check",
                "all",
                "--continue-on-failure",
                "--no-color",
                "--seed",
                "1",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert AgentClient(process.socket).status()["sequence"] > 0
    assert "Traceback" not in process.log.read_text()
    assert json.loads(json.dumps(process.client().request("GET", "/v1/self")))["failed_ticks"] == 0


def with_strange_extras(described: dict[str, Any]) -> dict[str, Any]:
    """Each operation takes a query and a header nobody knows too: otherwise most have nothing to vary."""
    extras = [
        {"name": "q", "in": "query", "schema": {"type": "string"}},
        {"name": "X-Strange", "in": "header", "schema": {"type": "string"}},
    ]
    for methods in described["paths"].values():
        for about in methods.values():
            about["parameters"] = [*about.get("parameters", []), *extras]
    return described


@pytest.mark.long
def test_what_the_description_allows(start_agent: Start, roomy: list[str]) -> None:
    """Over a kept connection: no 5xx, no answer the description does not know, no traceback, no missed tick."""
    schemathesis = pytest.importorskip("schemathesis")
    requests = pytest.importorskip("requests")
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    wanted = [CHECKS.get_one(name) for name in CHECKED]
    config = Path(roomy[-1])
    config.write_text(config.read_text() + "[clients]\nrequests_per_s = 0\n")
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    schema = schemathesis.openapi.from_dict(with_strange_extras(process.client().request("GET", "/v1/openapi.json")))
    operations = [one.ok() for one in schema.get_all_operations() if one.ok().path not in STREAMS]
    mode = schemathesis.GenerationMode
    shares = {mode.POSITIVE: 1 - OF_THEM_WRONG, mode.NEGATIVE: OF_THEM_WRONG}
    answered, progress = Counter[int](), Progress("cases", OF_THE_DESCRIPTION)
    with on_tcp(process.socket) as url, requests.Session() as session:

        def try_out(operation: Any, mode: Any, cases: int) -> None:
            @seed(SEED)
            @settings(
                max_examples=cases, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
            )
            @given(operation.as_strategy(generation_mode=mode))
            def one(case: Any) -> None:
                response = case.call(base_url=url, session=session)
                answered[response.status_code] += 1
                case.validate_response(response, checks=wanted)
                progress.one()

            one()

        for operation in operations:
            for mode, share in shares.items():
                try_out(operation, mode, math.ceil(OF_THE_DESCRIPTION * share / len(operations)))
    print(dict(answered))
    assert answered.total() >= OF_THE_DESCRIPTION
    assert AgentClient(process.socket).status()["sequence"] > 0
    assert "Traceback" not in process.log.read_text()
    assert process.client().request("GET", "/v1/self")["failed_ticks"] == 0


HEADS = [
    f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nX-Request-Id: 7\r\n".encode()
    for method, path in (
        ("GET", "/v1/status?workload=shop/web"),
        ("GET", "/v1/watch"),
        ("GET", "/v1/workloads/shop/web"),
        ("POST", "/v1/reservations"),
        ("DELETE", "/v1/reservations/0123456789abcdef"),
        ("POST", "/v1/reload"),
        ("GET", "/v1/plugins/throttling?pod=a%2Fb"),
        ("GET", "/metrics"),
    )
]
BODIES = [b'{"pods": 1, "ttl_s": 0.01, "holder": "me", "pod_uid": "u", "workload": "shop/web"}', b"{}"]


def first_answer(path: str, sent: bytes) -> bytes:
    """What the agent answers first; the bound is generous, only a hang reaches it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        with suppress(BrokenPipeError, ConnectionResetError):  # answered and closed while we still wrote
            connection.sendall(sent)
        return connection.recv(65536)


@pytest.mark.long
def test_10_000_cases(start_agent: Start, roomy: list[str]) -> None:
    """Damaged requests, each on a connection of its own: every one is answered, none by a failure of the agent."""
    config = Path(roomy[-1])
    config.write_text(config.read_text() + "[clients]\nrequests_per_s = 0\n")
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    answered = Counter[int]()
    requests = zip(damaged(HEADS), damaged(BODIES, seed=SEED + 1), strict=True)
    for head, body in counted(requests, CASES):
        ended = head + (b"" if head.endswith(b"\n") else b"\r\n")
        sent = ended + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        answer = first_answer(process.socket, sent)
        assert answer.startswith(b"HTTP/"), (sent, answer)
        code = int(answer.split(b" ", 2)[1])
        assert code < 500, (sent, answer)
        answered[code] += 1
    assert answered.keys() >= {200, 400, 404}
    assert process.client().status()["sequence"] > 0
    assert "Traceback" not in process.log.read_text()
    assert process.client().request("GET", "/v1/self")["failed_ticks"] == 0
