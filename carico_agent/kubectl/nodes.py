"""Nodes as the plugin shows them: the number, room, what limits, and measured use beside requests.

Measured use is published with the workloads. cpu is use and waiting together, so above 100 % of the cores threads wait.
Of agents that do not publish it yet, it is what the default ceilings (`[node] limits`) leave after room: cpu ends at
twice the cores, memory at 85 %; room that local reservations hold then counts as used.

A number is as old as its annotation or the node's Lease, which the agent renews. Expired means no capacity.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from carico_agent.extender.published import SeenLease
from carico_agent.kubectl.cells import Cell, number
from carico_agent.kubectl.pods import UNITS, Amount, PodRow, by_node
from carico_agent.kubectl.tables import Column, Table, TableRow, label_columns
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.names import ANNOTATIONS, POD_CAPACITY, SLOTS, STATUS, WORKLOADS
from carico_agent.lib.kube.workloads import RESOURCES, NodeWorkloads, decode
from carico_agent.lib.net.times import parse_rfc3339
from carico_agent.plugin_api.formats import parse_quantity

INVALID = ("stale", "unpublished")
"""States in which there is no number to use."""

CEILINGS = {"cpu": 2.0, "memory": 0.85}
"""Where a resource ends, as a part of the node's capacity."""

COLUMNS = (
    Column("node"),
    Column("pod-capacity"),
    Column("low", wide=True),
    Column("high", wide=True),
    Column("slots", wide=True),
    Column("limiting"),
    Column("state"),
    Column("pods"),
    Column("places", wide=True),
    Column("cpu-room"),
    Column("cpu-requests"),
    Column("cpu-limits", wide=True),
    Column("cpu-use"),
    Column("memory-room"),
    Column("memory-requests"),
    Column("memory-limits", wide=True),
    Column("memory-use"),
    Column("age"),
)
ADDED = (
    "pod-capacity",
    "slots",
    "pods",
    "places",
    *(f"{r}-{w}" for r in UNITS for w in ("room", "requests", "limits", "use")),
)
"""What the total adds up."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is kept of a Node object and its Lease."""

    name: str
    capacity: Amount
    allocatable: Amount
    max_pods: float
    places: float | None
    """Of the extended resource; None: there is none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    pod_capacity: float | None = None
    slots: float | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    workloads: NodeWorkloads | None = None
    age_s: float = inf
    ttl_s: float = 0.0

    @property
    def state(self) -> str:
        if self.pod_capacity is None:  # an agent whose own number is too old takes it away, and leaves its status
            return "stale" if self.status else "unpublished"
        return "stale" if self.age_s > self.ttl_s else str(self.status.get("mode") or "unknown")


def slim(node: Object) -> Object:
    """A Node object without what is not read here: images, addresses, managed fields."""
    meta, status, spec = node["metadata"], node.get("status") or {}, node.get("spec") or {}
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key in ANNOTATIONS}
    return {
        "metadata": {"name": meta["name"], "labels": meta.get("labels") or {}, "annotations": notes},
        "spec": {"unschedulable": bool(spec.get("unschedulable"))},
        "status": {"capacity": status.get("capacity") or {}, "allocatable": status.get("allocatable") or {}},
    }


def node_view(node: Object, lease: SeenLease | None, resource: str) -> NodeView:
    """Read one Node object, and its Lease if there is one."""
    meta, have = node["metadata"], node.get("status") or {}
    notes, allocatable = meta.get("annotations") or {}, have.get("allocatable") or {}
    status = _table(notes.get(STATUS))
    return NodeView(
        meta["name"],
        _pair(have.get("capacity") or {}),
        _pair(allocatable),
        _quantity(allocatable.get("pods")),
        _quantity(allocatable[resource]) if resource in allocatable else None,
        meta.get("labels") or {},
        _number(notes.get(POD_CAPACITY)),
        _number(notes.get(SLOTS)),
        status,
        decode(notes.get(WORKLOADS) or ""),
        *number_age(status, lease, time.time()),
    )


def number_age(status: Mapping[str, Any], lease: SeenLease | None, now_s: float) -> tuple[float, float]:
    """How old a node's number is, and how long it is valid [s]: by its annotation or its Lease, whichever lasts longer.

    >>> number_age({"time": "2024-01-01T00:00:00Z", "ttl_s": 150}, SeenLease("a", 20.0, 90.0), 1704067260.0)
    (60.0, 150.0)
    >>> number_age({"time": "2024-01-01T00:00:00Z", "ttl_s": 150}, SeenLease("a", 20.0, 150.0), 1704067400.0)
    (20.0, 150.0)
    """
    written, ttl_s = (inf, 0.0), _number(status.get("ttl_s"))
    with suppress(KeyError, ValueError, OverflowError):
        if ttl_s is not None:
            written = max(0.0, now_s - parse_rfc3339(str(status["time"]))), ttl_s
    renewed = (inf, 0.0) if lease is None else (lease.age_s, lease.ttl_s)
    return max(written, renewed, key=lambda one: one[1] - one[0])


def _table(text: Any) -> dict[str, Any]:
    """An annotation with a JSON object; malformed counts as none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return value if isfinite(value) else None


