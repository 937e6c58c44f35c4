"""Is there a setting of carico burst that beats naive bursting? A grid of settings on the simulator of lab.burst.sim.

    python -m lab.burst.grid [--seeds N] [--write]

Every setting runs the same workloads as naive. A row has the mean difference to naive with its 95 % confidence interval
(paired by seed). A setting *wins* when it is better in at least one of makespan, money and turnaround and not worse in
the others: the interval of the first lies below 0, those of the others do not lie above 0. Seeds begin at 2000: none of
them was used to choose a setting.
"""

import argparse
import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from carico_agent.burst.planner import BurstPolicy
from lab.burst.sim import CHEAP_PER_H, MASTER_CHEAP_PER_H, CaricoPolicies, measures, run, simulate
from lab.support import TREE

FIRST_SEED = 2000
RESULTS = TREE / "lab/results/burst_grid.md"
JUDGED = {"makespan_s": "makespan [s]", "money_usd": "money [USD]", "turnaround_s": "mean turnaround [s]"}
DIGITS = (0, 3, 0)
Differences = dict[str, tuple[float, float]]
"""Measure → mean and half the width of its interval."""


@dataclass(frozen=True)
class GridPoint:
    """One setting: nodes kept, value of time [USD/h], unschedulable_s, idle_delete_s, max_nodes."""

    min_nodes: int
    value_per_h: float
    unschedulable_s: float
    idle_s: float
    max_nodes: int

    def system(self) -> CaricoPolicies:
        policy = BurstPolicy(unschedulable_s=self.unschedulable_s, value_per_h=self.value_per_h)
        return CaricoPolicies(policy=policy, max_nodes=self.max_nodes, min_nodes=self.min_nodes, idle_s=self.idle_s)

    def row(self, found: Differences) -> str:
        values = (self.min_nodes, self.value_per_h, self.unschedulable_s, self.idle_s, self.max_nodes)
        cells = [f"{value:g}" for value in values]
        for (mean, half), digits in zip(found.values(), DIGITS, strict=True):
            cells.append(f"{mean:+.{digits}f} ± {half:.{digits}f}")
        return f"| {' | '.join(cells)} | {'yes' if wins(found) else 'no'} |"


def grid() -> Iterator[GridPoint]:
    """24 settings on demand, 12 with a node that is always there."""
    for value_per_h, wait_s, idle_s in itertools.product((0.1, 0.3, 1.0, 3.0), (5.0, 30.0), (30.0, 60.0, 240.0)):
        yield GridPoint(0, value_per_h, wait_s, idle_s, 4)
    for value_per_h, wait_s, max_nodes in itertools.product((0.1, 0.3, 1.0), (5.0, 30.0), (1, 4)):
        yield GridPoint(1, value_per_h, wait_s, 60.0, max_nodes)


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval (normal).

    >>> interval([1.0, 3.0])
    (2.0, 1.96)
    """
    half = 1.96 * statistics.stdev(differences) / sqrt(len(differences))
    return statistics.fmean(differences), round(half, 6)


def wins(found: Differences) -> bool:
    """
    >>> wins({"money_usd": (-0.1, 0.05), "turnaround_s": (1.0, 2.0)}), wins({"money_usd": (0.0, 1.0)})
    (True, False)
    """
    better = any(mean + half < 0 for mean, half in found.values())
    return better and not any(mean - half > 0 for mean, half in found.values())


def compared(point: GridPoint, naive: dict[int, dict[str, float]]) -> Differences:
    """A setting less naive, by measure."""
    runs = {seed: measures(run(point.system(), CHEAP_PER_H, MASTER_CHEAP_PER_H, seed)) for seed in naive}
    return {key: interval([runs[seed][key] - naive[seed][key] for seed in naive]) for key in JUDGED}


def table(seeds: list[int]) -> str:
    naive = {seed: measures(simulate("naive", seed)) for seed in seeds}
    means = [f"{title} {statistics.fmean(one[key] for one in naive.values()):.4g}" for key, title in JUDGED.items()]
    head = "min_nodes | value/h | unschedulable_s | idle_delete_s | max_nodes"
    lines = [f"Naive: {', '.join(means)}.", "", f"| {head} | {' | '.join(JUDGED.values())} | wins |", "|---" * 9 + "|"]
    return "\n".join([*lines, *(point.row(compared(point, naive)) for point in grid())])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30, metavar="N", help="this many seeds from 2000 on (default 30)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(TREE)}")
    given = parser.parse_args(argv)
    text = table(list(range(FIRST_SEED, FIRST_SEED + given.seeds)))
    print(text)
    if given.write:
        command = ["git", "rev-parse", "--short", "HEAD"]
        code = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout.strip()
        RESULTS.write_text(
            f"# Burst: a grid of settings against naive bursting\n\n`python -m lab.burst.grid --write`: {given.seeds} "
            f"seeds, code {code}. Each cell is the setting less naive, with its 95 % confidence interval.\n\n{text}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
