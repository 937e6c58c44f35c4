"""Components that run on this machine: their cgroup, and how often its quota held them up."""

import os
from dataclasses import dataclass
from pathlib import Path

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
        if (seen := _periods(folder)) is not None:
            return seen
    return None


def _periods(folder: Path) -> Periods | None:
    pairs = dict(line.split() for line in _text(folder / "cpu.stat").splitlines() if len(line.split()) == 2)
    if not pairs.get("nr_periods", "").isdecimal() or not pairs.get("nr_throttled", "").isdecimal():
        return None
    return Periods(int(pairs["nr_periods"]), int(pairs["nr_throttled"]))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
