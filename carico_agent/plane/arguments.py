"""Arguments that hold components back: client limits that they wait for, and those of *MerKury* table 4. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from carico_agent.plane.window import Window

MIN_WAITING = 0.5
"""Requests that wait for a component's own limiter, on average; below this it does not matter."""
LIMITER = "rest_client_rate_limiter_duration_seconds"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of table 4."""

    component: str
    flag: str
    default: float
    documented: float
    """What the document sets for clusters of thousands of nodes."""
    config: str = ""
    """Where a configuration file has it instead."""


TABLE_4 = (
    Argument("etcd", "quota-backend-bytes", 2 * 2**30, 8 * 2**30),
    Argument("kube-apiserver", "max-requests-inflight", 400, 2000),
    Argument("kube-apiserver", "max-mutating-requests-inflight", 200, 1000),
    Argument("kube-controller-manager", "kube-api-qps", 20, 200),
    Argument("kube-controller-manager", "kube-api-burst", 30, 300),
    Argument("kube-scheduler", "kube-api-qps", 50, 200, "clientConnection.qps"),
    Argument("kube-scheduler", "kube-api-burst", 100, 400, "clientConnection.burst"),
)


@dataclass(frozen=True, slots=True)
class Limited:
    """How long one component waited for its own client limit in one window."""

    component: str
    waiting: float
    """Requests that waited, on average."""
    each_s: float
    """How long one request waited [s]."""


def limiters(windows: Mapping[str, Window | None]) -> list[Limited]:
    """Components that wait for their own limit, the worst first. The API server talks to itself without one."""
    found = []
    for name, window in windows.items():
        waited_s = window.grown(f"{LIMITER}_sum") if window is not None else None
        count = window.grown(f"{LIMITER}_count") if window is not None else None
        if window is not None and waited_s is not None and count and waited_s / window.length_s >= MIN_WAITING:
            found.append(Limited(name, waited_s / window.length_s, waited_s / count))
    return sorted(found, key=lambda one: one.waiting, reverse=True)


def describe_limiter(one: Limited, values: Mapping[str, float]) -> str:
    """What to do about it. `values`: arguments of this component that are known, by flag."""
    qps, burst = (next((a for a in TABLE_4 if (a.component, a.flag) == (one.component, flag)), None) for flag in FLAGS)
    said = f"{one.component} waits for its own client limit"
    if qps is None or burst is None:
        return f"{said} ({one.waiting:.0f} requests, {one.each_s * 1000:.0f} ms each): raise its qps"
    where = (
        f"{qps.config} and {burst.config} in its configuration" if qps.config else "--kube-api-qps and --kube-api-burst"
    )
    now = f"qps = {values.get(qps.flag, qps.default):g}" + ("" if qps.flag in values else ", the default")
    return (
        f"{said} ({now}): {one.waiting:.0f} requests wait {one.each_s * 1000:.0f} ms each; raise {where}, to "
        f"{qps.documented:g} and {burst.documented:g} for example"
    )


FLAGS = ("kube-api-qps", "kube-api-burst")


def parse_flags(command: list[str]) -> dict[str, str]:
    """Flags of a command line.

    >>> parse_flags(["kube-scheduler", "--kube-api-qps=50", "--config", "/c.yaml", "--v=2", "--profiling"])
    {'kube-api-qps': '50', 'config': '/c.yaml', 'v': '2', 'profiling': ''}
    """
    found: dict[str, str] = {}
    words = list(command[1:])
    for at, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        follows = words[at + 1] if at + 1 < len(words) else "-"
        found[name] = value if equals or follows.startswith("-") else follows
    return found


def compare(component: str, values: Mapping[str, float]) -> list[dict[str, object]]:
    """One row per argument of table 4: what it is, its default, and what the document sets."""
    return [
        {
            "component": component,
            "argument": one.flag,
            "value": values.get(one.flag, one.default),
            "is_default": one.flag not in values,
            "documented": one.documented,
        }
        for one in TABLE_4
        if one.component == component
    ]
