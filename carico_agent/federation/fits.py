"""How many more Pods of a workload fit, over all nodes of an aggregator: what each node reported, or its room by the
cost.

A node that knows the workload counts with its own measurements; for one that never ran it, room is divided by what the
workload costs in the cluster. Resources of which either is unknown do not limit.
"""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from carico_agent.core.subspace import Vector
from carico_agent.federation.cluster_workloads import ClusterWorkloads
from carico_agent.federation.moments import spread
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.wire_workloads import write_row
from carico_agent.federation.workloads import MAX_PODS, ReportedWorkloads

MAX_NODES_LISTED = 1000


def answer_fit(
    workload: str, nodes: Iterable[tuple[str, ReportedWorkloads | None]], cluster: ClusterWorkloads, max_nodes: int = 0
) -> pb.FitReply:
    """The reply for `workload` over `nodes`; `known` is False if no node has seen it."""
    row = cluster.rows.get(workload)
    reply = pb.FitReply(workload=workload, known=row is not None)
    if row is None:
        return reply
    reply.resources.extend(cluster.resources)
    reply.cost.CopyFrom(write_row(workload, row))
    costs: dict[tuple[str, ...], Vector] = {}
    found: list[tuple[int, str, str]] = []
    for node, report in nodes:
        fit = None if report is None else _reported(report, workload)
        if fit is None and report is not None and len(report.room):
            if report.resources not in costs:
                costs[report.resources] = _cost_for(cluster.resources, row.cost, report.resources)
            fit = _counted(report, costs[report.resources])
        if fit is None:
            reply.nodes_silent += 1
        else:
            found.append((fit[0], node, fit[1]))
    limits = Counter(limiting for _, _, limiting in found if limiting)
    reply.nodes_asked = len(found)
    reply.nodes_fit = sum(fits > 0 for fits, _, _ in found)
    reply.total = min(sum(fits for fits, _, _ in found), 2**32 - 1)
    for resource, count in limits.most_common():
        reply.limits.add(resource=resource, nodes=count)
    found.sort(key=lambda one: (-one[0], one[1]))
    for fits, node, limiting in found[: min(max_nodes or MAX_NODES_LISTED, MAX_NODES_LISTED)]:
        reply.nodes.add(node=node, fits=fits, limiting=limiting)
    return reply


def _reported(report: ReportedWorkloads, workload: str) -> tuple[int, str] | None:
    if not report.fits or workload not in report.names:
        return None
    at = report.names.index(workload)
    return (report.fits[at] - 1, report.resources[report.limiting[at]]) if report.fits[at] else None


def _cost_for(have: tuple[str, ...], cost: Vector, want: tuple[str, ...]) -> Vector:
    placed: Vector = spread(np.nan_to_num(cost)[None], have, want)[0]
    return placed


def _counted(report: ReportedWorkloads, cost: Vector) -> tuple[int, str] | None:
    """min over resources of room/cost, and which; None if nothing that the workload uses is known here."""
    room = np.array(report.room)
    usable = (cost > 0) & ~np.isnan(room)
    if not usable.any():
        return None
    fits = np.where(usable, room / np.where(usable, cost, 1.0), math.inf)
    limiting = int(np.argmin(fits))
    return int(min(fits[limiting], MAX_PODS)), report.resources[limiting]
