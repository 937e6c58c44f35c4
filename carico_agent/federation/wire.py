"""Messages ⇄ what they mean. Whatever is read here is checked here; no other module touches a received number.

Workloads have a module of their own, wire_workloads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from carico_agent.core.subspace import Subspace, Vector
from carico_agent.federation import contribution as rules
from carico_agent.federation import wire_workloads
from carico_agent.federation.cluster_workloads import ClusterWorkloads
from carico_agent.federation.contribution import Contribution, GlobalView, Rejected
from carico_agent.federation.moments import Sums, decompose, known_by, spread
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.workloads import ReportedWorkloads

SERVICE = "carico.federation.v1.Federation"
WIRE = 2
"""Version of the wire; 1 knew no profiles. A peer of an older one is refused, with a sentence that says so."""
MAX_COST = 1e18
MAX_NODES = 10_000_000


@dataclass(frozen=True, slots=True)
class HeldView:
    """What a node holds already: the aggregator's incarnation, its view's sequence, its workloads' sequence."""

    incarnation: int = 0
    sequence: int = 0
    workloads: int = 0


def write_contribution(
    node: str, given: Contribution, time_ns: int, version: str = "", leaving: bool = False, seen: HeldView | None = None
) -> bytes:
    """A node's message. A cost that is no share of the node (NaN, below 0, above 1) is sent as unknown."""
    known = [0 <= c <= 1 and 0 <= p < math.inf for c, p in zip(given.cost, given.precision, strict=True)]
    value = [c if ok else 0.0 for c, ok in zip(given.cost, known, strict=True)]
    precision = [min(p, rules.MAX_PRECISION) if ok else 0.0 for p, ok in zip(given.precision, known, strict=True)]
    seen = seen or HeldView()
    return pb.Contribution(
        node=node,
        subspace=_subspace(given.resources, given.subspace),
        samples=given.samples,
        cost=pb.Cost(value=value, precision=precision, size=given.sizes),
        pods=given.pods,
        time_unix_nano=time_ns,
        version=version,
        leaving=leaving,
        workloads=wire_workloads.write_report(given),
        fits=wire_workloads.write_fits(given),
        limiting=wire_workloads.write_limiting(given),
        room=wire_workloads.write_room(given),
        seen_incarnation=seen.incarnation,
        seen_sequence=seen.sequence,
        seen_workloads=seen.workloads,
        wire=WIRE,
    ).SerializeToString()


def read_contribution(
    raw: bytes, last_workloads: Callable[[str], ReportedWorkloads | None] = lambda node: None
) -> tuple[pb.Contribution, Contribution, ReportedWorkloads | None]:
    """The message, what it contributes, and its workloads and room (None: neither was sent); raises Rejected.

    `last_workloads(node)` is what was read from that node before: reading eight workloads anew takes 0.1 ms.
    """
    try:
        message = pb.Contribution.FromString(raw)
    except DecodeError as error:
        raise Rejected("decode", str(error)) from error
    rules.check_name(message.node)
    if message.wire < WIRE and not message.leaving:
        raise Rejected(
            "wire", f"wire {max(message.wire, 1)}, this aggregator speaks {WIRE}: upgrade carico on that node"
        )
    resources, subspace, cost = message.subspace.resources, message.subspace, message.cost
    names = rules.check_resources(tuple(resources))
    m = len(names)
    given = Contribution(
        names,
        rules.check_subspace(m, subspace.u, subspace.sigma),
        message.samples,
        rules.check_numbers("cost", m, cost.value, 0.0, 1.0),
        rules.check_numbers("precision", m, cost.precision, 0.0, rules.MAX_PRECISION),
        message.pods,
        rules.check_numbers("size of a resource", m, cost.size, *rules.SIZES),
    )
    return message, given, wire_workloads.read_node(names, message, last_workloads(message.node))


def write_view(sums: Sums, rank: int | None, about: pb.View) -> bytes:
    """`about` (sequence, incarnation, …) completed with the view of `sums`."""
    cost, precision = sums.mean_cost()
    about.nodes, about.wire = sums.nodes, WIRE
    about.subspace.CopyFrom(_subspace(sums.resources, sums.subspace(rank)))
    about.resource_nodes.extend(int(count) for count in sums.resource_nodes)
    about.cost.CopyFrom(pb.Cost(value=np.nan_to_num(cost), precision=precision))
    return about.SerializeToString()


