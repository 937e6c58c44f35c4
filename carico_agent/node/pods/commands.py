"""Which running commands are Pods: globs, compared with the name of a command and with its whole command line.

The kernel's name of a process has at most 15 characters and says "python3" for every script. So a glob may also match
the command line, its words joined by blanks, with and without the folder of the program: `python3 train.py*` finds
`/usr/bin/python3 train.py --epochs 9`. All processes that one glob finds are of one workload: the glob is their
template.

Why only the topmost process of a tree is a Pod: servers fork workers under their own name, and a worker's usage is part
of its server's.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from carico_agent.node.pods.process_counters import ProcessStat, read_stat
from carico_agent.node.pods.small_files import read_once

_WILDCARDS = re.compile(r"\[[^]]*\]|[*?]")
_ENDS = " ._:-/"


def find_commands(globs: Sequence[str], proc: str = "/proc") -> Iterator[tuple[int, ProcessStat, str]]:
    """Each topmost process that a glob matches: its pid, its stat and the first such glob."""
    pids = [int(name) for name in os.listdir(proc) if name.isdigit()]
    running = {pid: stat for pid in pids if (stat := read_stat(pid, proc))}
    if proc == "/proc":
        running.pop(os.getpid(), None)  # `carico agent` is no Pod of its own
    found = {pid: glob for pid, stat in running.items() if (glob := matching(globs, stat.command, pid, proc))}
    for pid, glob in found.items():
        if not any(above in found for above in _ancestors(running, pid)):
            yield pid, running[pid], glob


def matching(globs: Sequence[str], command: str, pid: int, proc: str = "/proc") -> str:
    """The first glob that matches the command's name or its line; empty: none."""
    for glob in globs:
        if fnmatchcase(command, glob):
            return glob
    lines = command_lines(_read_line(pid, proc))
    return next((glob for glob in globs for line in lines if fnmatchcase(line, glob)), "")


def command_lines(data: bytes) -> tuple[str, ...]:
    """/proc/PID/cmdline as people would write it: as it was started, and without the program's folder.

    >>> command_lines(b"/usr/bin/python3\\0train.py\\0-v\\0")
    ('/usr/bin/python3 train.py -v', 'python3 train.py -v')
    >>> command_lines(b"")
    ()
    """
    words = data.decode(errors="replace").rstrip("\0").split("\0")
    if not words[0]:
        return ()  # a thread of the kernel, or not ours to see
    return " ".join(words), " ".join([words[0].rpartition("/")[2], *words[1:]])


def template_of(glob: str, command: str) -> str:
    """The name of the workload that a glob stands for; that of the command where a glob says nothing.

    >>> template_of("python3 train.py*", "python3"), template_of("/opt/db/bin/postgres", "x"), template_of("*", "x")
    ('python3-train.py', 'postgres', 'x')
    """
    program, *rest = _WILDCARDS.sub(" ", glob).split() or [""]
    words = [program.rpartition("/")[2], *rest]
    return "-".join(word.strip(_ENDS) for word in words if word.strip(_ENDS)) or command


def _read_line(pid: int, proc: str) -> bytes:
    try:
        return read_once(f"{proc}/{pid}/cmdline")
    except OSError:
        return b""


def _ancestors(running: Mapping[int, ProcessStat], pid: int) -> Iterator[int]:
    seen = {pid}
    while (stat := running.get(pid)) is not None and stat.parent not in seen:
        pid = stat.parent
        seen.add(pid)
        yield pid
