"""`kubectl carico fit`: how many more Pods of a workload fit on each node, by what they were measured to take.

Beside it stands what requests alone would allow. The rules are the extender's (extender/workload_room.py).
"""

import time
from collections.abc import Mapping
from math import floor, inf, isfinite

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import NodeColumns, PendingPod
from carico_agent.extender.workload_room import WorkloadRoom, room_for
from carico_agent.kubectl.cells import Cell, number
from carico_agent.kubectl.nodes import INVALID, NodeView
from carico_agent.kubectl.pods import PodRow, by_node
from carico_agent.kubectl.tables import Column, Table, TableRow
from carico_agent.lib.fit import Wanted
from carico_agent.lib.kube.workloads import RESOURCES

COLUMNS = (
    Column("node"),
    Column("fits"),
    Column("limiting"),
    Column("basis"),
    Column("by-requests"),
    Column("requests-limiting", wide=True),
    Column("age"),
)
"""basis: measured (what Pods of this workload take, here or on other nodes), requests (the workload is unknown), prior
(it requests nothing either: one core), number (the node publishes no room: its Pod-Capacity), stale, unpublished."""


def fit_table(cluster: Cluster, views: Mapping[str, NodeView], pods: list[PodRow], wanted: Wanted) -> Table:
    """One row per node."""
    nodes, now_s = cluster.table.all(), time.monotonic()
    pod = PendingPod(
        "",
        wanted.workload,
        cpu=wanted.cpu or 0.0,
        memory=wanted.memory or 0.0,
        requested=wanted.cpu is not None,
        elsewhere=cluster.costs.of(wanted.workload, now_s),
    )
    room, bound, rows = room_for(nodes, pod), by_node(pods), []
    for at, name in enumerate(nodes.names()):
        view = views[name]
        fits, limiting, basis = _fits(nodes, room, pod, at) if view.state not in INVALID else (0.0, "", view.state)
        alone, by = requests_allow(wanted, view, bound.get(name, []))
        rows.append(
            TableRow(
                {
                    "node": Cell(name),
                    "fits": number(fits, "pods"),
                    "limiting": Cell(limiting),
                    "basis": Cell(basis),
                    "by-requests": number(alone, "pods"),
                    "requests-limiting": Cell(by),
                    "age": number(view.age_s, "seconds"),
                }
            )
        )
    rows.sort(key=lambda row: (-float(row.cell("fits").value or 0.0), str(row.cell("node").value)))
    return Table("nodes", COLUMNS, tuple(rows))


def _fits(nodes: NodeColumns, room: WorkloadRoom | None, pod: PendingPod, at: int) -> tuple[float, str, str]:
    """Of one node: how many, what limits, and how that is known."""
    if room is None or not room.measured[at] or not isfinite(room.fits[at]):
        return max(0.0, float(nodes.available()[at])), "", "number"
    fits, limiting = max(0.0, float(room.fits[at])), RESOURCES[int(room.limiting[at])]
    if room.certain[at]:
        return fits, limiting, "measured"
    places = max(0.0, float(nodes.places[at] - nodes.assigned[at]))
    basis = "requests" if pod.requested else "prior"
    return (fits, limiting, basis) if fits <= places else (places, "places", basis)


def requests_allow(wanted: Wanted, view: NodeView, pods: list[PodRow]) -> tuple[float | None, str]:
    """How many more requests alone would allow, and what limits; None where nothing is known of them."""
    if wanted.cpu is None and wanted.memory is None:
        return None, ""
    free = {"pods": view.max_pods - len(pods)}
    for name, one in (("cpu", wanted.cpu), ("memory", wanted.memory)):
        held = sum(pod.requests.of(name) for pod in pods)
        free[name] = (view.allocatable.of(name) - held) / one if one else inf
    limiting = min(free, key=lambda name: free[name])
    return max(0.0, float(floor(free[limiting] + 1e-9))), limiting


def whole(table: Table) -> int:
    """How many fit on all nodes together: no Pod is split between two."""
    return sum(floor(float(row.cell("fits").value or 0.0) + 1e-9) for row in table.rows)