def _quantity(text: Any) -> float:
    try:
        return parse_quantity(str(text))
    except ValueError:
        return 0.0


def _pair(table: Object) -> Amount:
    return Amount(_quantity(table.get("cpu")), _quantity(table.get("memory")))


# ---- the table


def nodes_table(nodes: Sequence[NodeView], pods: Sequence[PodRow], labels: list[str]) -> Table:
    """One row per node, and what they are together."""
    bound = by_node(pods)
    rows = [_row(node, bound.get(node.name, []), labels) for node in nodes]
    rows.sort(key=lambda row: str(row.cell("node").value))
    return Table("nodes", (*COLUMNS, *label_columns(labels)), tuple(rows), total(rows))


def _row(node: NodeView, pods: Sequence[PodRow], labels: list[str]) -> TableRow:
    valid, status = node.state not in INVALID, node.status
    held = sum(pod.facts.holds for pod in pods)
    cells = {
        "node": Cell(node.name),
        "pod-capacity": number(node.pod_capacity if valid else None, "pods"),
        "low": number(_number(status.get("low")) if valid else None, "pods"),
        "high": number(_number(status.get("high")) if valid else None, "pods"),
        "slots": number(node.slots if valid else None, "pods"),
        "limiting": Cell(str(status.get("limiting") or "") if valid else ""),
        "state": Cell(node.state),
        "pods": number(len(pods), "pods", node.max_pods or None),
        "places": number(held, "pods", node.places) if node.places is not None else Cell(None, "pods"),
        "age": number(node.age_s, "seconds"),
        **{label: Cell(node.labels.get(label, "")) for label in labels},
    }
    for resource, unit in UNITS.items():
        whole = node.allocatable.of(resource) or None
        at, workloads = RESOURCES.index(resource), node.workloads if valid else None
        room = None if workloads is None else workloads.room[at]
        used = None if workloads is None else workloads.used[at]
        requests, limits = (sum(amount(pod).of(resource) for pod in pods) for amount in (_requests, _limits))
        cells[f"{resource}-room"] = number(room, unit)
        cells[f"{resource}-requests"] = number(requests, unit, whole)
        cells[f"{resource}-limits"] = number(limits, unit, whole)
        cells[f"{resource}-use"] = number(_used(used, room, node, resource), unit, whole)
    return TableRow(cells)


def _requests(pod: PodRow) -> Amount:
    return pod.requests


def _limits(pod: PodRow) -> Amount:
    return pod.limits


def _used(used: float | None, room: float | None, node: NodeView, resource: str) -> float | None:
    """As published; of an agent that does not publish it, what its room leaves below the default ceiling."""
    if used is not None and used == used:
        return used
    return None if room is None else max(0.0, CEILINGS[resource] * node.capacity.of(resource) - room)


def total(rows: Sequence[TableRow]) -> TableRow | None:
    """All nodes together; of what some nodes do not know, the others' sum."""
    if len(rows) < 2:
        return None
    cells: dict[str, Cell] = {"node": Cell("*")}
    for key in ADDED:
        known = [row.cell(key) for row in rows if row.cell(key).value is not None]
        wholes = [cell.whole for cell in known if cell.whole is not None]
        value = sum(float(cell.value or 0.0) for cell in known)
        cells[key] = number(
            value if known else None, known[0].unit if known else "pods", sum(wholes) if wholes else None
        )
    return TableRow(cells)
