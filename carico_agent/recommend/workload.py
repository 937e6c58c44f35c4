"""Who a history belongs to: containers of Pods, and the workload that made them.

Replicas of a workload are judged together, and so are the runs of a CronJob, of which each alone is too short. Where
the owner is not known, it is read from the Pod's name: controllers append suffixes of a fixed alphabet.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes makes random names of these only (no vowels, no 0, 1 and 3)."""
_PATTERNS = (
    ("CronJob", re.compile(rf"(.+)-\d{{8,10}}-{_SAFE}{{5}}")),
    ("Deployment", re.compile(rf"(.+)-{_SAFE}{{6,10}}-{_SAFE}{{5}}")),
    ("StatefulSet", re.compile(r"(.+)-\d{1,4}")),
    ("DaemonSet", re.compile(rf"(.+)-{_SAFE}{{5}}")),
)


@dataclass(frozen=True, slots=True, order=True)
class OwnerObject:
    """The object in whose template the resources stand."""

    namespace: str
    kind: str
    name: str
    guessed: bool = False
    """The kind and name were read off a Pod's name."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class ContainerKey:
    """One container of one Pod."""

    workload: OwnerObject
    pod: str
    container: str


def guess(namespace: str, pod: str) -> OwnerObject:
    """The workload from a Pod's name.

    >>> guess("shop", "web-7d4b9c6f5d-x2xkz").name, guess("shop", "db-0").kind, guess("shop", "one").kind
    ('web', 'StatefulSet', 'Pod')
    """
    for kind, pattern in _PATTERNS:
        if match := pattern.fullmatch(pod):
            return OwnerObject(namespace, kind, match[1], guessed=True)
    return OwnerObject(namespace, "Pod", pod)


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits as they are now; None = not set or not known."""

    request_cores: float | None = None
    request_bytes: float | None = None
    limit_cores: float | None = None
    limit_bytes: float | None = None


UNKNOWN = Resources()


def resources_from(table: Mapping[str, Any]) -> Resources:
    """From JSON; ValueError names the field.

    >>> resources_from({"request_cores": 1, "limit_bytes": None}).request_cores
    1.0
    """
    known: dict[str, float] = {}
    for name, value in table.items():
        if name not in Resources.__dataclass_fields__:
            raise ValueError(f"unknown field {name}")
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise ValueError(f"{name}: a number of 0 or more is expected, not {value!r}")
        known[name] = float(value)
    return Resources(**known)


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What the largest node offers to Pods."""

    cores: float
    memory_bytes: float
