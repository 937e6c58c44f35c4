"""Workloads ⇄ messages, both ways, checked: part of wire.py."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from carico_agent.core import WorkloadCost
from carico_agent.core.profile import Profile
from carico_agent.core.subspace import Vector
from carico_agent.core.workloads import MAX_COST
from carico_agent.federation import contribution as rules
from carico_agent.federation import profiles
from carico_agent.federation.cluster_workloads import MAX_WORKLOADS, MIN_REPORTERS, ClusterWorkloads, WorkloadRow
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.moments import spread
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.workloads import (
    MAX_PODS,
    MAX_WORKLOAD_CHARS,
    MAX_WORKLOADS_PER_NODE,
    ReportedWorkloads,
    SentProfile,
    digest,
    to_absolute,
    to_shares,
)


def sent_workloads(given: Contribution) -> list[WorkloadCost]:
    """The kinds of a contribution that travel: those that arrive most, as many as may."""
    ranked = sorted(given.workloads, key=lambda workload: (-workload.arrivals, -workload.pods_seen, workload.workload))
    return ranked[:MAX_WORKLOADS_PER_NODE]


def write_report(given: Contribution) -> bytes:
    """A node's workloads in absolute units; empty if it has none."""
    report = pb.WorkloadReport()
    for workload in sent_workloads(given):
        report.workloads.add(
            workload=workload.workload[:MAX_WORKLOAD_CHARS],
            cost=to_absolute(workload.cost, given.sizes),
            spread=to_absolute(workload.spread, given.sizes),
            pods_seen=min(workload.pods_seen, MAX_PODS),
            arrivals=workload.arrivals,
            **_profile(None if workload.profile is None else profiles.in_units(workload.profile, given.sizes)),
        )
    return report.SerializeToString()


def _profile(absolute: Profile | None) -> dict[str, Any]:
    """Its fields of a WorkloadCost."""
    if absolute is None:
        return {}
    lives = [x if x == x else 0.0 for x in (absolute.median_s, absolute.p90_s)]
    day = profiles.encoded(absolute.day.astype(np.float64))
    return {"profile": day, "median_life_s": lives[0], "p90_life_s": lives[1], "ended": absolute.ended}


def _read_sent(workload: pb.WorkloadCost, m: int) -> SentProfile | None:
    """A profile as it was sent, checked; raises Rejected."""
    if not workload.profile:
        return None
    profiles.decoded(workload.profile, m)
    median_s, p90_s = profiles.check_life(workload.median_life_s), profiles.check_life(workload.p90_life_s)
    return SentProfile(workload.profile, median_s, p90_s, min(workload.ended, MAX_PODS))


def write_fits(given: Contribution) -> list[int]:
    """Per workload that travels: 1 + how many more fit, 0 where that was not counted."""
    if not given.fits:
        return []
    found = [given.fits.get(workload.workload) for workload in sent_workloads(given)]
    return [1 + min(fit.fits, MAX_PODS) if fit and fit.limiting in given.resources else 0 for fit in found]


def write_limiting(given: Contribution) -> list[int]:
    if not given.fits:
        return []
    found = [given.fits.get(workload.workload) for workload in sent_workloads(given)]
    return [given.resources.index(fit.limiting) if fit and fit.limiting in given.resources else 0 for fit in found]


def write_room(given: Contribution) -> list[float]:
    """What is left on a node, in absolute units; a resource that is overdrawn has nothing left."""
    if not len(given.room):
        return []
    return to_absolute([max(0.0, share) if not math.isnan(share) else share for share in given.room], given.sizes)


def read_node(
    resources: tuple[str, ...], message: pb.Contribution, last: ReportedWorkloads | None
) -> ReportedWorkloads | None:
    """What a node reported about workloads and its room; None if nothing. Raises Rejected."""
    if not message.workloads and not message.room:
        return None
    m = len(resources)
    if last is None or last.digest != digest(message.workloads) or last.resources != resources:
        last = _read_report(resources, message.workloads)
    fits, limiting = tuple(message.fits), tuple(message.limiting)
    if len(fits) not in (0, len(last.names)) or len(limiting) != len(fits):
        raise Rejected("size", f"{len(fits)} fits and {len(limiting)} limits for {len(last.names)} workloads")
    if any(fit > MAX_PODS + 1 for fit in fits) or any(index >= m for index in limiting):
        raise Rejected("fits", f"{max(fits)} Pods, limited by resource {max(limiting)} of {m}")
    room = tuple(rules.check_amounts("room", m, message.room)) if message.room else ()
    return replace(last, fits=fits, limiting=limiting, room=room)


