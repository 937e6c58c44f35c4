"""Components that run on this machine: their cgroup, and how often its quota held them up."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from carico_agent.plane.arguments import parse_flags

NAMES = {name[:15]: name for name in ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager")}
"""The kernel keeps 15 letters of a process's name."""


@dataclass(frozen=True, slots=True)
class Periods:
    """CFS bandwidth counters of one cgroup; they only grow."""

    total: int
    throttled: int


def throttled_ratio(old: Periods | None, new: Periods | None) -> float | None:
    """τ between two readings; None when unknown: no quota, no reading, counters reset.

    >>> throttled_ratio(Periods(100, 10), Periods(300, 130)), throttled_ratio(Periods(100, 10), Periods(100, 10))
    (0.6, None)
    """
    if old is None or new is None or new.total <= old.total or new.throttled < old.throttled:
        return None
    return (new.throttled - old.throttled) / (new.total - old.total)


def find(root: str = "/") -> dict[str, int]:
    """Process number by component; the first one found counts."""
    found: dict[str, int] = {}
    proc = Path(root) / "proc"
    for pid in sorted((entry for entry in os.listdir(proc) if entry.isdigit()), key=int):
        name = NAMES.get(_text(proc / pid / "comm").strip())
        if name is not None:
            found.setdefault(name, int(pid))
    return found


def periods(pid: int, root: str = "/") -> Periods | None:
    """Of the nearest cgroup above a process that has a quota; v2 and v1."""
    for line in _text(Path(root) / "proc" / str(pid) / "cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0":
            folder = Path(root) / "sys/fs/cgroup" / path.lstrip("/")
        elif "cpu" in controllers.split(","):
            folder = Path(root) / "sys/fs/cgroup/cpu" / path.lstrip("/")
        else:
            continue
        if (seen := periods_in(folder)) is not None:
            return seen
    return None


def memory_bytes(pid: int, root: str = "/") -> float | None:
    """What a process may use: its cgroup's limit, or all the machine has; v2."""
    found = [
        int(line.split()[1]) * 1024
        for line in _text(Path(root) / "proc/meminfo").splitlines()
        if line.startswith("MemTotal:")
    ]
    for line in _text(Path(root) / "proc" / str(pid) / "cgroup").splitlines():
        if line.startswith("0::"):
            limit = _text(Path(root) / "sys/fs/cgroup" / line[3:].lstrip("/") / "memory.max").strip()
            found += [int(limit)] if limit.isdecimal() else []
    return float(min(found)) if found else None


def command_of(pid: int, root: str = "/") -> list[str]:
    return _text(Path(root) / "proc" / str(pid) / "cmdline").rstrip("\0").split("\0")


def argument_values(pid: int, root: str = "/") -> dict[str, float]:
    """Numbers among a component's arguments, and of its configuration file those that stand for arguments."""
    flags = parse_flags(command_of(pid, root))
    values = {name: float(text) for name, text in flags.items() if text.replace(".", "", 1).isdecimal()}
    if path := flags.get("config"):
        inside = re.search(r"clientConnection\W+(?:[^}]|\n)*", _text(Path(root) / path.lstrip("/")))
        for key, flag in (("qps", "kube-api-qps"), ("burst", "kube-api-burst")):
            if inside and (found := re.search(rf'"?{key}"?:\s*([0-9.]+)', inside[0])):
                values[flag] = float(found[1])
    return values


def periods_in(folder: Path) -> Periods | None:
    pairs = dict(line.split() for line in _text(folder / "cpu.stat").splitlines() if len(line.split()) == 2)
    if not pairs.get("nr_periods", "").isdecimal() or not pairs.get("nr_throttled", "").isdecimal():
        return None
    return Periods(int(pairs["nr_periods"]), int(pairs["nr_throttled"]))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
