"""Who a history belongs to: containers of Pods, and the workload that made them.

Replicas of a workload are judged together, and so are the runs of a CronJob, of which each alone is too short. Where
the owner is not known, it is read from the Pod's name: controllers append suffixes of a fixed alphabet.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes makes random names of these only (no vowels, no 0, 1 and 3)."""
_PATTERNS = (
    ("CronJob", re.compile(rf"(.+)-\d{{8,10}}-{_SAFE}{{5}}")),
    ("Deployment", re.compile(rf"(.+)-{_SAFE}{{6,10}}-{_SAFE}{{5}}")),
    ("StatefulSet", re.compile(r"(.+)-\d{1,4}")),
    ("DaemonSet", re.compile(rf"(.+)-{_SAFE}{{5}}")),
)
_CRON_TIME = re.compile(r"-(?:\d{8}|\d{10})$")
_CONTROLLER_LABELS = (
    ("pod-template-hash", "Deployment"),
    ("statefulset.kubernetes.io/pod-name", "StatefulSet"),
    ("pod-template-generation", "DaemonSet"),
)
GUARANTEED = "Guaranteed"


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


def owner(namespace: str, pod: str, kind: str | None, name: str | None) -> OwnerObject:
    """As it was reported. Of a name without its kind the kind is read off the Pod's name; empty: not known.

    >>> owner("shop", "db-0", "Pod", "db-0").kind, owner("shop", "db-0", None, "db").kind
    ('Pod', 'StatefulSet')
    >>> owner("default", "3f2a", None, "nginx")
    OwnerObject(namespace='default', kind='', name='nginx', guessed=True)
    """
    if kind and name:
        return OwnerObject(namespace, kind, name)
    guessed = guess(namespace, pod)
    return guessed if not name or name == guessed.name else OwnerObject(namespace, "", name, guessed=True)


def labelled(namespace: str, pod: str, labels: Mapping[str, str]) -> OwnerObject:
    """The workload from the labels that controllers put on their Pods. A Pod with a name and none of them is bare.

    >>> labelled("shop", "web-6c5d9b7f8d-x7k2p", {"pod-template-hash": "6c5d9b7f8d"}).kind
    'Deployment'
    >>> labelled("shop", "db-0", {"io.kubernetes.pod.name": "db-0"}).kind, labelled("shop", "db-0", {}).kind
    ('Pod', 'StatefulSet')
    """
    guessed = guess(namespace, pod)
    job = labels.get("batch.kubernetes.io/job-name") or labels.get("job-name")
    if job:
        time = _CRON_TIME.search(job)
        return OwnerObject(namespace, "CronJob" if time else "Job", _CRON_TIME.sub("", job))
    for label, kind in _CONTROLLER_LABELS:
        if label in labels:
            return replace(guessed, kind=kind, guessed=guessed.kind != kind)  # label and name confirm each other
    return OwnerObject(namespace, "Pod", pod) if labels else guessed


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits as they are now; None = not set or not known."""

    request_cores: float | None = None
    request_bytes: float | None = None
    limit_cores: float | None = None
    limit_bytes: float | None = None
    qos: str = ""
    """Of the Pod: Guaranteed, Burstable or BestEffort; empty: not known."""

    @property
    def guaranteed(self) -> bool:
        """Whether limits must stay equal to requests. Where the class is not known, both resources decide."""
        if self.qos:
            return self.qos == GUARANTEED
        pairs = (self.request_cores, self.limit_cores), (self.request_bytes, self.limit_bytes)
        return all(request is not None and request == limit for request, limit in pairs)


UNKNOWN = Resources()


def resources_from(table: Mapping[str, Any]) -> Resources:
    """From JSON; ValueError names the field.

    >>> resources_from({"request_cores": 1, "limit_bytes": None}).request_cores
    1.0
    """
    known: dict[str, Any] = {}
    for name, value in table.items():
        if name not in Resources.__dataclass_fields__:
            raise ValueError(f"unknown field {name}")
        if value is None:
            continue
        if name == "qos":
            known[name] = str(value)
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
