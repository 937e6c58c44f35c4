"""Which Pod a process belongs to, by the kernel's word: pid → /proc/PID/cgroup → the Pod whose group that is.

What a process says about itself is not asked for. Three ways of passing for another Pod are closed:

- A group of one's own with another Pod's name. A user who may make cgroups (a user's systemd, a container with a
  writable tree) can call one `pod<uid>`. So names are not read at all: a group belongs to a Pod when its path is that
  of a Pod we know, or below, and the directory has that Pod's inode. Of nested ones the outermost counts.
- A pid that was used again. /proc/PID is opened once, and its start time is the same before and after its group was
  read; a connection remembers it. Between connect and accept the kernel's SO_PEERPIDFD (Linux 6.5) shows whether that
  process still lives.
- A process that moves to another group after it has connected: its path is compared with the one at the connection.
"""

import os
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from carico_agent.lib.net.peers import peer_pid, peer_pidfd
from carico_agent.node.pods.cgroups import POD_DIRECTORY, V1_CONTROLLERS, Group, Locator, parse, parse_started
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.process_counters import read_stat

MAX_ANCESTORS = 32


class NotInPod(Exception):
    """The process is in no Pod of this node; the text says why."""


class NotSeen(NotInPod):
    """The process cannot be seen from here, or has ended."""


class Elsewhere(NotInPod):
    """It is not the process that connected, or not where that one was."""


class NotYet(NotInPod):
    """It is in a Pod that this agent does not know yet."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one instant; another one with the same pid is not equal to it."""

    pid: int
    started_ticks: int
    cgroup: str
    """Its path in the hierarchy that says which groups exist."""