def _read_report(resources: tuple[str, ...], raw: bytes) -> ReportedWorkloads:
    try:
        workloads = pb.WorkloadReport.FromString(raw).workloads
    except DecodeError as error:
        raise Rejected("decode", str(error)) from error
    m = len(resources)
    if len(workloads) > MAX_WORKLOADS_PER_NODE:
        raise Rejected("size", f"{len(workloads)} workloads, {MAX_WORKLOADS_PER_NODE} are allowed")
    for workload in workloads:
        _check_workload(workload, m)
    if len({workload.workload for workload in workloads}) != len(workloads):
        raise Rejected("size", "a workload is named twice")
    return ReportedWorkloads(
        resources,
        tuple(sys.intern(workload.workload) for workload in workloads),
        np.array(
            [[*workload.cost, *workload.spread, workload.pods_seen, workload.arrivals] for workload in workloads],
            dtype=np.float64,
        ),
        digest(raw),
        profiles=tuple(_read_sent(workload, m) for workload in workloads),
    )


def _check_workload(workload: pb.WorkloadCost, m: int) -> None:
    name = workload.workload
    if not 0 < len(name) <= MAX_WORKLOAD_CHARS or not name.isprintable() or name != name.strip():
        raise Rejected("workload", f"not a name: {name[:60]!r}")
    rules.check_amounts("cost of a workload", m, workload.cost)
    rules.check_amounts("spread of a workload", m, workload.spread)
    if workload.pods_seen > 1_000_000_000 or not 0 <= workload.arrivals <= 1e9:
        raise Rejected("workload", f"{name[:60]!r}: {workload.pods_seen} Pods seen, {workload.arrivals:.3g} arrivals")


def write_table(cluster: ClusterWorkloads, sequence: int, most: int, max_bytes: int) -> pb.WorkloadTable:
    """The cluster's workloads, those that most nodes know first, as many as may travel."""
    table = pb.WorkloadTable(resources=cluster.resources, sequence=sequence)
    size = 0
    for name, row in list(cluster.rows.items())[:most]:
        message = write_row(name, row)
        size += message.ByteSize() + 4
        if size > max_bytes:
            break
        table.workloads.append(message)
    return table


def write_row(name: str, row: WorkloadRow) -> pb.WorkloadCost:
    return pb.WorkloadCost(
        workload=name,
        cost=row.cost,
        spread=row.spread,
        nodes=row.nodes,
        pods_seen=min(row.pods_seen, 2**32 - 1),
        arrivals=row.arrivals,
        **_profile(row.profile),
    )


def read_table(table: pb.WorkloadTable) -> ClusterWorkloads:
    """What an aggregator knows of workloads; raises Rejected."""
    if not table.workloads:
        return ClusterWorkloads()
    resources = rules.check_resources(tuple(table.resources))
    if len(table.workloads) > MAX_WORKLOADS:
        raise Rejected("size", f"{len(table.workloads)} workloads, {MAX_WORKLOADS} are allowed")
    rows = {}
    for workload in table.workloads:
        _check_workload(workload, len(resources))
        cost, width = np.array(workload.cost, dtype=np.float64), np.array(workload.spread, dtype=np.float64)
        rows[sys.intern(workload.workload)] = WorkloadRow(
            cost, width, workload.nodes, workload.pods_seen, workload.arrivals, _table_profile(workload, len(resources))
        )
    return ClusterWorkloads(resources, rows)


def _table_profile(workload: pb.WorkloadCost, m: int) -> Profile | None:
    sent = _read_sent(workload, m)
    return None if sent is None else profiles.read_profile(sent, m)


def to_node(cluster: ClusterWorkloads, own: Sequence[str], sizes: Sequence[float] | Vector) -> tuple[WorkloadCost, ...]:
    """The cluster's workloads as shares of a node, in the order of its resources; NaN where not known. A cost that
    no node can have is cut to the largest that the model takes: one report of 1e6 cores must not end the exchange."""
    missing = [name not in cluster.resources for name in own]
    found = []
    for name, row in cluster.rows.items():
        both = spread(np.stack([row.cost, row.spread]), cluster.resources, own).copy()
        both[:, missing] = np.nan
        day = None if row.profile is None else profiles.placed(row.profile, cluster.resources, own)
        own_day = None if day is None else profiles.in_units(day, sizes, to_shares=True)
        cost, width = (tuple(min(x, MAX_COST) for x in to_shares(amounts, sizes)) for amounts in both)
        decides = row.nodes >= MIN_REPORTERS
        found.append(WorkloadCost(name, cost, width, row.pods_seen, row.arrivals, decides, own_day))
    return tuple(found)
