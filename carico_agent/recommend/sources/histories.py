"""Histories of containers from where they are: traces, a checkpoint, the agent on this node, Prometheus.

All become the same objects (`recommend.history`), so that every method works on every source as far as its data goes.
The agent's answer to GET /v1/history/containers:

{"node": "n1", "cores": 4, "memory_bytes": 16e9, "half_life_s": 86400, "containers": [{"namespace": "shop", "kind":
"Deployment", "workload": "web", "pod": "web-…", "container": "app", "current": {"request_cores": 0.5, "limit_bytes":
null, "qos": "Burstable", …}, "history": ContainerHistory.state()}]}. `kind`, `workload` and `current` may be missing.
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from carico_agent.lib.trace.containers import ContainerReading, PodsRow
from carico_agent.lib.trace.file import read_pods
from carico_agent.recommend.checkpoint import BadCheckpoint, decode
from carico_agent.recommend.histogram import DAY_S
from carico_agent.recommend.history import BadHistory, ContainerHistory
from carico_agent.recommend.series import STEP_S, TAIL
from carico_agent.recommend.workload import ContainerKey, NodeSize, OwnerObject, Resources, owner, resources_from


class NoHistory(Exception):
    """The source was read but holds nothing to judge by; one line."""


@dataclass
class Found:
    """Histories by container, what they request now, and the largest node that was seen."""

    histories: dict[ContainerKey, ContainerHistory] = field(default_factory=dict)
    current: dict[ContainerKey, Resources] = field(default_factory=dict)
    largest: NodeSize | None = None
    replicas: dict[OwnerObject, int] = field(default_factory=dict)
    """How many Pods of a workload run, where the cluster was asked."""
    hpas: dict[OwnerObject, str] = field(default_factory=dict)
    """What a HorizontalPodAutoscaler of the workload scales by, in a sentence."""
    declared: dict[tuple[OwnerObject, str], dict[str, Any]] = field(default_factory=dict)
    """Of a container: `list` and `index` in its template, and its `resources` as they stand in the Pod object."""

    def saw_node(self, cores: float, memory_bytes: float) -> None:
        old = self.largest or NodeSize(0.0, 0.0)
        self.largest = NodeSize(max(old.cores, cores), max(old.memory_bytes, memory_bytes))


# -- traces ----------------------------------------------------------------------------------------------------------


def from_traces(paths: Iterable[str], half_life_s: float = DAY_S, keep: int = TAIL) -> Found:
    """Traces of one or several nodes; BadTrace or NoHistory."""
    found = Found()
    rows: dict[ContainerKey, dict[int, tuple[float, ContainerReading]]] = defaultdict(dict)
    for path in paths:
        header, lines = read_pods(path)
        memory_kb = 0
        for row in lines:
            if isinstance(row, PodsRow):
                _minute(rows, row)
            else:
                memory_kb = row.reading.memory_total_kb or memory_kb
        if memory_kb:
            found.saw_node(header.cores, memory_kb * 1024)
    if not rows:
        raise NoHistory(
            'no trace holds containers (rows "pods"); record one with this version\'s `carico agent --record`'
        )
    for key, minutes in rows.items():
        found.histories[key] = _from_readings(list(minutes.values()), half_life_s, keep)
        last = max(minutes.values(), key=lambda pair: pair[0])[1]
        found.current[key] = Resources(
            last.request_cores, last.request_bytes, last.limit_cores, last.limit_bytes, last.qos or ""
        )
    return found


def _minute(rows: dict[ContainerKey, dict[int, tuple[float, ContainerReading]]], row: PodsRow) -> None:
    """The last reading of each minute stands for it: counters lose nothing, and a trace of days stays small."""
    for one in row.containers:
        workload = owner(one.namespace, one.pod, one.kind, one.workload)
        rows[ContainerKey(workload, one.pod, one.container)][int(row.time_s // STEP_S)] = (row.time_s, one)


def _from_readings(readings: list[tuple[float, ContainerReading]], half_life_s: float, keep: int) -> ContainerHistory:
    history = ContainerHistory(half_life_s, keep)
    t_s = np.array([t for t, _ in readings])

    def column(name: str) -> Any:
        return np.array([math.nan if (v := getattr(one, name)) is None else float(v) for _, one in readings])

    history.take_memory(t_s, column("memory_bytes"))
    history.take_cpu(t_s, column("cpu_usage_usec") / 1e6)
    for (_, before), (now_s, after) in itertools.pairwise(readings):
        for _ in range(min(_increase(before.oom_kills, after.oom_kills), 10)):
            history.oom(now_s, after.request_bytes or 0.0)
        history.periods += _increase(before.nr_periods, after.nr_periods)
        history.throttled += _increase(before.nr_throttled, after.nr_throttled)
    return history


def _increase(before: int | None, after: int | None) -> int:
    """Of a counter; a reset or an unknown value is no increase."""
    return max(after - before, 0) if before is not None and after is not None else 0


# -- a checkpoint ------------------------------------------------------------------------------------------------------


def from_checkpoint(text: str) -> Found:
    """One VerticalPodAutoscalerCheckpoint, or a list of them, as JSON or YAML; BadCheckpoint names the field."""
    try:
        value = json.loads(text)
    except ValueError:
        value = _yaml(text)
    items = value.get("items") if isinstance(value, dict) and isinstance(value.get("items"), list) else [value]
    found = Found()
    for n, item in enumerate(items or []):
        where = f"items[{n}]: " if len(items or []) > 1 else ""
        try:
            key, history = _checkpoint(item)
        except BadCheckpoint as error:
            raise BadCheckpoint(f"{where}{error}") from error
        found.histories[key] = history
    if not found.histories:
        raise NoHistory("the list holds no checkpoint")
    return found


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadCheckpoint(f"neither JSON nor YAML: {' '.join(str(error).split())[:200]}") from error


def _checkpoint(item: Any) -> tuple[ContainerKey, ContainerHistory]:
    if not isinstance(item, dict):
        raise BadCheckpoint(f"an object is expected, not {str(item)[:40]!r}")
    if item.get("kind") != "VerticalPodAutoscalerCheckpoint":
        raise BadCheckpoint(f"kind: VerticalPodAutoscalerCheckpoint is expected, not {item.get('kind')!r}")
    spec, metadata = item.get("spec"), item.get("metadata") or {}
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise BadCheckpoint("spec and metadata: objects are expected")
    names = {name: spec.get(name) for name in ("vpaObjectName", "containerName")}
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            raise BadCheckpoint(f"spec.{name}: a name is expected, not {value!r}")
    state = decode(item.get("status"))
    history = ContainerHistory()
    history.cpu, history.memory = state.cpu, state.memory
    history.first_s, history.last_s, history.samples = state.first_s, state.last_s, state.samples
    history.highest = {"cpu": state.cpu.highest(), "memory": state.memory.highest()}
    history.lowest = {"cpu": 0.0, "memory": 0.0}
    workload = OwnerObject(str(metadata.get("namespace") or "default"), "Deployment", str(names["vpaObjectName"]), True)
    return ContainerKey(workload, "", str(names["containerName"])), history


# -- the agent ---------------------------------------------------------------------------------------------------------


def from_agent(answer: Mapping[str, Any]) -> Found:
    """GET /v1/history/containers, as documented above; NoHistory names what is wrong."""
    found, where = Found(), "containers"
    try:
        if answer.get("cores") and answer.get("memory_bytes"):
            found.saw_node(float(answer["cores"]), float(answer["memory_bytes"]))
        for n, one in enumerate(answer["containers"]):
            where = f"containers[{n}]"
            namespace, pod = str(one["namespace"]), str(one["pod"])
            workload = owner(namespace, pod, one.get("kind"), one.get("workload"))
            key = ContainerKey(workload, pod, str(one["container"]))
            found.histories[key] = ContainerHistory.from_state(one["history"], float(answer.get("half_life_s", DAY_S)))
            found.current[key] = resources_from(one.get("current") or {})
    except (KeyError, TypeError, ValueError, AttributeError, BadHistory) as error:
        raise NoHistory(f"the agent's history cannot be read: {where}: {error!r}") from error
    return found
