"""The client for jobs: never waits, never raises, says little; the examples of its documentation run."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from carico_agent.progress import client as progress
from carico_agent.progress.client import Reporter
from tests.conftest import AgentProcess

TREE = Path(__file__).parent.parent


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Listener:
    """An agent's socket without an agent: what comes in is kept, what is answered is up to the test."""

    def __init__(self, path: Path, backlog: int = 8) -> None:
        self.path, self.socket = str(path), socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(backlog)

    def close(self) -> None:
        self.socket.close()


def bodies(text: bytes) -> list[dict[str, float]]:
    return [json.loads(found) for found in re.findall(rb"\r\n\r\n(\{.*?\})", text)]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with closing(Listener(tmp_path / "progress.sock")) as made:
        yield made


def test_one_report_a_second_and_the_newest_numbers(listener: Listener) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    for step in range(1, 31):
        clock.now_s += 0.125
        reporter.report(step, 30)
    peer, _ = listener.socket.accept()
    with peer:
        got = bodies(peer.recv(65536))
    assert [one["done"] for one in got] == [1, 9, 17, 25, 30]  # the end does not wait for its second
    assert reporter.sent == 5


def test_the_agent_may_ask_for_fewer(listener: Listener) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    reporter.report(1, 100)
    peer, _ = listener.socket.accept()
    with peer:
        peer.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"next_s":11.0}\n')
        for _ in range(11):  # the first reads the answer, the others come before 11 s are over
            clock.now_s += 1
            reporter.report(2, 100)
        assert reporter.sent == 2
        clock.now_s += 1
        reporter.report(3, 100)
        assert reporter.sent == 3


@pytest.mark.parametrize("asked", [b"-5", b"1e99", b"nan", b"x"])
def test_an_odd_answer_changes_nothing(listener: Listener, asked: bytes) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    reporter.report(1, 100)
    peer, _ = listener.socket.accept()
    with peer:
        peer.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"next_s":' + asked + b"}")
        for step in range(200):
            clock.now_s += 1
            reporter.report(2 + step, 1000)
    assert reporter.sent >= 3


def test_refused_means_quiet(listener: Listener) -> None:
    """In no Pod: asking every second would not change that."""
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    reporter.report(1, 100)
    peer, _ = listener.socket.accept()
    with peer:
        peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        clock.now_s += 1
        reporter.report(2, 100)
        clock.now_s += 1
        reporter.report(3, 100)
    assert reporter.sent == 1


