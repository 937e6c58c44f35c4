"""`carico top` and `carico status` with a real agent: in a terminal, in a pipe, and how they end."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.node.commands._terminal import ENTER, LEAVE
from tests.conftest import TREE, AgentProcess

WORKLOAD = "processes/carico-test-worker"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """On a machine without containers, on which one command is a Pod; for all tests here that only look."""
    folder = tmp_path_factory.mktemp("agent")
    config, whose = folder / "c.toml", str(os.getpid())  # other runs of this test have workers, too
    config.write_text(f'[processes]\ncommands = ["* carico-test-worker {whose}"]\n')
    command = [sys.executable, "-c", "input()", "carico-test-worker", whose]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        process = AgentProcess(folder, "--config", str(config))
        try:
            process.wait(lambda one: bool(one.status().get("workloads")))
            yield process
        finally:
            worker.kill()
            process.process.kill()
            process.process.wait()


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class TopInTerminal:
    """`carico top` in a pseudo-terminal of 100×30."""

    def __init__(self, socket: str, **environment: str) -> None:
        self.screen, self._terminal = pty.openpty()
        set_size(self.screen, 100, 30)
        self.before = termios.tcgetattr(self._terminal)
        command = [sys.executable, "-m", "carico_agent", "top", "--socket", socket]
        self.process = subprocess.Popen(
            command,
            cwd=TREE,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        )
        self.seen = ""

    def until(self, text: str) -> None:
        """Read on until it shows `text`."""
        self.seen = ""
        ends_s = time.monotonic() + 60
        while text not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0.0, ends_s - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen[-4000:]!r}"
            self.seen += os.read(self.screen, 65536).decode(errors="replace")

    def press(self, key: str) -> None:
        os.write(self.screen, key.encode())

    def resize(self, columns: int, rows: int) -> None:
        set_size(self.screen, columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def restored(self) -> bool:
        return termios.tcgetattr(self._terminal) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.screen)
        os.close(self._terminal)


@pytest.fixture
def top(agent: AgentProcess) -> Iterator[TopInTerminal]:
    one = TopInTerminal(agent.socket)
    yield one
    one.close()


def test_keys_and_sizes(top: TopInTerminal) -> None:
    top.until("q quit")
    assert top.seen.startswith(ENTER)
    assert not top.restored()
    top.until(WORKLOAD)
    top.press("m")
    top.until("memory▼")
    top.press("?")
    top.until("any key: back")
    top.press("x")
    top.until(WORKLOAD)
    top.press("\t")
    top.until("[Pods]")
    top.press("/none")
    top.until("nothing matches none")
    top.press("\r\x1b")
    top.until(WORKLOAD)
    top.resize(40, 12)
    top.until("…")
    top.resize(120, 40)
    top.until(WORKLOAD)
    top.press("q")
    top.until(LEAVE)
    assert top.process.wait() == 0
    assert top.restored()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda one: str(int(one)),
)
def test_the_terminal_is_given_back(top: TopInTerminal, number: signal.Signals, code: int) -> None:
    top.until("q quit")
    top.process.send_signal(number)
    top.until(LEAVE)
    assert top.process.wait() == code
    assert top.restored()


def test_suspended_and_continued(top: TopInTerminal) -> None:
    top.until("q quit")
    top.process.send_signal(signal.SIGTSTP)
    top.until(LEAVE)
    os.waitpid(top.process.pid, os.WUNTRACED)
    assert top.restored()
    top.process.send_signal(signal.SIGCONT)
    top.until(ENTER)
    top.until("q quit")
    assert not top.restored()


def test_no_color_and_a_dumb_terminal(agent: AgentProcess) -> None:
    with closing(TopInTerminal(agent.socket)) as top:
        top.until("q quit")
        assert "\x1b[1mcarico" in top.seen
    with closing(TopInTerminal(agent.socket, NO_COLOR="1")) as top:
        top.until("q quit")
        assert "\x1b[1m" not in top.seen and "\x1b[32m" not in top.seen
    with closing(TopInTerminal(agent.socket, TERM="dumb")) as top:
        top.until("Pods 1")
        assert "\x1b" not in top.seen


def test_the_agent_stops(start_agent: Callable[..., AgentProcess]) -> None:
    process = start_agent()
    process.wait()
    with closing(TopInTerminal(process.socket)) as top:
        top.until("q quit")
        process.stop()
        top.until(LEAVE)
        assert top.process.wait() == 1
        assert top.restored()


def test_one_view(agent: AgentProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--socket", agent.socket]) == 0
    result = capsys.readouterr().out
    assert "1 Pods, slots" in result
    assert WORKLOAD in result
    assert "\x1b" not in result


def test_plain_lines_without_a_terminal(agent: AgentProcess) -> None:
    command = [sys.executable, "-m", "carico_agent", "top", "--socket", agent.socket]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert all("Pods 1" in line and "cpu" in line and "\x1b" not in line for line in lines)


def test_status_counts_the_process(agent: AgentProcess, capsys: pytest.CaptureFixture[str]) -> None:
    agent.wait(lambda one: None not in one.status()["host"].values())  # what no Pod uses is known after two readings
    assert main(["status", "--socket", agent.socket]) == 0
    result = capsys.readouterr().out
    assert "Pods     1 running" in result
    assert "1 units and processes counted as Pods" in result
    assert WORKLOAD in result
    assert "  host     takes" in result


def test_no_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--socket", str(tmp_path / "none")]) == 1
    assert "is `carico agent` running?" in capsys.readouterr().err