def read_view(
    raw: bytes, own: Sequence[str], sizes: Sequence[float] | Vector, now_s: float
) -> tuple[pb.View, GlobalView | None]:
    """An aggregator's view in the order and the units of a node; None while it is empty or unchanged. Raises Rejected.

    Its workloads, if it has any, are in the message; `wire_workloads.read_table` reads them.
    """
    try:
        view = pb.View.FromString(raw)
    except DecodeError as error:
        raise Rejected("decode", str(error)) from error
    if not view.nodes:
        return view, None
    if view.wire < WIRE:
        raise Rejected("wire", f"wire {max(view.wire, 1)}, this agent speaks {WIRE}: upgrade the aggregation server")
    names, factor = read_factor(view.subspace, np.sqrt(len(view.subspace.resources)))
    m = len(names)
    if view.nodes > MAX_NODES:
        raise Rejected("size", f"{view.nodes} nodes")
    counts = _counts(view.resource_nodes, m, view.nodes)
    cost = np.array(rules.check_numbers("cost", m, view.cost.value, 0.0, MAX_COST))
    precision = np.array(rules.check_numbers("precision", m, view.cost.precision, 0.0, 1e300))
    # rows of UΣ for the resources this node has: exactly the moment of those resources alone
    rows = spread(factor, names, own)
    local = known_by(decompose(rows.T), view.nodes, spread(counts[None], names, own)[0])
    size = np.asarray(sizes, dtype=np.float64) if len(sizes) else np.ones(len(own))
    value, sure = _own_cost(cost, precision, names, own, size)
    return view, GlobalView(tuple(own), local, value, sure, view.nodes, view.sequence, view.aggregator, now_s)


def _own_cost(
    cost: Vector, precision: Vector, names: Sequence[str], own: Sequence[str], size: Vector
) -> tuple[Vector, Vector]:
    if not (len(cost) and len(precision)):
        return np.full(len(own), np.nan), np.zeros(len(own))
    value = spread(cost[None], names, own)[0] / size
    sure = np.minimum(spread(np.minimum(precision, 1e200)[None], names, own)[0] * size**2, rules.MAX_PRECISION)
    return np.where(sure > 0, value, np.nan), sure


def write_sums(partial: pb.Partial, sums: Sums) -> None:
    """Put the sums of one aggregator into `partial`."""
    partial.sum.CopyFrom(_subspace(sums.resources, decompose(sums.root.T)))
    partial.nodes = sums.nodes
    partial.resource_nodes.extend(int(count) for count in sums.resource_nodes)
    weight, first, second, size = sums.cost
    partial.cost.CopyFrom(pb.CostSums(weight=weight, first=first, second=second, size=size))


def read_partial(raw: bytes) -> tuple[pb.Partial, Sums, ClusterWorkloads]:
    """What another aggregator knows; raises Rejected."""
    try:
        partial = pb.Partial.FromString(raw)
    except DecodeError as error:
        raise Rejected("decode", str(error)) from error
    rules.check_name(partial.aggregator)
    for entry in partial.owned:
        rules.check_name(entry.node)
    if partial.nodes > MAX_NODES:
        raise Rejected("size", f"{partial.nodes} nodes")
    workloads = wire_workloads.read_table(partial.workloads)
    if not partial.sum.resources:
        return partial, Sums((), np.zeros((0, 0)), 0, np.zeros(0), np.zeros((4, 0))), workloads
    m = len(partial.sum.resources)
    names, root = read_factor(partial.sum, np.sqrt(m * partial.nodes))
    counts = _counts(partial.resource_nodes, m, partial.nodes)
    parts = (partial.cost.weight, partial.cost.first, partial.cost.second, partial.cost.size)
    cost = [rules.check_numbers("cost", m, part, 0.0, 1e60) for part in parts]
    rows = np.array(cost) if all(cost) else np.zeros((4, m))
    return partial, Sums(names, root, partial.nodes, counts, rows), workloads


def _counts(sent: Sequence[int], m: int, nodes: int) -> Vector:
    counts = rules.check_numbers("nodes of a resource", m, sent, 0, nodes)
    return np.array(counts or [nodes] * m, dtype=np.float64)


def read_factor(message: pb.Subspace, max_sigma: float) -> tuple[tuple[str, ...], Vector]:
    """Names and (UΣ)ᵀ of a checked subspace."""
    names = rules.check_resources(tuple(message.resources))
    subspace = rules.check_subspace(len(names), message.u, message.sigma, float(max_sigma))
    return names, (subspace.u * subspace.sigma).T


def _subspace(resources: Sequence[str], subspace: Subspace) -> pb.Subspace:
    return pb.Subspace(resources=resources, u=subspace.u.ravel(), sigma=subspace.sigma)