def test_no_agent_costs_a_look_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def connect(path: str) -> socket.socket:
        looks.append(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(progress, "_connect", connect)
    clock = Clock()
    reporter = Reporter(str(tmp_path / "nobody"), clock)
    for _ in range(600):
        clock.now_s += 1
        reporter.report(1, 2)
    assert 10 <= len(looks) <= 16
    assert reporter.sent == 0


def test_an_agent_that_comes_later_is_found(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "progress.sock"
    reporter = Reporter(str(path), clock)
    reporter.report(1, 10)
    with closing(Listener(path)):
        clock.now_s += 60
        reporter.report(2, 10)
    assert reporter.sent == 1


def test_an_agent_that_restarts_is_found_again(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "progress.sock"
    reporter = Reporter(str(path), clock)
    with closing(Listener(path)):
        reporter.report(1, 10)
    path.unlink()
    with closing(Listener(path)) as second:
        for _ in range(70):
            clock.now_s += 1
            reporter.report(2, 10)
        peer, _ = second.socket.accept()
        with peer:
            assert bodies(peer.recv(65536))[0]["done"] == 2


def test_a_hanging_agent_never_makes_the_loop_wait(tmp_path: Path) -> None:
    """Nobody accepts and nobody reads: connections queue, buffers fill, every call returns. A call that waited would
    hang this test."""
    with closing(Listener(tmp_path / "progress.sock", backlog=0)) as silent:
        reporters = [Reporter(silent.path, Clock()) for _ in range(20)]
        for reporter in reporters:
            reporter.report(1, 2)
        clock = Clock()
        one = Reporter(silent.path, clock)
        silent.socket.listen(64)
        for step in range(100_000):
            clock.now_s += 2
            one.report(step, 100_000)
        assert one.sent < 100_000  # after ten without an answer it waited, and reports were dropped


def test_the_wait_grows_while_reports_are_taken_and_never_answered(listener: Listener) -> None:
    """The kernel takes what is written to a hanging agent: that is no success. 10 reports, then 2 s, 10, 4 s … 60 s."""
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    listener.socket.listen(1000)
    for _ in range(3600):
        clock.now_s += 1
        reporter.report(1, 2)
    assert reporter._failures > 10
    assert 490 < reporter.sent < 600  # 3600 s in rounds of 70


def test_one_answer_ends_the_wait(listener: Listener) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    for _ in range(60):
        clock.now_s += 1
        reporter.report(1, 2)
    assert reporter._failures >= 3
    sent = reporter.sent
    while reporter.sent == sent or reporter._socket is None:
        clock.now_s += 1
        reporter.report(1, 2)
    peers = accept_all(listener)
    peers[-1].sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"next_s":1.0}')
    clock.now_s += 1
    reporter.report(1, 2)
    assert reporter._failures == 0
    for peer in peers:
        peer.close()


def accept_all(listener: Listener) -> list[socket.socket]:
    listener.socket.setblocking(False)
    found: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 1000:
            found += [listener.socket.accept()[0]]
    return found


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n"])
def test_one_that_closes_every_connection_is_asked_less_and_less(listener: Listener, words: bytes) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    for _ in range(600):
        clock.now_s += 1
        reporter.report(1, 2)
        for peer in accept_all(listener):
            peer.sendall(words)
            peer.close()
    assert 10 <= reporter.sent <= 20


def test_a_process_that_wants_sigpipe_is_not_ended_by_an_agent_that_closes(tmp_path: Path) -> None:
    code = (
        "import signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from carico_agent.progress import Reporter\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "now = [0.0]; reporter = Reporter(sys.argv[1], lambda: now[0])\n"
        "reporter.report(1, 9); input()\n"
        "reporter._read_answers = lambda connection: True\n"  # the agent closes between the look and the report
        "now[0] = 9.0; reporter.report(2, 9); print(reporter.sent)"
    )
    with closing(Listener(tmp_path / "progress.sock")) as listener:
        job = subprocess.Popen(
            [sys.executable, "-c", code, listener.path, str(TREE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        listener.socket.settimeout(20)
        listener.socket.accept()[0].close()
        out, _ = job.communicate(b"\n", timeout=20)
    assert (job.returncode, out) == (0, b"1\n")


class TwoNumbers:
    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


@pytest.mark.parametrize(
    ("done", "total"),
    [
        (-1, 10),
        (11, 10),
        (1, 0),
        (1, -5),
        (float("nan"), 10),
        (1, float("inf")),
        (None, 10),
        ("x", "y"),
        (10**400, 1),
        (TwoNumbers(), 3),
    ],
)
def test_what_is_no_progress_is_not_sent(listener: Listener, done: Any, total: Any) -> None:
    reporter = Reporter(listener.path, Clock())
    reporter.report(done, total)
    assert reporter.sent == 0
    reporter.report(1, 2)  # and it does not use up the second
    assert reporter.sent == 1


@pytest.mark.parametrize("path", ["/" + "x" * 200, "a\0b", "", "/proc/self/exe"])
def test_a_bad_path_raises_nothing(path: str) -> None:
    reporter = Reporter(path or "/", Clock())
    reporter.report(1, 2)
    assert reporter.sent == 0


def test_a_forked_child_does_not_speak_for_its_parent(listener: Listener) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    reporter.report(1, 10)
    first, _ = listener.socket.accept()
    clock.now_s += 2
    child = os.fork()
    if child == 0:
        reporter.report(5, 10)
        os._exit(0)
    os.waitpid(child, 0)
    second, _ = listener.socket.accept()
    with first, second:
        assert bodies(first.recv(65536))[0]["done"] == 1
        assert bodies(second.recv(65536))[0]["done"] == 5
        assert peer_pid(second) == child
        assert peer_pid(first) == os.getpid()


def peer_pid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], sys.byteorder)


def test_threads_share_one_reporter(listener: Listener) -> None:
    reporter = Reporter(listener.path, Clock())
    threads = [threading.Thread(target=lambda: [reporter.report(n, 1000) for n in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reporter.sent == 1


def test_the_last_report_of_a_loop_leaves_at_its_end(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 steps in 3.4 s sent 1, 7, 13, 19; loops of less than a second stayed at their first step."""
    clock = Clock()
    monkeypatch.setattr(progress, "_own", Reporter(listener.path, clock))
    for _ in progress.track(range(20)):
        clock.now_s += 0.17
    for _ in progress.track(range(3)):
        clock.now_s += 0.5
    peer, _ = listener.socket.accept()
    with peer:
        done = [one["done"] for one in bodies(peer.recv(65536))]
    assert done == [1, 7, 13, 19, 20, 2, 3]


def test_a_loop_that_is_left_early_reports_where_it_was(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(progress, "_own", Reporter(listener.path, clock))
    for step in progress.track(range(100)):
        clock.now_s += 0.5 if step < 5 else 0.3
        if step == 9:
            break
    clock.now_s += 1.0
    progress._own.leave()
    peer, _ = listener.socket.accept()
    with peer:
        assert bodies(peer.recv(65536))[-1]["done"] == 9


def test_ten_thousand_short_loops_are_no_flood(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    monkeypatch.setattr(progress, "_own", reporter)
    for _ in range(1000):
        for _ in progress.track(range(10)):
            clock.now_s += 0.0001
    assert reporter.sent <= 4  # one second


def test_a_refusal_is_one_warning_with_its_remedy(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reporter = Reporter(listener.path, clock)
    body = b'{"error":"process 7 is in no Pod; say \\"processes = true\\""}'
    for _ in range(200):
        clock.now_s += 2
        reporter.report(1, 100)
        for peer in accept_all(listener):
            peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\n" + body)
    assert [record.getMessage() for record in caplog.records] == [
        'carico\'s agent refuses the progress of this process: process 7 is in no Pod; say "processes = true"'
    ]


def test_a_dead_system_agent_does_not_hide_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Listener(tmp_path / "own.sock")) as own:
        with closing(Listener(tmp_path / "dead.sock")) as dead:
            pass
        monkeypatch.setattr(progress, "default_paths", lambda: (dead.path, own.path))
        reporter = Reporter(None, Clock())
        reporter.report(1, 2)
    assert reporter.sent == 1


def test_a_file_instead_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    file.write_text("x" * 1000)
    monkeypatch.setenv("CARICO_PROGRESS_FILE", str(file))
    clock = Clock()
    reporter = Reporter(None, clock)
    for step in range(1, 4):
        clock.now_s += 1
        reporter.report(step, 3)
        assert json.loads(file.read_text())["done"] == step
    assert (reporter.sent, len(file.read_bytes())) == (3, 128)


def test_a_script_of_a_moment_is_seen_by_a_real_agent(start_agent: Callable[..., AgentProcess]) -> None:
    """The README's snippet on a laptop: no Pod, no configuration. It was refused, and said nothing."""
    agent = start_agent("--quiet")
    client = agent.wait()
    path = client.request("GET", "/v1/progress")["socket"]
    code = "import sys; from carico_agent.progress import track\nfor _ in track(range(20)): pass"
    job = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(TREE), "CARICO_PROGRESS_SOCKET": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert job.stderr == ""
    (found,) = client.request("GET", "/v1/progress")["jobs"]
    assert (found["namespace"], found["done"], found["total"]) == ("processes", 20, 20)


def test_errors_of_the_loop_are_the_loops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(progress.track(broken(), total=2))


class Unsized:
    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


@pytest.mark.parametrize("stream", [Unsized(), iter([1, 2])])
def test_an_unknown_length_reports_nothing(stream: Any, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter(listener.path, Clock())
    monkeypatch.setattr(progress, "_own", reporter)
    assert list(progress.track(stream)) == [1, 2]
    assert reporter.sent == 0


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (TREE / "docs/progress.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("at", [0, 1])
def test_the_examples_run_and_report_to_the_end(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[float, float]] = []
    monkeypatch.setattr(progress._own, "report", lambda done, total: calls.append((done, total)))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    exec(compile(examples()[at], "docs/progress.md", "exec"), {})
    assert calls[-1][0] == calls[-1][1] == (600, 20)[at]
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_the_client_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, carico_agent.progress\n"
        "known = set(sys.stdlib_module_names) | {'carico_agent', '__main__'}\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} - known),"
        " sorted(m for m in sys.modules if m.startswith('carico_agent')))"
    )
    code = f"import sys; sys.path.insert(0, {str(TREE)!r})\n{code}"
    found = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] ['carico_agent', 'carico_agent.progress', 'carico_agent.progress.client']"
