"""How many of the next arrivals fit: the interval of the headline is a renewal count.

Pods come as they come: each is of some workload by its share of the arrivals, and differs from its workload by the
workload's own spread. N is how many of them fit into the room, the last one by the part of it that does; with one
workload whose Pods are alike N is room over cost. The interval is from the 5 % to the 95 % point of N over a few
hundred drawn sequences, in each of which the room and the mean cost are off by what is not known about them. Resources
are counted jointly: N ends where the first of them does.

Pods do not come in any order: rollouts bring many of one workload, rounds bring one of each. So most sequences go on
as the recorded arrivals once did after a Pod like the last one. The others are drawn by share alone, fewer the more
arrivals are recorded. In blocks the recorded order counts by its variance (`dispersion`).

Why drawn, and not a formula: the closed forms (Feller, *Probability* II, XI.4: mean room/μ, variance room·σ²/μ³) are
for one resource and many Pods; with two resources, three workloads and room for five Pods they miss the 5 % point by a
Pod. Why the same draws each time: an interval that flickers says that something changed. Where many Pods fit, a step is
a block of them, with the normal distribution of their sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, sqrt
from random import Random
from statistics import NormalDist

import numpy as np

DRAWS = 200
"""Sequences of arrivals. The 5 % point of so many is off by 1.5 points of percent, and by less as they are
stratified."""

STEPS = 32
"""Steps in a sequence: single Pods up to so many, blocks of Pods beyond."""

LOW, HIGH = 0.05, 0.95

DOUBTED_ROWS, MIN_ORDER, MIN_LIKE = 1.0, 4, 4
"""That Pods come in no order counts as much as this many rows of arrivals. An order is recorded from so many arrivals
on, and what followed a Pod like the last one where so many such Pods have come."""

EQUAL_RATIO = 1e-6
"""Costs that differ by less are equal: what is left of them is rounding, and has no order."""

MAX_RESOURCES = 4
"""Resources that are drawn; the model knows no more (config.KNOWN_RESOURCES)."""

SEED = 29


@dataclass(frozen=True, slots=True)
class Arrival:
    """A workload that may come next: its cost and the spread of one Pod around it per resource, and its share."""

    cost: Sequence[float]
    spread: Sequence[float]
    share: float


@dataclass(frozen=True, slots=True)
class Unsure:
    """A value per resource and its standard deviation; NaN: unknown, limits nothing."""

    value: Sequence[float]
    sd: Sequence[float]


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Stratified numbers, the same in every process: each row has every stratum once, and one normal of each.

    The first rows are for the steps, the last ones for where a sequence begins and what is not known about room and
    costs. Not by numpy.random: importing it costs the agent 1.9 MB.
    """
    drawn = Random(SEED)
    normals = [NormalDist().inv_cdf(x) for x in _strata().tolist()]
    stratum = [drawn.sample(range(DRAWS), DRAWS) for _ in range(STEPS + 1)]
    normal = [drawn.sample(normals, DRAWS) for _ in range((MAX_RESOURCES + 1) * STEPS)]
    return np.array(stratum), np.array(normal)


def _strata() -> np.ndarray:
    return (np.arange(DRAWS) + 0.5) / DRAWS


