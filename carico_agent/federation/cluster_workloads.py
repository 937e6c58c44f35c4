"""What workloads cost over all nodes, so that no single node decides it.

Per workload and per resource, over all nodes that report it: the weighted mean of the middle half of the reports. A node
weighs n/(n + 1) for n Pods seen, and never more than the typical node of that workload, however many it claims; a lie only
moves which reports are in the middle. A resource that fewer than half of a workload's nodes report is unknown: one node
cannot invent one.

Why not the plain weighted mean: an absolute cost has no natural bound, and one node that reported 1e18 bytes moved the
cluster's mean to 1e16. Why not the median, or the mean of what is near it: where a workload costs twice or three times as
much on half of the nodes (two generations of CPUs), they jump from one half to the other; one liar among 100 moved the
latter by 44 %, the middle half by 3 %. With the 5 % noise of equal nodes the error of the middle half is a tenth larger
than that of the plain mean, that of the median a quarter.

Merging is a generator that stops after a millisecond or so, because the calls of nodes are answered in between.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from carico_agent.core.profile import Profile
from carico_agent.core.subspace import Vector
from carico_agent.federation import profiles
from carico_agent.federation.moments import max_known, spread
from carico_agent.federation.workloads import ReportedWorkloads, SentProfile

MAX_WORKLOADS = 2000
"""Workloads one aggregator merges; beyond it those that fewest nodes report fall out."""
EVIDENCE_PODS = 1.0
"""Pods of one node differ as much as nodes do: a node that saw one Pod counts half as much as one that saw many."""
MAX_PODS_COUNTED = 1000
ROWS_PER_STEP = 2000
REPORTS_PER_STEP = 500
NOTICED_RATIO = 0.02
"""A smaller change of a workload's cost is not sent to the nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadRow:
    """One workload over all nodes: per resource of the table, NaN where unknown."""

    cost: Vector
    spread: Vector
    nodes: int
    pods_seen: int
    arrivals: float
    profile: Profile | None = None
    """In absolute units."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterWorkloads:
    """The merged workloads, those that most nodes know first."""

    resources: tuple[str, ...] = ()
    rows: dict[str, WorkloadRow] = field(default_factory=dict)


def merge_nodes(reports: Sequence[ReportedWorkloads]) -> Iterator[ClusterWorkloads | None]:
    """All nodes' reports as one: yields None between pieces of work, the result at last."""
    counts: Counter[str] = Counter()
    layouts: dict[tuple[str, ...], list[ReportedWorkloads]] = {}
    for done, report in enumerate(reports, start=1):
        if report.names:
            counts.update(report.names)
            layouts.setdefault(report.resources, []).append(report)
        if done % REPORTS_PER_STEP == 0:
            yield None
    kept = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_WORKLOADS]
    number = {name: i for i, name in enumerate(kept)}
    resources = max_known((names, np.full(len(names), len(group))) for names, group in layouts.items())
    yield None
    table = _stack(layouts, resources, number)
    yield None
    rows: dict[str, WorkloadRow] = {}
    starts = np.searchsorted(table.number, np.arange(len(kept) + 1)).tolist()
    worked = 0
    days = _profiles_by_workload(reports)
    for i, name in enumerate(kept):
        row = _merge_workload(table, starts[i], starts[i + 1])
        sent = days.get(name, [])
        day = profiles.merged([_read_profile(one, have, resources) for one, have in sent], middle_mean)
        rows[name] = replace(row, profile=day)
        worked += 50 + starts[i + 1] - starts[i] + (ROWS_PER_STEP if sent else 0)  # a merged day takes milliseconds
        if worked > ROWS_PER_STEP:
            worked = 0
            yield None
    yield ClusterWorkloads(resources, rows)


def _profiles_by_workload(reports: Sequence[ReportedWorkloads]) -> dict[str, list[tuple[SentProfile, tuple[str, ...]]]]:
    """All that was sent of each workload, with the resources it is about."""
    found: dict[str, list[tuple[SentProfile, tuple[str, ...]]]] = {}
    for report in reports:
        for name, sent in zip(report.names, report.profiles, strict=False):
            if sent is not None:
                found.setdefault(name, []).append((sent, report.resources))
    return found


def _read_profile(sent: SentProfile, have: tuple[str, ...], want: tuple[str, ...]) -> Profile:
    return profiles.placed(profiles.read_profile(sent, len(have)), have, want)


def combine(parts: Sequence[ClusterWorkloads]) -> ClusterWorkloads:
    """Several aggregators' workloads as one: the mean weighted by the nodes that know each. Aggregators are trusted."""
    parts = [part for part in parts if part.rows]
    if len(parts) == 1:
        return parts[0]
    resources = max_known((part.resources, np.ones(len(part.resources))) for part in parts)
    found: dict[str, list[WorkloadRow]] = {}
    for part in parts:
        for name, row in part.rows.items():
            cost = _placed(row.cost[None], part.resources, resources)[0]
            width = _placed(row.spread[None], part.resources, resources)[0]
            day = None if row.profile is None else profiles.placed(row.profile, part.resources, resources)
            found.setdefault(name, []).append(replace(row, cost=cost, spread=width, profile=day))
    order = sorted(found, key=lambda name: (-sum(row.nodes for row in found[name]), name))[:MAX_WORKLOADS]
    return ClusterWorkloads(resources, {name: _sum_rows(found[name]) for name in order})


