"""Child processes that keep one core busy each: the work of `carico demo`. They compute pi, as the Pods of *CARICO* do.

No child outlives its parent, however that ends, SIGKILL included: after every few digits a child compares its parent's
pid with the one it was started by.

Why not prctl(PR_SET_PDEATHSIG): it needs ctypes in the child (20 ms of start-up more) and follows the thread that
started the child, not the process. The comparison is one system call per 64 digits, about every 0.1 ms to 5 ms.
"""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from carico_agent.node.pods.processes import ProcessRuntime

NAME = "pi"
WORKLOAD = "demo/pi"

PROGRAM = """
import os, sys
parent = int(sys.argv[1])
while True:
    q, r, t, k, n, l = 1, 0, 1, 1, 3, 3
    for step in range(2000):
        if step % 64 == 0 and os.getppid() != parent:
            sys.exit()
        if 4 * q + r - t < n * t:
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            q, r, t, k, n, l = q * k, (2 * q + r) * l, t * l, k + 1, (q * (7 * k + 2) + r * l) // (t * l), l + 2
"""
"""Digits of pi one by one (Gibbons' spigot), from the start again after 2000 steps, so that memory stays small."""


class BusyLoops:
    """Started and stopped together, each counted as a Pod by `runtime`. Leaving the context ends them all."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    @property
    def running(self) -> int:
        return sum(child.poll() is None for child in self._children.values())

    def start(self, count: int) -> None:
        """OSError: no more processes may be started here."""
        # -I -S: neither the user's site-packages nor environment; a child starts in 10 ms instead of 30
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(os.getpid())]
        for _ in range(count):
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self._started += 1
            self._children[self._runtime.register(child.pid, f"{NAME}-{self._started}", WORKLOAD)] = child

    def stop(self) -> None:
        for child in self._children.values():
            child.kill()
        for key, child in self._children.items():
            child.wait()
            self._runtime.unregister(key)
        self._children.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
