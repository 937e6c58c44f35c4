"""What `carico top` shows, as lines: pure functions of a status, the Pods and the size of the terminal."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from carico_agent.node.commands.status import headline, number, per_node_workloads, workloads_table
from carico_agent.node.publish.status import Status, WorkloadStatus
from carico_agent.node.publish.words import in_bytes, next_workloads, takes

SPARKS = " ▁▂▃▄▅▆▇█"
SORTS = {"a": "arrivals", "c": "cpu", "m": "memory", "n": "name"}
"""Key → what workloads and Pods are sorted by."""


@dataclass(frozen=True, slots=True)
class ScreenPod:
    """One Pod; None where its counters cannot be read."""

    name: str
    workload: str
    cores: float | None
    memory_bytes: float | None


@dataclass(frozen=True, slots=True)
class ScreenView:
    status: Status
    age_s: float
    history: Sequence[float] = ()
    """Pod-Capacity, oldest first."""
    span_s: float = 0.0
    """The time that history covers [s]."""
    pods: Sequence[ScreenPod] = ()
    sort: str = "a"


def screen(view: ScreenView, columns: int, rows: int) -> list[str]:
    """The lines of a terminal of this size; what does not fit is left out from below, and a line names it."""
    status, width = view.status, max(10, min(60, columns - 30))
    lines = [f"carico  {status.node}  {status.time[:19]}  #{status.sequence}", ""]
    lines += textwrap.wrap(headline(status, view.age_s), max(20, columns - 1), break_on_hyphens=False)
    lines += ["", *_usage(status, width), *_history(view, width)]
    lines += ["", f"{status.pods} Pods, slots {number(status.slots)}   {status.runtime}", *_work(status)]
    if workloads := workloads_table(status, sorted_workloads(status, view.sort)):
        lines += ["", *workloads]
    if view.pods:
        lines += ["", *_pods(view)]
    keys = "q quit   sort by: " + "  ".join(f"{'>' if k == view.sort else ''}{k} {v}" for k, v in SORTS.items())
    return [printable(line)[: columns - 1] for line in [*_fitting(lines, rows - 1), keys]]


def _fitting(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: max(0, most - 1)], f"… {len(lines) - most + 1} more lines: make the window larger"]


def _usage(status: Status, width: int) -> list[str]:
    lines = []
    for name, value in status.usage.items():
        mark = " ◄ limits" if status.limiting == name else ""
        amount = "   ?" if value is None else f"{value:6.1%}"
        lines.append(f"{name:>10} {bar(value, width, status.host.get(name))} {amount}{mark}")
    if host := takes(status.host, status.sizes):
        lines.append(f"{'':10} ▓ host {host}   █ Pods   ░ free")
    return lines


def _history(view: ScreenView, width: int) -> list[str]:
    if not view.history:
        return []
    most = max(view.history)
    ago = f"{view.span_s / 60:.0f} min" if view.span_s >= 90 else f"{view.span_s:.0f} s"
    return [f"{'fits':>10} {spark(shrink(view.history, width)):{width}} 0 to {most:.1f}, last {ago}"]


def _work(status: Status) -> list[str]:
    """What jobs still need; nothing where none reports."""
    work = status.work
    if not work.jobs:
        return []
    unknown = f", {work.unknown} more without an estimate" if work.unknown else ""
    return [f"work left: {work.total_s:.0f} s of CPU in {work.jobs} jobs, longest {work.longest_s:.0f} s{unknown}"]


def sorted_workloads(status: Status, sort: str) -> list[WorkloadStatus]:
    workloads = next_workloads(status) + per_node_workloads(status)
    if sort == "n":
        return sorted(workloads, key=lambda workload: workload.workload)
    if sort in ("c", "m"):
        resource = SORTS[sort]
        return sorted(workloads, key=lambda workload: -(workload.cost.get(resource) or 0.0) * workload.pods)
    return workloads


POD_ORDER: dict[str, Callable[[ScreenPod], Any]] = {
    "m": lambda pod: (-(pod.memory_bytes or 0.0), pod.name),
    "n": lambda pod: pod.name,
}


def _pods(view: ScreenView) -> list[str]:
    """By cpu unless another order was asked for."""
    pods = sorted(view.pods, key=POD_ORDER.get(view.sort, lambda pod: (-(pod.cores or 0.0), pod.name)))
    wide = max(len("Pod"), *(len(pod.name) for pod in pods))
    lines = [f"{'Pod':{wide}}    cores     memory  workload"]
    for pod in pods:
        cores = "?" if pod.cores is None else f"{pod.cores:.2f}"
        memory = "?" if pod.memory_bytes is None else in_bytes(pod.memory_bytes)
        lines.append(f"{pod.name:{wide}}  {cores:>7}  {memory:>9}  {pod.workload}")
    return lines


class PodRates:
    """Rows from /v1/pods: CPU time becomes cores between two answers."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}
        self._cores: dict[str, float] = {}

    def rows(self, bodies: Sequence[Mapping[str, Any]]) -> list[ScreenPod]:
        now, rows = {}, []
        for body in bodies:
            name, usage = f"{body['namespace']}/{body['name']}", body.get("usage") or {}
            key = f"{name} {body.get('uid')} {body.get('started')} {body.get('cgroup')}"
            if usage.get("cpu_usage_usec") is not None and usage.get("t") is not None:
                now[key] = float(usage["t"]), float(usage["cpu_usage_usec"])
            rows.append(
                ScreenPod(name, body.get("workload", ""), self._rate(key, now.get(key)), usage.get("memory_current"))
            )
        self._before = now
        self._cores = {key: cores for key, cores in self._cores.items() if key in now}
        return rows

    def _rate(self, key: str, now: tuple[float, float] | None) -> float | None:
        """The same reading again, when two answers come within a second: the rate of before."""
        before = self._before.get(key)
        if now is not None and before is not None and now[0] > before[0]:
            self._cores[key] = max(0.0, now[1] - before[1]) / 1e6 / (now[0] - before[0])
        return self._cores.get(key) if now is not None else None


def bar(value: float | None, width: int, host: float | None = None) -> str:
    """Used by the host, used by Pods, free.

    >>> bar(0.5, 4), bar(0.75, 4, host=0.25)
    ('██░░', '▓██░')
    """
    full = max(0, min(width, round((value or 0.0) * width)))
    own = max(0, min(full, round((host or 0.0) * width)))
    return "▓" * own + "█" * (full - own) + "░" * (width - full)


def shrink(values: Sequence[float], most: int) -> list[float]:
    """At most so many values: means of as many neighbours as needed, the newest last and whole.

    >>> shrink([1.0, 2.0, 4.0, 6.0, 8.0], 3)
    [1.0, 3.0, 7.0]
    """
    step = max(1, ceil(len(values) / most))
    ends = range(len(values), 0, -step)
    groups = [values[max(0, end - step) : end] for end in ends]
    return [sum(group) / len(group) for group in reversed(groups)]


def spark(values: Sequence[float]) -> str:
    """Recent values as a line of blocks, from 0 to the largest.

    >>> spark([0.0, 4.0, 8.0])
    ' ▄█'
    """
    most = max(values, default=0.0) or 1.0
    return "".join(SPARKS[max(0, round(value / most * (len(SPARKS) - 1)))] for value in values)


def printable(line: str) -> str:
    """Names are not ours: what would move the cursor or colour the screen is shown as `?`.

    >>> printable("web\\x1b[2J")
    'web?[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in line)