def dispersion(recent: Sequence[float], length: int) -> float:
    """How much more (or less) the costs of `length` arrivals in a row vary together than if each was drawn by itself.

    1 for Pods that come in no order, less where they come in rounds, more where many of a workload come at once. It is
    believed as far as the `recent` arrivals hold rows of that length, and counts as 1 otherwise.

    >>> [round(dispersion(row, 4), 1) for row in ([1.0, 0.1] * 32, ([1.0] * 8 + [0.1] * 8) * 4)]
    [0.1, 2.9]
    """
    known = np.array([x for x in recent if x == x])
    length = min(length, len(known) // 4)
    if length < 2:
        return 1.0
    mean = known.mean()
    known -= mean
    variance = float(known @ known) / len(known)
    if not variance > EQUAL_RATIO**2 * mean * mean:
        return 1.0
    total = np.concatenate(([0.0], np.cumsum(known)))
    rows = total[length:] - total[:-length]
    seen = float(rows @ rows) / len(rows) / (length * variance * (1 - length / len(known)))
    weight = len(known) / length
    return (weight * seen + DOUBTED_ROWS) / (weight + DOUBTED_ROWS)


def count(room: Unsure, arrivals: Sequence[Arrival], mean: Unsure, order: Sequence[int] = ()) -> tuple[float, float]:
    """The 5 % and 95 % points of how many of the `arrivals` to come fit into `room`.

    `mean` is the cost of the next Pod in the mean, with the standard deviation of what is not known about it; where a
    workload's own cost is unknown it counts at that. `order` says which of `arrivals` the last Pods were, oldest first.
    Example: room for 2.65 cores, and batch (1 core), web and cache Pods.

    >>> mix = [Arrival([1.0], [0.05], 0.52), Arrival([0.1], [0.01], 0.29), Arrival([0.001], [0.0], 0.19)]
    >>> low, high = count(Unsure([2.65], [0.02]), mix, Unsure([0.55], [0.01]))
    >>> round(low), round(high)
    (3, 9)
    """
    able = [i for i, (free, c) in enumerate(zip(room.value, mean.value, strict=True)) if free == free and c > 0]
    if not able:
        return 0.0, inf
    fits = min(max(0.0, room.value[i]) / mean.value[i] for i in able)
    costs, spreads, shares = _mixture(arrivals, mean, able)
    variance = _variance(costs, spreads, shares)
    squares = np.array([mean.value[i] for i in able]) ** 2
    # twice what fits in the mean, and three standard deviations of one Pod's cost for few of them
    longest = 1.5 * fits + 3 * sqrt((fits + 1) * float(np.max(variance / squares))) + 3
    block = ceil(longest / STEPS)
    steps = min(STEPS, ceil(longest / block))
    free = np.array([[room.value[i], room.sd[i], mean.value[i], mean.sd[i]] for i in able])
    if len(able) > 1:
        short = _short(free, variance, longest)
        costs, spreads, free = costs[short], spreads[short], free[short]
    if block == 1:
        taken = _single(costs, spreads, _workloads(shares, order, fits, steps))
    else:
        taken = _blocks(_in_order(costs, shares, order, round(fits)), spreads, shares, block, steps)
    found = np.sort(block * _crossing(taken, free, block))
    return _point(found, LOW), _point(found, HIGH)


def _mixture(
    arrivals: Sequence[Arrival], mean: Unsure, able: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs and spreads, a row per resource, and shares that sum up to 1."""
    costs = np.array([[a.cost[i] if a.cost[i] == a.cost[i] else mean.value[i] for a in arrivals] for i in able])
    spreads = np.array([[a.spread[i] if a.spread[i] == a.spread[i] else 0.0 for a in arrivals] for i in able])
    shares = np.array([a.share for a in arrivals])
    return costs, spreads, shares / shares.sum()


def _variance(costs: np.ndarray, spreads: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Of one arrival's cost, per resource."""
    variance: np.ndarray = (spreads**2 + costs**2) @ shares - (costs @ shares) ** 2
    variance[variance < 0] = 0.0  # by rounding
    return variance


def _short(free: np.ndarray, variance: np.ndarray, longest: float) -> np.ndarray:
    """Which resources may be used up by so many Pods, and at least the one that is used up first in the mean: what the
    others have left is four standard deviations more."""
    room, room_sd, mean, mean_sd = free.T
    short: np.ndarray = room - 4 * room_sd < longest * (mean + 4 * mean_sd) + 4 * np.sqrt(longest * variance)
    short[np.argmin(room / mean)] = True
    return short


def _workloads(shares: np.ndarray, order: Sequence[int], fits: float, steps: int) -> np.ndarray:
    """Which workload each step of each sequence is, a row per step."""
    stratum = _tables()[0]
    drawn: np.ndarray = np.searchsorted(np.cumsum(shares)[:-1], _strata())[stratum[:steps]]
    if len(order) < MIN_ORDER or len(shares) < 2:
        return drawn
    recorded = np.array(order)
    like = np.flatnonzero(recorded[:-1] == recorded[-1]) + 1
    starts = like if len(like) >= MIN_LIKE else np.arange(len(recorded))
    rows = len(recorded) / max(fits, 1.0)
    following = int(DRAWS * rows / (rows + DOUBTED_ROWS))
    turn = stratum[-1]  # the sequences in some order: the first of them follow the recorded arrivals
    begin = starts[turn * len(starts) // max(following, 1) % len(starts)]
    found: np.ndarray = np.where(turn < following, recorded[(begin + np.arange(steps)[:, None]) % len(recorded)], drawn)
    return found


def _single(costs: np.ndarray, spreads: np.ndarray, workloads: np.ndarray) -> list[np.ndarray]:
    """Per resource what each step takes, a row per step: one Pod of its workload."""
    own = _tables()[1][: len(workloads)]
    return [cost.take(workloads) + spread.take(workloads) * own for cost, spread in zip(costs, spreads, strict=True)]


def _in_order(costs: np.ndarray, shares: np.ndarray, order: Sequence[int], length: int) -> np.ndarray:
    """Costs drawn together or apart around their mean, so that rows of them vary as the recorded arrivals do."""
    if not order:
        return costs
    middle = (costs @ shares)[:, None]
    ratios = [dispersion(cost[list(order)].tolist(), length) for cost in costs]
    found: np.ndarray = middle + np.sqrt(ratios)[:, None] * (costs - middle)
    return found


def _blocks(costs: np.ndarray, spreads: np.ndarray, shares: np.ndarray, block: int, steps: int) -> list[np.ndarray]:
    """The same for `block` Pods a step: their sum is normal, with the mixture's covariance times `block`."""
    mean = costs @ shares
    deviation = costs - mean[:, None]
    covariance = (deviation * shares) @ deviation.T + np.diag(spreads**2 @ shares)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0) * block)
    normal = _tables()[1]
    own = [normal[i * STEPS : i * STEPS + steps] for i in range(len(mean))]
    return [block * m + sum(r * z for r, z in zip(row, own, strict=True)) for m, row in zip(mean, root, strict=True)]


def _crossing(taken: list[np.ndarray], free: np.ndarray, block: int) -> np.ndarray:
    """Per draw, at which step (with its part) the first resource is used up."""
    normal, draws, found = _tables()[1], np.arange(DRAWS), np.full(DRAWS, inf)
    for i, (each, (room, room_sd, mean, mean_sd)) in enumerate(zip(taken, free, strict=True)):
        # room and mean cost as they may be; a cost off by a factor is the room off by its inverse
        factor = np.maximum(1 + mean_sd / mean * normal[-1 - 2 * i], 0.1)
        rest = np.maximum(room + room_sd * normal[-2 - 2 * i], 0.0) / factor
        total = np.cumsum(each, axis=0)
        if each.min() < 0:  # a drawn step may be: the first crossing counts
            np.maximum.accumulate(total, axis=0, out=total)
        whole = np.sum(total <= rest, axis=0)
        inside = np.minimum(whole, len(each) - 1)
        last, before = total[inside, draws], np.where(inside > 0, total[inside - 1, draws], 0.0)
        part = (rest - before) / np.maximum(last - before, 1e-12)
        beyond = len(each) + (rest - last) / (block * mean)
        found = np.minimum(found, np.where(whole < len(each), whole + part, beyond))
    return found


def _point(values: np.ndarray, share: float) -> float:
    """The point below which this share of the sorted `values` lies."""
    at = share * len(values) - 0.5
    below = int(at)
    return float(values[below] + (at - below) * (values[below + 1] - values[below]))
