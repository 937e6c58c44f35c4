"""Processes outside of Pods that report their progress: each is an entry of its own, as long as it runs.

What is known of one is what the kernel says: its pid and start time, the user, the script it runs. It stays listed for
a minute after its end, so that a user who starts a short script and then types `carico progress` sees that it ran.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from carico_agent.node.pods.peer_pod import Process
from carico_agent.node.pods.pods import Member, Pod
from carico_agent.node.pods.process_counters import used_s
from carico_agent.node.pods.small_files import read_once

NAMESPACE = "processes"
PREFIX = "process/"
KEPT_S = 60.0
MAX_PROCESSES = 256
"""With more, the one that came first goes."""
INTERPRETERS = ("python", "pypy", "bash", "sh", "node", "ruby", "perl", "java", "Rscript", "julia")


def is_plain(key: str) -> bool:
    return key.startswith(PREFIX)


@dataclass(slots=True)
class _Entry:
    pod: Pod
    process: Process
    ended_s: float | None = None


class PlainProcesses:
    """The table of them. For one thread."""

    def __init__(self, proc: str, lives: Callable[[Process], bool]) -> None:
        self._proc, self._lives = proc, lives
        self._entries: dict[str, _Entry] = {}
        self.pods: Mapping[str, Pod] = MappingProxyType({})
        """Replaced when one comes or goes, never changed."""

    def pod_of(self, process: Process) -> Pod:
        """The entry of this process; new ones are made."""
        key = f"{PREFIX}{process.pid}-{process.started_ticks}"
        if key not in self._entries:
            name = script_name(arguments_of(process.pid, self._proc)) or "process"
            self._entries[key] = _Entry(
                Pod(
                    key,
                    f"{name}-{process.pid}",
                    NAMESPACE,
                    containers=(Member(str(process.pid), name, process.pid),),
                    counts=False,
                ),
                process,
            )
            while len(self._entries) > MAX_PROCESSES:
                del self._entries[next(iter(self._entries))]
            self._renew()
        return self._entries[key].pod

    def forget(self, process: Process) -> None:
        """It turned out to be in a Pod: the agent had not known that Pod when the process connected."""
        if self._entries.pop(f"{PREFIX}{process.pid}-{process.started_ticks}", None) is not None:
            self._renew()

    def refresh(self, now_s: float) -> None:
        """Once a second: which have ended."""
        for key, entry in tuple(self._entries.items()):
            if entry.ended_s is None and not self._lives(entry.process):
                entry.ended_s = now_s
            if entry.ended_s is not None and now_s - entry.ended_s > KEPT_S:
                del self._entries[key]
        if self._entries.keys() != self.pods.keys():
            self._renew()

    def has_ended(self, key: str) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.ended_s is not None

    def _renew(self) -> None:
        self.pods = MappingProxyType({key: entry.pod for key, entry in self._entries.items()})


class ProcessCpu:
    """CPU seconds of Pods that are processes, never less than before: a child that ended and is not waited for yet
    takes its time with it for a while."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._max_s: dict[str, float] = {}

    def read(self, pod: Pod) -> float:
        """NaN: it has ended."""
        now_s = used_s(pod.pids[0], int(pod.key.rpartition("-")[2]), self._proc)
        if now_s == now_s:
            self._max_s[pod.key] = now_s = max(now_s, self._max_s.get(pod.key, 0.0))
        return now_s

    def keep(self, keys: Mapping[str, Pod]) -> None:
        self._max_s = {key: used for key, used in self._max_s.items() if key in keys}


def arguments_of(pid: int, proc: str) -> list[str]:
    """Its command line; empty: it is gone."""
    try:
        data = read_once(f"{proc}/{pid}/cmdline")
    except OSError:
        return []
    return [part.decode(errors="replace") for part in data.split(b"\0") if part]


def script_name(arguments: list[str]) -> str:
    """What a user calls a process: the script, not its interpreter.

    >>> script_name(["/usr/bin/python3", "-u", "/home/ada/train.py", "--epochs", "3"]), script_name(["/opt/solve"])
    ('train.py', 'solve')
    >>> script_name(["python3", "-m", "lab.train"]), script_name(["python3", "-c", "print()"]), script_name([])
    ('lab.train', 'python3', '')
    """
    if not arguments:
        return ""
    program = os.path.basename(arguments[0])
    if not program.startswith(INTERPRETERS):
        return _printable(program)
    for at, word in enumerate(arguments[1:], 1):
        if word == "-m" and len(arguments) > at + 1:
            return _printable(arguments[at + 1])
        if word == "-c":
            break
        if not word.startswith("-"):
            return _printable(os.path.basename(word))
    return _printable(program)


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:40]
