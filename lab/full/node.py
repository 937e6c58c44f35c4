"""Processes in cgroups of their own, with cpu shares, on this machine; all removed afterwards."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.pods import Pod
from lab.bench.pods import pods_of
from lab.support.alone import prefer

USUAL_SHARES = 1024


class CgroupPods:
    """Use as a context manager. Each Pod is one process in one group below a directory of our own."""

    def __init__(self, name: str, first: bool = False) -> None:
        """`first`: before all other users of this machine."""
        self._first = first
        self.locator = Locator(Path("/"))
        layout = self.locator.layout
        self._v2 = not layout.controllers
        self._mounts = dict.fromkeys([*layout.controllers.values(), *filter(None, [layout.unified])])
        self._top = name
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def start(
        self, name: str, command: Sequence[str], shares: int = USUAL_SHARES, **more: Any
    ) -> "subprocess.Popen[bytes]":
        """It waits for a line until it is in its group: what it forks before would stay outside."""
        waiting = ["sh", "-c", 'read line; exec "$@"', "sh", *command]
        process = subprocess.Popen(waiting, start_new_session=True, stdin=subprocess.PIPE, **more)
        self._running[name] = process
        for mount in self._mounts:
            folder = Path(f"/{mount}/{self._top}/{name}")
            folder.mkdir(parents=True, exist_ok=True)
            self._set_shares(folder, shares)
            (folder / "cgroup.procs").write_text(str(process.pid))
        if self._first:
            prefer(self._top)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        return process

    def _set_shares(self, folder: Path, shares: int) -> None:
        if (folder / "cpu.shares").exists():
            (folder / "cpu.shares").write_text(str(shares))
        elif (folder / "cpu.weight").exists():
            # the kubelet's: shares of 2 to 262144 become weights of 1 to 10000
            (folder / "cpu.weight").write_text(str(1 + (shares - 2) * 9999 // 262142))

    def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        for mount in self._mounts:
            Path(f"/{mount}/{self._top}/{name}").rmdir()

    def pods(self) -> dict[str, Pod]:
        return pods_of(self.locator, self._top, list(self._running))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name in list(self._running):
            self.stop(name)
        for mount in self._mounts:
            Path(f"/{mount}/{self._top}").rmdir()
