"""What happens to the Pods of a node that is drained: each is placed where kube-scheduler would place it. Pure.

A drain evicts Pods at about the same time, so the order in which kube-scheduler meets them is not known, and between
equal scores it draws. The planner therefore tries several orders and draws. A Pod that is left over in all of them is
certain to be, and so is one that is left over in none; of the others the number of tries is said.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from carico_agent.kubectl.drain.budgets import Budget, Remaining
from carico_agent.kubectl.drain.facts import PlannedPod
from carico_agent.kubectl.drain.filters import Static, allowed
from carico_agent.kubectl.drain.scores import scores
from carico_agent.kubectl.drain.state import TrialCluster

TRIES = 16


@dataclass(frozen=True, slots=True)
class Move:
    """One Pod of one try. `to` empty: it is left over, and `why` says why."""

    pod: PlannedPod
    to: str = ""
    why: str = ""
    stays: bool = False
    """The eviction API keeps it: it stays where it is."""


@dataclass(frozen=True)
class Fate:
    """One Pod in all tries."""

    pod: PlannedPod
    left_over: int
    tries: int
    to: tuple[str, ...] = ()
    """Where it went, most often first."""
    why: str = ""
    stays: bool = False

    @property
    def certain(self) -> bool:
        return self.left_over in (0, self.tries)


@dataclass(frozen=True)
class DrainPlan:
    """What becomes of the Pods of some nodes, and of those that wait already."""

    nodes: tuple[str, ...]
    fates: tuple[Fate, ...]
    ignored: tuple[PlannedPod, ...] = ()
    """DaemonSets' and static Pods: a drain leaves them."""
    outcomes: tuple[tuple[str, ...], ...] = ()
    """For each try the workloads of the Pods that wait afterwards, sorted."""
    displaced: tuple[int, ...] = ()
    """For each try how many of the nodes' own Pods fit nowhere, without those that are kept or have no controller."""
    moves: tuple[Move, ...] = ()
    """Of the first try."""
    waiting: tuple[PlannedPod, ...] = field(default=())
    """Pods that waited before and still do, in the first try."""

    @property
    def left_over(self) -> list[Fate]:
        return [fate for fate in self.fates if fate.left_over]

    @property
    def certain(self) -> bool:
        """Every order gives the same."""
        return len(set(self.outcomes)) <= 1


def drain(
    situation: TrialCluster,
    nodes: Iterable[str],
    budgets: Sequence[Budget] = (),
    waiting: Sequence[PlannedPod] = (),
    tries: int = TRIES,
    seed: int = 0,
    in_order: bool = False,
) -> DrainPlan:
    """`situation` is left as it is. `in_order`: Pods go one at a time, by priority and name, each when the one before
    has been placed; then only draws between equal scores differ from try to try."""
    names = tuple(nodes)
    there = [pod for name in names for pod in situation.pods[situation.at[name]].values()]
    ignored = [pod for pod in there if pod.per_node or pod.static or pod.leaving]
    going = sorted(
        (pod for pod in there if not (pod.per_node or pod.static or pod.leaving)), key=lambda p: (-p.priority, p.key)
    )
    draw, known, results = random.Random(seed), Static(), []
    for n in range(max(tries, 1)):
        order = going if n == 0 or in_order else _shuffled(going, draw)
        results.append(_try(situation, names, order, budgets, waiting, known, draw))
    fates = tuple(_fate(pod, [moves[pod.uid] for moves, _ in results]) for pod in going)
    first, still = results[0]
    outcomes = tuple(_outcome(moves, waits) for moves, waits in results)
    displaced = tuple(len(_lost(moves)) for moves, _ in results)
    firsts = tuple(first[pod.uid] for pod in going)
    return DrainPlan(names, fates, tuple(ignored), outcomes, displaced, firsts, tuple(still))


def _shuffled(pods: Sequence[PlannedPod], draw: random.Random) -> list[PlannedPod]:
    """Another order; kube-scheduler takes higher priorities first."""
    return sorted(draw.sample(pods, len(pods)), key=lambda pod: -pod.priority)


def _outcome(moves: dict[str, Move], waits: Sequence[PlannedPod]) -> tuple[str, ...]:
    return tuple(sorted(pod.workload for pod in (*_lost(moves), *waits)))


def _lost(moves: dict[str, Move]) -> list[PlannedPod]:
    """Pods that a controller makes anew and that find no node."""
    return [move.pod for move in moves.values() if not move.to and not move.stays and move.pod.owner[0]]


def _try(
    situation: TrialCluster,
    names: tuple[str, ...],
    order: Sequence[PlannedPod],
    budgets: Sequence[Budget],
    waiting: Sequence[PlannedPod],
    known: Static,
    draw: random.Random,
) -> tuple[dict[str, Move], list[PlannedPod]]:
    tried = situation.copy()
    for name in names:
        tried.cordoned[tried.at[name]] = True
    left, moves = Remaining(tuple(budgets)), {}
    for pod in order:
        if kept := left.refusal(pod):
            moves[pod.uid] = Move(pod, why=kept, stays=True)
            continue
        tried.take(pod)
        left.spend(pod)
        moves[pod.uid] = move = settle(tried, pod, known, draw)
        if move.to:
            left.spend(pod, -1)
    still = [pod for pod in waiting if not settle(tried, pod, known, draw).to]
    return moves, still


def settle(situation: TrialCluster, pod: PlannedPod, known: Static, draw: random.Random) -> Move:
    """Place one Pod as kube-scheduler would; its successor has no controller's name yet, so it keeps this one's."""
    if not pod.owner[0] and pod.node:
        return Move(pod, why="no controller makes it anew: an eviction ends it")
    fine, refusals = allowed(situation, pod, known)
    rows = np.flatnonzero(fine)
    if not len(rows):
        return Move(pod, why=reasons(refusals))
    found = scores(situation, pod, rows)
    at = int(draw.choice(rows[found == found.max()].tolist()))
    situation.place(replace(pod, node=situation.nodes[at].name), at)
    return Move(pod, situation.nodes[at].name)


def reasons(refusals: Iterable[tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], str]]) -> str:
    """How many nodes refuse for which reason, most first; a node counts once, by its first."""
    seen: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
    counts: Counter[str] = Counter()
    for refused, why in refusals:
        new = refused if seen is None else refused & ~seen
        seen = refused.copy() if seen is None else seen | refused
        counts[why] += int(new.sum())
    return ", ".join(f"{count} × {why}" for why, count in counts.most_common() if count)


def _fate(pod: PlannedPod, moves: Sequence[Move]) -> Fate:
    lost = [move for move in moves if not move.to]
    targets = Counter(move.to for move in moves if move.to)
    return Fate(
        pod,
        len(lost),
        len(moves),
        tuple(name for name, _ in targets.most_common()),
        lost[0].why if lost else "",
        any(move.stays for move in lost),
    )
