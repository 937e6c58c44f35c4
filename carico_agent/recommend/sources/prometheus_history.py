"""Histories of containers from Prometheus: what cAdvisor in the kubelet exports, and kube-state-metrics where it runs.

Needed: container_cpu_usage_seconds_total and container_memory_working_set_bytes. Used where they exist: owners and
requests (kube-state-metrics), throttled periods, OOM kills, start times (cAdvisor), sizes of nodes (either). `max by`
joins the series of a restarted container, whose counter then goes backwards once, which is dropped and counted.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import translate
from typing import Any

from carico_agent.recommend.histogram import DAY_S
from carico_agent.recommend.history import ContainerHistory
from carico_agent.recommend.series import TAIL
from carico_agent.recommend.sources.histories import Found, NoHistory
from carico_agent.recommend.sources.prometheus import Points, Prometheus
from carico_agent.recommend.workload import ContainerKey, OwnerObject, Resources, guess

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
BY = "max by (namespace, pod, container)"
MAX_OOM_KILLS = 10
Progress = Callable[[str, float], None]


def from_prometheus(
    server: Prometheus,
    wanted: str | None,
    end_s: float,
    since_s: float,
    step_s: float,
    half_life_s: float = DAY_S,
    keep: int = TAIL,
    progress: Progress = lambda what, share: None,
) -> Found:
    """All containers of the workloads that match `wanted`, over the last `since_s` seconds before `end_s`."""
    end_s = end_s // step_s * step_s
    start_s = end_s - since_s // step_s * step_s
    select = selector(wanted)
    memory = server.range(f"{BY} ({MEMORY}{select})", start_s, end_s, step_s, lambda share: progress("memory", share))
    cpu = server.range(f"{BY} ({CPU}{select})", start_s, end_s, step_s, lambda share: progress("cpu", share))
    if not memory and not cpu:
        raise NoHistory(f"{server.url} knows no {CPU}{select} and no {MEMORY}{select} in that time")
    found = Found()
    owners = _Owners(server, end_s)
    _sizes(server, end_s, found)
    keys = {_place(p): owners.key(p) for p in (*memory, *cpu)}
    current = _resources(server, end_s, select)
    for place, key in keys.items():
        found.histories[key] = ContainerHistory(half_life_s, keep, step_s)
        found.current[key] = current.get(place, Resources())
    _starts(server, select, start_s, end_s, keys, found)
    for points in memory:
        found.histories[keys[_place(points)]].take_memory(points.t_s, points.values)
    for points in cpu:
        found.histories[keys[_place(points)]].take_cpu(points.t_s, points.values)
    _events(server, select, end_s, since_s, keys, found)
    return found


def selector(wanted: str | None) -> str:
    """Only real containers, and only Pods whose names can belong to the workload.

    >>> selector("shop/web")
    '{container!="",container!="POD",namespace=~"shop",pod=~"web.*"}'
    """
    parts = ['container!=""', 'container!="POD"']
    if wanted:
        namespace, _, name = wanted.rpartition("/")
        if namespace:
            parts.append(f'namespace=~"{_regex(namespace)}"')
        parts.append(f'pod=~"{_regex(name)}.*"')
    return "{" + ",".join(parts) + "}"


def _regex(pattern: str) -> str:
    """A shell pattern as RE2 inside a PromQL string; exact matching happens later, this only spares the server."""
    if not re.search(r"[*?\[]", pattern):
        text = re.escape(pattern).replace("\\-", "-")
    else:
        text = re.sub(r"^\(\?s:(.*)\)\\[Zz]$", r"\1", translate(pattern)).replace("\\-", "-")
    return text.replace("\\", "\\\\").replace('"', '\\"')


Place = tuple[str, str, str]


def _place(points: Points) -> Place:
    return tuple(points.labels.get(name, "") for name in ("namespace", "pod", "container"))  # type: ignore[return-value]


def _last(points: Iterable[Points]) -> Iterable[tuple[Points, float]]:
    return ((one, float(one.values[-1])) for one in points if one.values.size)


class _Owners:
    """The workload of a Pod: kube_pod_owner, through kube_replicaset_owner and kube_job_owner; else its name."""

    def __init__(self, server: Prometheus, t_s: float) -> None:
        self._pods = self._read(server, "kube_pod_owner", "pod", t_s)
        self._replicasets = self._read(server, "kube_replicaset_owner", "replicaset", t_s)
        self._jobs = self._read(server, "kube_job_owner", "job_name", t_s)

    @staticmethod
    def _read(server: Prometheus, metric: str, label: str, t_s: float) -> dict[tuple[str, str], tuple[str, str]]:
        return {
            (p.labels.get("namespace", ""), p.labels.get(label, "")): (p.labels["owner_kind"], p.labels["owner_name"])
            for p in server.instant(metric, t_s)
            if p.labels.get("owner_kind", "<none>") not in ("", "<none>") and p.labels.get("owner_name")
        }

    def key(self, points: Points) -> ContainerKey:
        namespace, pod, container = _place(points)
        kind, name = self._pods.get((namespace, pod), ("", ""))
        if kind == "ReplicaSet":
            kind, name = self._replicasets.get((namespace, name), (kind, name))
        elif kind == "Job":
            kind, name = self._jobs.get((namespace, name), (kind, name))
        workload = OwnerObject(namespace, kind, name) if kind else guess(namespace, pod)
        return ContainerKey(workload, pod, container)


def _resources(server: Prometheus, t_s: float, select: str) -> dict[Place, Resources]:
    """Requests and limits from kube-state-metrics."""
    found: dict[Place, Resources] = {}
    for word in ("request", "limit"):
        for one, value in _last(server.instant(f"kube_pod_container_resource_{word}s{select}", t_s)):
            unit = {"cpu": "cores", "memory": "bytes"}.get(one.labels.get("resource", ""))
            if unit:
                place = _place(one)
                amount: dict[str, Any] = {f"{word}_{unit}": value}
                found[place] = replace(found.get(place, Resources()), **amount)
    return found


def _sizes(server: Prometheus, t_s: float, found: Found) -> None:
    """The largest node: what Pods may request there, or what the machine has."""
    for cpu, memory in (
        ('kube_node_status_allocatable{resource="cpu"}', 'kube_node_status_allocatable{resource="memory"}'),
        ("machine_cpu_cores", "machine_memory_bytes"),
    ):
        cores = max((value for _, value in _last(server.instant(cpu, t_s))), default=0.0)
        used_bytes = max((value for _, value in _last(server.instant(memory, t_s))), default=0.0)
        if cores and used_bytes:
            found.saw_node(cores, used_bytes)
            return


def _starts(
    server: Prometheus, select: str, start_s: float, end_s: float, keys: dict[Place, ContainerKey], found: Found
) -> None:
    for one, value in _last(server.instant(f"{BY} (container_start_time_seconds{select})", end_s)):
        if _place(one) in keys and start_s <= value <= end_s:
            found.histories[keys[_place(one)]].started(value)


def _events(
    server: Prometheus, select: str, end_s: float, since_s: float, keys: dict[Place, ContainerKey], found: Found
) -> None:
    """OOM kills and throttled periods of the whole time."""

    def increase(metric: str) -> Iterable[tuple[ContainerKey, float]]:
        asked = f"sum by (namespace, pod, container) (increase({metric}{select}[{since_s:.0f}s]))"
        for one, value in _last(server.instant(asked, end_s)):
            if _place(one) in keys and value > 0:
                yield keys[_place(one)], value

    for key, value in increase("container_oom_events_total"):
        for _ in range(min(round(value), MAX_OOM_KILLS)):
            found.histories[key].oom(found.histories[key].last_s, found.current[key].request_bytes or 0.0)
    for key, value in increase("container_cpu_cfs_periods_total"):
        found.histories[key].periods = value
    for key, value in increase("container_cpu_cfs_throttled_periods_total"):
        found.histories[key].throttled = value
