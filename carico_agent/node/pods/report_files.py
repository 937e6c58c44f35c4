"""Reports that Pods write to a file in an emptyDir named `carico-progress`: read from the kubelet's folder of Pods.

A Pod needs no hostPath and the agent no hostPID: the kubelet made the folder `UID/volumes/kubernetes.io~empty-dir/` and
so the path says whose report it is. What lies in the emptyDir was written by the Pod. It is opened without following
links and without waiting, only regular files are read, and of those 4 kB. Nothing stays open: a descriptor in a tmpfs
would keep the kubelet from unmounting it.

Why not `/proc/PID/root`: it needs hostPID and CAP_SYS_PTRACE, with which the agent could read all memory of all Pods.
This needs the kubelet's folder, read-only. Secrets of Pods are in there, too: docs/progress.md says so.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from carico_agent.node.pods.pods import Pod
from carico_agent.progress.table import BadReport, parse

VOLUME = "volumes/kubernetes.io~empty-dir/carico-progress"
FILE = "report.json"
MAX_BYTES = 4096
MAX_LOOKS = 5
"""The kubelet mounts the volumes of a Pod before it starts the sandbox. A Pod without one by then has none."""


@dataclass(slots=True)
class _Watched:
    looks: int = 0
    has_volume: bool = False
    changed_ns: int = 0


class ReportFiles:
    """Reads a few files at each look, in turn. For one thread."""

    def __init__(self, folder: str) -> None:
        """`folder`: the kubelet's, with a folder for each Pod's UID in it."""
        self._folder = folder
        self._pods: dict[str, _Watched] = {}
        self.bad = 0
        """Files that were no report."""

    def __len__(self) -> int:
        """Pods that have the volume."""
        return sum(one.has_volume for one in self._pods.values())

    def poll(self, pods: Mapping[str, Pod], max_reads: int) -> Iterator[tuple[Pod, float, float]]:
        """(Pod, done, total) of those whose file has been written since the last look at it."""
        by_uid = {pod.uid: pod for pod in pods.values() if pod.uid}
        known = {uid: one for uid, one in self._pods.items() if uid in by_uid}  # in the order of their turns
        self._pods = known | {uid: _Watched() for uid in by_uid if uid not in known}
        for uid, one in self._pods.items():
            if not one.has_volume and one.looks < MAX_LOOKS:
                one.looks += 1
                one.has_volume = os.path.isdir(f"{self._folder}/{uid}/{VOLUME}")
        due = [uid for uid, one in self._pods.items() if one.has_volume][:max_reads]
        for uid in due:
            watched = self._pods[uid] = self._pods.pop(uid)  # to the end: the others come first next time
            try:
                if (found := self._read(uid, watched)) is not None:
                    yield by_uid[uid], *found
            except (OSError, ValueError, RecursionError):  # the last: 2,000 brackets
                self.bad += 1

    def _read(self, uid: str, watched: _Watched) -> tuple[float, float] | None:
        """None: nothing new. Raises OSError, ValueError."""
        folder = os.open(f"{self._folder}/{uid}/{VOLUME}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            changed_ns, text = _read_file(folder)
        finally:
            os.close(folder)
        if changed_ns == watched.changed_ns or not text:
            return None
        body = json.loads(text)
        if not isinstance(body, dict):
            raise BadReport("an object is expected")
        watched.changed_ns = changed_ns  # not of half a line: that is read again
        return parse(body)


def _read_file(folder: int) -> tuple[int, bytes]:
    """(when it was written [ns], what is in it); (0, b"") while there is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(FILE, flags, dir_fd=folder)
    except FileNotFoundError:
        return 0, b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise BadReport("not a regular file")
        return found.st_mtime_ns, os.pread(file, MAX_BYTES, 0)
    finally:
        os.close(file)