def differ(old: ClusterWorkloads, new: ClusterWorkloads) -> bool:
    """Whether workloads came or went, or a cost moved by more than NOTICED_RATIO of itself."""
    if old.resources != new.resources or old.rows.keys() != new.rows.keys():
        return True
    return any(_moved(old.rows[name], row) for name, row in new.rows.items())


def _moved(old: WorkloadRow, new: WorkloadRow) -> bool:
    if abs(new.nodes - old.nodes) > 0.1 * old.nodes or not np.array_equal(np.isnan(old.cost), np.isnan(new.cost)):
        return True
    return bool((np.abs(new.cost - old.cost) > NOTICED_RATIO * np.abs(old.cost)).any())  # false for NaN


def _sum_rows(rows: Sequence[WorkloadRow]) -> WorkloadRow:
    if len(rows) == 1:
        return rows[0]
    weight = np.array([[float(row.nodes)] for row in rows])
    cost, width = (_known_mean(np.array([getattr(row, part) for row in rows]), weight) for part in ("cost", "spread"))
    nodes, pods = sum(row.nodes for row in rows), sum(row.pods_seen for row in rows)
    known = [row for row in rows if row.profile is not None]
    best = max(known, key=lambda row: row.nodes).profile if known else None  # that of most nodes
    return WorkloadRow(cost, width, nodes, pods, sum(row.arrivals for row in rows), best)


def _known_mean(values: Vector, weight: Vector) -> Vector:
    known = ~np.isnan(values)
    total = (weight * known).sum(axis=0)
    mean = (weight * np.where(known, values, 0.0)).sum(axis=0) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """All reports of all nodes, sorted by workload."""

    number: NDArray[np.int64]
    cost: Vector
    spread: Vector
    pods_seen: Vector
    arrivals: Vector


def _stack(
    layouts: dict[tuple[str, ...], list[ReportedWorkloads]], resources: tuple[str, ...], number: dict[str, int]
) -> _Table:
    numbers: list[int] = []
    cost, width = [np.zeros((0, len(resources)))], [np.zeros((0, len(resources)))]
    pods, arrivals = [np.zeros(0)], [np.zeros(0)]
    for names, group in layouts.items():
        numbers += [number.get(workload, -1) for report in group for workload in report.names]
        m, rows = len(names), np.concatenate([report.table for report in group])
        cost.append(_placed(rows[:, :m], names, resources))
        width.append(_placed(rows[:, m : 2 * m], names, resources))
        pods.append(rows[:, 2 * m])
        arrivals.append(rows[:, 2 * m + 1])
    which = np.array(numbers, dtype=np.int64)
    order = np.argsort(which, kind="stable")
    return _Table(
        which[order],
        np.concatenate(cost)[order],
        np.concatenate(width)[order],
        np.concatenate(pods)[order],
        np.concatenate(arrivals)[order],
    )


def _placed(rows: Vector, have: tuple[str, ...], want: tuple[str, ...]) -> Vector:
    """Columns named `have` in the order of `want`; NaN where there is none."""
    if have == want:
        return rows
    out = spread(rows, have, want).copy()
    out[:, [name not in have for name in want]] = np.nan
    return out


def _merge_workload(table: _Table, first: int, last: int) -> WorkloadRow:
    part = slice(first, last)
    pods = table.pods_seen[part]
    weight = pods / (pods + EVIDENCE_PODS)
    weight = np.minimum(weight, middle_mean(weight, np.ones(len(weight))))  # who claims many weighs as the typical node
    m = table.cost.shape[1]
    cost, width = np.full(m, np.nan), np.full(m, np.nan)
    for j in range(m):
        known = ~np.isnan(table.cost[part, j])
        if weight[known].sum() * 2 < weight.sum() or not weight[known].sum():
            continue
        cost[j] = middle_mean(table.cost[part, j][known], weight[known])
        widths = table.spread[part, j]
        sure = known & ~np.isnan(widths)
        if weight[sure].sum():
            width[j] = middle_mean(widths[sure], weight[sure])
    # How many there are decides about nothing but order, and is bounded by what the typical node reports.
    most = 16 * max(1.0, float(np.median(table.arrivals[part])))
    arrivals = float(np.minimum(table.arrivals[part], most).sum())
    return WorkloadRow(cost, width, last - first, int(np.minimum(pods, MAX_PODS_COUNTED).sum()), arrivals)


def middle_mean(values: Vector, weight: Vector) -> float:
    """The mean of the middle half of `values` by weight; of less where there are few: the outermost stay outside.

    >>> middle_mean(np.array([0.0, 1.0, 2.0, 1e18]), np.ones(4)), middle_mean(np.array([1.0, 2.0, 1e18]), np.ones(3))
    (1.5, 2.0)
    """
    order = np.argsort(values)
    upto = np.cumsum(weight[order])
    total = upto[-1]
    cut = min(max(0.25 * total, float(weight.max())), (0.5 - 1e-9) * total)
    inside = np.diff(np.clip(upto, cut, total - cut), prepend=cut)
    return float((values[order] * inside).sum() / inside.sum())
