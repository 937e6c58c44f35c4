"""Which nodes are not needed: one after the other is emptied on paper, the emptiest first, while every Pod still fits.

Why greedy: an eviction cannot choose where the successor goes, kube-scheduler does. A packing that only an exact solver
finds could not be carried out. tests/commands/test_drain.py compares with an exact solver on small clusters.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from carico_agent.kubectl.drain.budgets import Budget
from carico_agent.kubectl.drain.facts import PlannedPod
from carico_agent.kubectl.drain.planner import DrainPlan, Move, drain
from carico_agent.kubectl.drain.state import SCORED, TrialCluster

TRIES = 4
"""Orders tried per node: fewer than for a drain-check, because a step is planned again before it is carried out."""


@dataclass(frozen=True)
class FreedNode:
    name: str
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class Consolidation:
    freed: tuple[FreedNode, ...]
    needed: int
    """Nodes that stay in use."""
    bound: int
    """No packing of these Pods, not even one that splits them, needs fewer."""
    blocked: tuple[tuple[str, str], ...] = ()
    """Nodes that stay, and why."""


def consolidate(
    situation: TrialCluster,
    budgets: Iterable[Budget],
    waiting: Iterable[PlannedPod] = (),
    candidates: Iterable[str] | None = None,
    local_data: bool = False,
    min_nodes: int = 1,
) -> Consolidation:
    """`local_data`: Pods with an emptyDir may move. `candidates` None: every node that is not cordoned."""
    now, budgets, waiting = situation.copy(), tuple(budgets), tuple(waiting)
    wanted = None if candidates is None else set(candidates)
    freed: list[FreedNode] = []
    blocked: list[tuple[str, str]] = []
    in_use = int((~now.cordoned).sum())
    for name in _emptiest_first(now):
        if now.cordoned[now.at[name]] or (wanted is not None and name not in wanted):
            continue
        if in_use - len(freed) <= min_nodes:
            blocked.append((name, f"at least {min_nodes} nodes stay"))
            continue
        plan = drain(now, [name], budgets, waiting, TRIES, seed=len(freed))
        if why := refusal(plan, local_data):
            blocked.append((name, why))
            continue
        _carry_out(now, plan)
        freed.append(FreedNode(name, plan.moves))
    return Consolidation(tuple(freed), in_use - len(freed), min_needed(situation), tuple(blocked))


def refusal(plan: DrainPlan, local_data: bool) -> str:
    """Why this node cannot be emptied; empty: it can."""
    for fate in plan.fates:
        if fate.left_over:
            return f"{fate.pod.key}: {fate.why}"
        if fate.pod.local_data and not local_data:
            return f"{fate.pod.key} would lose local data (--delete-emptydir-data allows it)"
    return ""


def _emptiest_first(situation: TrialCluster) -> list[str]:
    columns = [situation.column[name] for name in SCORED if name in situation.column]
    have, held = situation.allocatable[:, columns], situation.requested[:, columns]
    share = (held / np.maximum(have, 1)).max(axis=1) if columns else np.zeros(len(situation.nodes))
    ranked = sorted(zip(share.tolist(), (node.name for node in situation.nodes), strict=True))
    return [name for _, name in ranked]


def _carry_out(situation: TrialCluster, plan: DrainPlan) -> None:
    """The first try's moves, on `situation` itself."""
    for name in plan.nodes:
        situation.cordoned[situation.at[name]] = True
    for move in plan.moves:
        situation.take(move.pod)
        situation.place(replace(move.pod, node=move.to), situation.at[move.to])


def min_needed(situation: TrialCluster) -> int:
    """The fewest nodes whose sum holds what all Pods request, resource by resource, the largest nodes first."""
    found = 0
    for name in SCORED:
        if name not in situation.column:
            continue
        at = situation.column[name]
        held = int(situation.requested[:, at].sum())
        sizes = np.cumsum(np.sort(situation.allocatable[~situation.cordoned, at])[::-1])
        found = max(found, int(np.searchsorted(sizes, held)) + 1 if held else 0)
    return min(found, len(situation.nodes))