class PodGroups:
    """The groups of each Pod. Most have one around their containers; the others are looked for once per set of pids."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator
        self._pods: Mapping[str, Pod] = {}
        self._by_path: dict[str, tuple[str, int]] = {}
        self.of_processes = False
        """Whether some Pods are plain processes (processes.py), without a cgroup of their own."""
        self._found: dict[tuple[str, tuple[int, ...]], tuple[Group, ...]] = {}

    def of(self, pod: Pod) -> tuple[Group, ...]:
        """Empty: not found (yet)."""
        if len(pod.pids) < 2 or (pod.uid and POD_DIRECTORY.search(pod.cgroup.rpartition("/")[2])):
            whole = self._locator.at(pod.cgroup) if pod.inode else None
            return (whole,) if whole is not None and whole.inode == pod.inode else ()
        key = (pod.key, pod.pids)
        if key not in self._found:
            self._found[key] = self._locator.find(pod)
        return self._found[key]

    def pod_at(self, path: str, pods: Mapping[str, Pod]) -> Pod | None:
        """The Pod whose group `path` is, or is below of."""
        if pods is not self._pods:  # a table of Pods is replaced, never changed
            self._index(pods)
        end = 0
        while end >= 0:
            end = path.find("/", end + 1)
            known = self._by_path.get(path if end < 0 else path[:end])
            if known is not None:
                key, inode = known
                here = self._locator.at(path if end < 0 else path[:end])
                return pods.get(key) if here is not None and here.inode == inode else None
        return None

    def _index(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        keys = {(pod.key, pod.pids) for pod in pods.values()}
        self._found = {key: groups for key, groups in self._found.items() if key in keys}
        self.of_processes = any(
            pod.pids and not pod.cgroup and pod.key.startswith(f"{pod.pids[0]}-") for pod in pods.values()
        )
        self._by_path = {group.path: (pod.key, group.inode) for pod in pods.values() for group in self.of(pod)}


class PeerPods:
    """Finds the Pod at the other end of a connection."""

    def __init__(self, root: Path, pods: Callable[[], Mapping[str, Pod]]) -> None:
        """`root`: the folder with proc/ and sys/ in it; `pods()`: those that run here now."""
        self._root, self._pods = root, pods
        locator = Locator(root)
        self.groups = PodGroups(locator)
        self._hierarchy = next((name for name in V1_CONTROLLERS if name in locator.layout.controllers), "")

    def accept(self, connection: socket.socket) -> tuple[Process, Pod]:
        """The process that has connected, and its Pod. Raises NotInPod."""
        process = self.connected(connection)
        return process, self.pod_of(process)

    def connected(self, connection: socket.socket) -> Process:
        """The process that has connected. Raises NotSeen."""
        pid = peer_pid(connection)
        if pid <= 0:
            raise NotSeen(
                "the process is in a PID namespace that the agent does not see; give the agent's DaemonSet hostPID: "
                "true, or let the Pod report by a file ($CARICO_PROGRESS_FILE, docs/progress.md)"
            )
        try:
            alive = peer_pidfd(connection)
        except ProcessLookupError as error:
            raise NotSeen(str(error)) from error
        try:
            process = self.find(pid)
            if alive is not None and _has_ended(alive):
                raise NotSeen(f"process {pid} has ended")
        finally:
            if alive is not None:
                os.close(alive)
        return process

    def again(self, process: Process) -> Pod:
        """The Pod of a process that was accepted earlier. Raises NotInPod, also when it is not the same any more."""
        now = self.find(process.pid)
        if now.started_ticks != process.started_ticks:
            raise Elsewhere(f"process {process.pid} is another one than the one that connected")
        if now.cgroup != process.cgroup:
            if read_stat(process.pid, f"{self._root}/proc") is None:  # a zombie, which the kernel has put elsewhere
                raise NotSeen(f"process {process.pid} has ended")
            raise Elsewhere(f"process {process.pid} has moved to another cgroup; connect again")
        return self.pod_of(now)

    def lives(self, process: Process) -> bool:
        """Whether that very process still runs."""
        try:
            return self.find(process.pid).started_ticks == process.started_ticks
        except NotInPod:
            return False

    def find(self, pid: int) -> Process:
        """The process with this pid. Raises NotInPod when it is gone."""
        try:
            folder = os.open(f"{self._root}/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NotSeen(f"process {pid} is gone") from error
        try:
            before = parse_started(_read(folder, "stat"))
            path = parse(_read(folder, "cgroup")).get(self._hierarchy, "")
            after = parse_started(_read(folder, "stat"))
        except (OSError, ValueError) as error:
            raise NotSeen(f"process {pid} is gone") from error
        finally:
            os.close(folder)
        if before != after:
            raise NotSeen(f"process {pid} is another one than before")
        return Process(pid, after, path)

    def pod_of(self, process: Process) -> Pod:
        """Raises NotInPod."""
        pods = self._pods()
        pod = self.groups.pod_at(process.cgroup, pods) or self._by_ancestor(process, pods)
        if pod is not None:
            return pod
        if any(POD_DIRECTORY.search(part) for part in process.cgroup.split("/")):
            raise NotYet(f"process {process.pid} is in no Pod that the agent knows yet; it scans every few seconds")
        raise NotInPod(f"process {process.pid} is in no Pod of this node (its cgroup: {process.cgroup or 'none'})")

    def _by_ancestor(self, process: Process, pods: Mapping[str, Pod]) -> Pod | None:
        """Where processes count as Pods (`[processes]`): the one that is this process, or has started it."""
        if not self.groups.of_processes:
            return None
        pid, found = process.pid, None
        for _ in range(MAX_ANCESTORS):
            stat = read_stat(pid, f"{self._root}/proc")
            if stat is None:
                break
            found = pods.get(f"{pid}-{stat.started}") or found  # the outermost counts
            pid = stat.parent
        return found


def _has_ended(pidfd: int) -> bool:
    """A pidfd becomes readable when its process ends. poll, for select takes no descriptor above 1023."""
    watch = select.poll()
    watch.register(pidfd, select.POLLIN)
    return bool(watch.poll(0))


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, 4096).decode(errors="surrogateescape")
    finally:
        os.close(descriptor)
