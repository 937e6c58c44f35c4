"""What was read about all containers at one instant: the row type "pods" of a trace.

{"row": "pods", "t": 12.3, "time_s": 1700000000.0, "containers": [{"namespace": …, "pod": …, "container": …,
"cpu_usage_usec": …, "memory_bytes": …, "oom_kills": …, "nr_periods": …, "nr_throttled": …}]}

Counters since the container's start; `memory_bytes` is the working set. `t` is monotonic as in all rows, `time_s` the
time of day [s since 1970], because recommendations look at days and several nodes. Unknown fields are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """One container; None = not known."""

    namespace: str
    """Empty where only the cgroup tree is known, which has no names."""
    pod: str
    container: str
    kind: str | None = None
    workload: str | None = None
    cpu_usage_usec: int | None = None
    memory_bytes: int | None = None
    oom_kills: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    request_cores: float | None = None
    request_bytes: float | None = None
    limit_cores: float | None = None
    limit_bytes: float | None = None
    qos: str | None = None
    """Of its Pod: Guaranteed, Burstable or BestEffort."""


@dataclass(frozen=True, slots=True)
class PodsRow:
    """All containers at one instant."""

    t: float
    time_s: float
    containers: tuple[ContainerReading, ...]


_TEXTS = ("namespace", "pod", "container")
_OPTIONAL_TEXTS = ("kind", "workload", "qos")
_KNOWN = frozenset(item.name for item in fields(ContainerReading))


def encode(row: PodsRow) -> dict[str, Any]:
    """As JSON holds it."""
    containers = [
        {name: value for name in sorted(_KNOWN) if (value := getattr(one, name)) is not None} for one in row.containers
    ]
    return {"row": "pods", "t": row.t, "time_s": row.time_s, "containers": containers}


def decode(value: Mapping[str, Any]) -> PodsRow:
    """From JSON; ValueError names the field."""
    if unknown := sorted(value.keys() - {"row", "t", "time_s", "containers"}):
        raise ValueError(f"unknown field {unknown[0]}")
    containers = value.get("containers")
    if not isinstance(containers, list):
        raise ValueError(f"containers: a list is expected, not {containers!r}")
    made = tuple(_container(f"containers[{n}]", one) for n, one in enumerate(containers))
    return PodsRow(_number(value, "t"), _number(value, "time_s"), made)


def _container(where: str, value: Any) -> ContainerReading:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is expected, not {value!r}")
    if unknown := sorted(value.keys() - _KNOWN):
        raise ValueError(f"{where}: unknown field {unknown[0]}")
    for name in (*_TEXTS, *(name for name in _OPTIONAL_TEXTS if name in value)):
        if not isinstance(value.get(name), str) or not (value[name] or name == "namespace"):
            raise ValueError(f"{where}.{name}: a name is expected, not {value.get(name)!r}")
    for name in value.keys() - {*_TEXTS, *_OPTIONAL_TEXTS}:
        if _number(value, name, where + ".") < 0:
            raise ValueError(f"{where}.{name}: 0 or more is expected, not {value[name]!r}")
    return ContainerReading(**value)


def _number(table: Mapping[str, Any], key: str, where: str = "") -> float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{where}{key}: a number is expected, not {value!r}")
    return value
