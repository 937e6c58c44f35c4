"""Processes to be measured: what they use, and an agent of one's own on a private socket."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 20.0


def cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads, dead ones included: clock_getcpuclockid(3), in nanoseconds where
    /proc/PID/stat has ticks of 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_mb(pid: int) -> dict[str, float]:
    """Rss and Pss (shared pages divided by their users) and Anonymous, in MB of 2^20 bytes."""
    pairs = (line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {key[:-1]: int(value) / 1024 for key, value in pairs}


class Http:
    """The cheapest client there is: one connection kept open, no headers understood but the length."""

    def __init__(self, address: str | tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self._socket.settimeout(10.0)
        self._socket.connect(address)

    def get(self, path: str) -> bytes:
        self._socket.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        data = self._receive()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head, body = data[:end].lower(), data[end + 4 :]
        if (at := head.find(b"content-length:")) >= 0:
            length = int(head[at + 15 :].split(None, 1)[0])
            while len(body) < length:
                body += self._receive()
            return body
        while not body.endswith(b"0\r\n\r\n"):
            body += self._receive()
        return body

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the server hung up")
        return data

    def close(self) -> None:
        self._socket.close()


@contextmanager
def running(command: Sequence[str], folder: Path | None = None, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block. `folder`: where it runs."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


class OwnAgent:
    """A real `carico agent --quiet` under measurement."""

    def __init__(self, process: subprocess.Popen[bytes], path: str) -> None:
        self.pid, self.path = process.pid, path
        self._process = process

    def wait(self) -> None:
        """Until it has answered a first status."""
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                result = self._process.stderr.read().decode() if self._process.stderr else ""
                raise RuntimeError(f"the agent ended with {self._process.returncode}: {result[-300:]}")
            try:
                if b'"pod_capacity"' in Http(self.path).get("/v1/status"):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise RuntimeError(f"the agent has not answered for {START_S} s")

    def about_itself(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(Http(self.path).get("/v1/self"))
        return body


@contextmanager
def agent(*flags: str, preload: str = "", config: str = "", tree: Path | None = None) -> Iterator[OwnAgent]:
    """An agent on a private socket; `preload` names modules it imports first, `config` is TOML, `tree` has the code."""
    with tempfile.TemporaryDirectory(prefix="carico-bench-") as folder:
        path = f"{folder}/agent.sock"
        if config:
            Path(f"{folder}/config.toml").write_text(config)
            flags = (*flags, "--config", f"{folder}/config.toml")
        start = ["-m", "carico_agent"]
        if preload:
            start = [
                "-c",
                f"import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import {preload}; "
                "import sys; from carico_agent.cli import main; sys.exit(main())",
            ]
        command = [sys.executable, *start, "agent", "--quiet", "--socket", path, *flags]
        with running(command, tree, STATE_DIRECTORY=f"{folder}/state") as process:  # nothing learned in other runs
            own = OwnAgent(process, path)
            own.wait()
            yield own
