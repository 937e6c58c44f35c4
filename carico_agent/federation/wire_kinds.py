"""Kinds ⇄ messages, both ways, checked: part of wire.py."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError

from carico_agent.core import KindCost
from carico_agent.core.subspace import Vector
from carico_agent.federation import contribution as rules
from carico_agent.federation.cluster_kinds import MOST_KINDS, ClusterKinds, KindRow
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.kinds import (
    MOST_KIND_CHARS,
    MOST_KINDS_PER_NODE,
    MOST_PODS,
    ReportedKinds,
    digest,
    to_absolute,
    to_shares,
)
from carico_agent.federation.moments import spread
from carico_agent.federation.proto import federation_pb2 as pb


def sent_kinds(given: Contribution) -> list[KindCost]:
    """The kinds of a contribution that travel: those that arrive most, as many as may."""
    ranked = sorted(given.kinds, key=lambda kind: (-kind.arrivals, -kind.pods_seen, kind.kind))
    return ranked[:MOST_KINDS_PER_NODE]


def write_report(given: Contribution) -> bytes:
    """A node's kinds in absolute units; empty if it has none."""
    report = pb.KindReport()
    for kind in sent_kinds(given):
        report.kinds.add(
            kind=kind.kind[:MOST_KIND_CHARS],
            cost=to_absolute(kind.cost, given.sizes),
            spread=to_absolute(kind.spread, given.sizes),
            pods_seen=min(kind.pods_seen, MOST_PODS),
            arrivals=kind.arrivals,
        )
    return report.SerializeToString()


def write_fits(given: Contribution) -> list[int]:
    """Per kind that travels: 1 + how many more fit, 0 where that was not counted."""
    if not given.fits:
        return []
    found = [given.fits.get(kind.kind) for kind in sent_kinds(given)]
    return [1 + min(fit.fits, MOST_PODS) if fit and fit.limiting in given.resources else 0 for fit in found]


def write_limiting(given: Contribution) -> list[int]:
    if not given.fits:
        return []
    found = [given.fits.get(kind.kind) for kind in sent_kinds(given)]
    return [given.resources.index(fit.limiting) if fit and fit.limiting in given.resources else 0 for fit in found]


def write_room(given: Contribution) -> list[float]:
    """What is left on a node, in absolute units; a resource that is overdrawn has nothing left."""
    if not len(given.room):
        return []
    return to_absolute([max(0.0, share) if not math.isnan(share) else share for share in given.room], given.sizes)


def read_node(resources: tuple[str, ...], message: pb.Contribution, last: ReportedKinds | None) -> ReportedKinds | None:
    """What a node reported about kinds and its room; None if nothing. Raises Rejected."""
    if not message.kinds and not message.room:
        return None
    m = len(resources)
    if last is None or last.digest != digest(message.kinds) or last.resources != resources:
        last = _read_report(resources, message.kinds)
    fits, limiting = tuple(message.fits), tuple(message.limiting)
    if len(fits) not in (0, len(last.names)) or len(limiting) != len(fits):
        raise Rejected("size", f"{len(fits)} fits and {len(limiting)} limits for {len(last.names)} kinds")
    if any(fit > MOST_PODS + 1 for fit in fits) or any(index >= m for index in limiting):
        raise Rejected("fits", f"{max(fits)} Pods, limited by resource {max(limiting)} of {m}")
    room = tuple(rules.check_amounts("room", m, message.room)) if message.room else ()
    return replace(last, fits=fits, limiting=limiting, room=room)


def _read_report(resources: tuple[str, ...], raw: bytes) -> ReportedKinds:
    try:
        kinds = pb.KindReport.FromString(raw).kinds
    except DecodeError as error:
        raise Rejected("decode", str(error)) from error
    m = len(resources)
    if len(kinds) > MOST_KINDS_PER_NODE:
        raise Rejected("size", f"{len(kinds)} kinds, {MOST_KINDS_PER_NODE} are allowed")
    for kind in kinds:
        _check_kind(kind, m)
    if len({kind.kind for kind in kinds}) != len(kinds):
        raise Rejected("size", "a kind is named twice")
    return ReportedKinds(
        resources,
        tuple(sys.intern(kind.kind) for kind in kinds),
        np.array([[*kind.cost, *kind.spread, kind.pods_seen, kind.arrivals] for kind in kinds], dtype=np.float64),
        digest(raw),
    )


def _check_kind(kind: pb.KindCost, m: int) -> None:
    name = kind.kind
    if not 0 < len(name) <= MOST_KIND_CHARS or not name.isprintable() or name != name.strip():
        raise Rejected("kind", f"not a name: {name[:60]!r}")
    rules.check_amounts("cost of a kind", m, kind.cost)
    rules.check_amounts("spread of a kind", m, kind.spread)
    if kind.pods_seen > 1_000_000_000 or not 0 <= kind.arrivals <= 1e9:
        raise Rejected("kind", f"{name[:60]!r}: {kind.pods_seen} Pods seen, {kind.arrivals:.3g} arrivals")


def write_table(cluster: ClusterKinds, sequence: int, most: int, most_bytes: int) -> pb.KindTable:
    """The cluster's kinds, those that most nodes know first, as many as may travel."""
    table = pb.KindTable(resources=cluster.resources, sequence=sequence)
    size = 0
    for name, row in list(cluster.rows.items())[:most]:
        message = write_row(name, row)
        size += message.ByteSize() + 4
        if size > most_bytes:
            break
        table.kinds.append(message)
    return table


def write_row(name: str, row: KindRow) -> pb.KindCost:
    return pb.KindCost(
        kind=name,
        cost=row.cost,
        spread=row.spread,
        nodes=row.nodes,
        pods_seen=min(row.pods_seen, 2**32 - 1),
        arrivals=row.arrivals,
    )


def read_table(table: pb.KindTable) -> ClusterKinds:
    """What an aggregator knows of kinds; raises Rejected."""
    if not table.kinds:
        return ClusterKinds()
    resources = rules.check_resources(tuple(table.resources))
    if len(table.kinds) > MOST_KINDS:
        raise Rejected("size", f"{len(table.kinds)} kinds, {MOST_KINDS} are allowed")
    rows = {}
    for kind in table.kinds:
        _check_kind(kind, len(resources))
        cost, width = np.array(kind.cost, dtype=np.float64), np.array(kind.spread, dtype=np.float64)
        rows[sys.intern(kind.kind)] = KindRow(cost, width, kind.nodes, kind.pods_seen, kind.arrivals)
    return ClusterKinds(resources, rows)


def to_node(cluster: ClusterKinds, own: Sequence[str], sizes: Sequence[float] | Vector) -> tuple[KindCost, ...]:
    """The cluster's kinds as shares of a node, in the order of its resources; NaN where nobody knows."""
    missing = [name not in cluster.resources for name in own]
    found = []
    for name, row in cluster.rows.items():
        both = spread(np.stack([row.cost, row.spread]), cluster.resources, own).copy()
        both[:, missing] = np.nan
        found.append(KindCost(name, to_shares(both[0], sizes), to_shares(both[1], sizes), row.pods_seen, row.arrivals))
    return tuple(found)
