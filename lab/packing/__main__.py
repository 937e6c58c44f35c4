"""Packing heuristics in simulation: how many nodes a list of Pods needs.

    python -m lab.packing --policy VD --generator split --a 7 --d 3 --lists 60 --seed 5
    python -m lab.packing --table        # all of table A.4 with ours beside it, into lab/results/packing.md

Lists of 100·a Pods with a mean demand of 1/a of a node in each of d dimensions, packed online, one after the other.
Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 and table A.4
(1,500 lists each). All lists of a run are packed side by side in numpy: 100 lists of 1,000 Pods take about a second.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from carico_agent.extender.packing import SCORES, Array, Score, fits

FULL_NODES = 100
CLOSED = 4.0
"""Utilisation of a node that has not been opened: nothing fits."""

Generator = Callable[[np.random.Generator, int, int, int], Array]


def uniform(rng: np.random.Generator, lists: int, a: int, d: int) -> Array:
    """U(0, 2/a) in each dimension."""
    return rng.uniform(0.0, 2.0 / a, (lists, FULL_NODES * a, d))


def exponential(rng: np.random.Generator, lists: int, a: int, d: int) -> Array:
    """Exp(1/a), at most a whole node."""
    return np.minimum(rng.exponential(1.0 / a, (lists, FULL_NODES * a, d)), 1.0)


def split(rng: np.random.Generator, lists: int, a: int, d: int) -> Array:
    """100 full nodes, each cut at a − 1 uniform points per dimension, and shuffled: 100 would be enough."""
    cuts = np.sort(rng.uniform(0.0, 1.0, (lists, FULL_NODES, a - 1, d)), axis=2)
    edges = np.concatenate([np.zeros((lists, FULL_NODES, 1, d)), cuts, np.ones((lists, FULL_NODES, 1, d))], axis=2)
    return _shuffled(rng, np.diff(edges, axis=2).reshape(lists, FULL_NODES * a, d))


def _shuffled(rng: np.random.Generator, pods: Array) -> Array:
    """Whole Pods change places, each list in an order of its own."""
    order = np.argsort(rng.random(pods.shape[:2]), axis=1)
    return np.take_along_axis(pods, order[..., None], axis=1)


GENERATORS: dict[str, Generator] = {"uniform": uniform, "exp": exponential, "split": split}


def nodes_needed(pods: Array, score: Score) -> Array:
    """Nodes opened for each list of (lists, Pods, d): online best fit."""
    lists, count, d = pods.shape
    used = np.full((lists, 32, d), CLOSED)
    opened = np.zeros(lists, dtype=int)
    rows = np.arange(lists)
    for step in range(count):
        X = pods[:, step]
        width = max(int(opened.max()), 1)
        U = used[:, :width]
        room = fits(U, X)
        # Scores only where there is room: for small Pods nine of ten nodes are full, and this saves two thirds.
        row, node = np.nonzero(room)
        scores = np.full(room.shape, -np.inf)
        scores[row, node] = score(U[row, node][:, None, :], X[row])[:, 0]
        choice = np.argmax(scores, axis=1)
        new = ~room[rows, choice]
        choice[new] = opened[new]
        if new.any() and width + 1 > used.shape[1]:
            used = np.concatenate([used, np.full((lists, used.shape[1], d), CLOSED)], axis=1)
        used[rows[new], choice[new]] = 0.0
        used[rows, choice] += X
        opened += new
    return opened.astype(float)


def simulate(policy: str, generator: str, a: int, d: int, lists: int, seed: int) -> dict[str, float]:
    """Mean nodes and its standard error; the same lists for every policy of a seed."""
    rng = np.random.default_rng([seed, list(GENERATORS).index(generator), a, d])
    nodes = nodes_needed(GENERATORS[generator](rng, lists, a, d), SCORES[policy])
    error = float(nodes.std(ddof=1) / np.sqrt(lists)) if lists > 1 else float("nan")
    return {"mean": float(nodes.mean()), "standard_error": error}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m lab.packing", description=__doc__.splitlines()[0] if __doc__ else "")
    made.add_argument("--policy", choices=tuple(SCORES), default="KM")
    made.add_argument("--generator", choices=tuple(GENERATORS), default="split")
    made.add_argument("--a", type=int, default=10, help="a Pod needs 1/a of a node on average")
    made.add_argument("--d", type=int, default=2, help="dimensions")
    made.add_argument("--lists", type=int, default=100)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--table", action="store_true", help="all of table A.4, into lab/results/packing.md")
    return made


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    if given.a < 2 or given.d < 1 or given.lists < 2 or given.seed < 0:
        print("lab.packing: --a and --lists are at least 2, --d at least 1, --seed at least 0", file=sys.stderr)
        return 2
    if given.table:
        from lab.packing.table import write

        return write(given.lists, given.seed)
    answer: dict[str, Any] = simulate(given.policy, given.generator, given.a, given.d, given.lists, given.seed)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
