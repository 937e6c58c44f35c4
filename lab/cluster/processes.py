"""The processes of a cluster, found by what they inherited: an environment variable that names the cluster's folder.

Why not a list of process ids: a list is wrong after a crash, and an id may belong to another process by then.
"""

import os
import signal
import time
from pathlib import Path

MARK = "CARICO_CLUSTER"


def mark(folder: Path) -> None:
    """All that this process starts from now on belongs to the cluster in `folder`."""
    os.environ[MARK] = str(folder)


def running(folder: Path) -> list[int]:
    """Ids of all processes of the cluster but this one."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if wanted in environment and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def end(folder: Path, grace_s: float = 20.0) -> int:
    """Terminates, then kills; returns how many there were."""
    first = running(folder)
    _signal(first, signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while (left := running(folder)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    while left:
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
        left = running(folder)
    return len(first)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
