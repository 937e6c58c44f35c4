"""Nodes used, job and Pod completion times per policy of the extender, on a cluster of unlike nodes.

    python -m lab.packing.cluster [--seeds 3] [--write]

24 nodes of four sizes, agents and policies as shipped, kube-scheduler's own scores for comparison; four workloads
arrive over two minutes and need about half of the cores. A node counts as used while a Pod is assigned to it: what a
policy leaves empty could be switched off. Nodes differ, so the cores of the used ones say more than their number.

`--write` renews lab/results/packing_cluster.md.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from carico_agent.extender import policies
from lab.sim.cluster import Machine
from lab.sim.engine import Result, Setup, run
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.schedulers.kube import Kube
from lab.sim.schedulers.packer import Packer
from lab.sim.workload import LIGHT, PI, SKLEARN, PodBatch, SimulatedWorkload

RESULTS = Path(__file__).parents[1] / "results/packing_cluster.md"
FIRST_SEED = 2000
SIZES = (0.5,) * 8 + (1.0,) * 8 + (2.0,) * 6 + (4.0,) * 2
"""Multiples of 4 cores and 8 GiB: 128 cores and 256 GiB in all."""
CACHE = SimulatedWorkload("cache", work_core_s=6.0, threads=0.2, memory_mib=1500, memory_ramp_s=5.0)
OVER_S = 120.0
JOBS = (
    PodBatch(PI.asking(500, 32), 600, over_s=OVER_S),
    PodBatch(SKLEARN.asking(2000, 750), 30, over_s=OVER_S),
    PodBatch(CACHE.asking(100, 1500), 60, over_s=OVER_S),
    PodBatch(LIGHT.asking(0, 0), 200, over_s=OVER_S),
)
SETUP = Setup(nodes=len(SIZES), sizes=SIZES, rehearsal=(PI, LIGHT))
HEAD = ("policy", "nodes used, mean", "most", "their cores, mean", "JCT [s]", "PCT mean [s]", "PCT p95 [s]")


class PackingRow(NamedTuple):
    """Means over the seeds."""

    name: str
    nodes: float
    most: float
    cores: float
    jct_s: float
    pct_s: float
    pct_p95_s: float


def schedulers() -> dict[str, Callable[[], SimulatedScheduler]]:
    """kube-scheduler by requests, and every policy of the extender."""
    made: dict[str, Callable[[], SimulatedScheduler]] = {"kube-scheduler": Kube}
    for name in policies.find():
        made[name] = lambda name=name: Packer(policies.load(name, {}))  # type: ignore[misc]
    return made


def row(name: str, results: list[Result]) -> PackingRow:
    used = [result.assigned > 0 for result in results]
    cores = Machine().cores * np.array(SIZES)
    pct_s = [result.pct_s() for result in results]
    return PackingRow(
        name,
        float(np.mean([nodes.sum(axis=1).mean() for nodes in used])),
        float(np.mean([nodes.sum(axis=1).max() for nodes in used])),
        float(np.mean([(nodes @ cores).mean() for nodes in used])),
        float(np.mean([result.jct_s for result in results])),
        float(np.mean([one.mean() for one in pct_s])),
        float(np.mean([np.percentile(one, 95) for one in pct_s])),
    )


def report(rows: list[PackingRow], seeds: int) -> str:
    lines = [
        "# Packing on a cluster of unlike nodes",
        "",
        f"`python -m lab.packing.cluster --seeds {seeds} --write`: {__doc__.split(chr(10) * 2)[2] if __doc__ else ''}",
        "",
        f"Means of {seeds} seeds; 128 cores in all, about 60 of them needed. JCT: from the first Pod's arrival to the",
        "end of the last; PCT: from a Pod's start to its end. Agents measure every Pod, publish slots and room; each",
        "node has seen two of the four workloads before.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|" + "---|" * len(HEAD),
        *(f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} |" for name, *values in rows),
        "",
        *findings({one.name: one for one in rows}),
    ]
    return "\n".join(lines) + "\n"


def findings(rows: dict[str, PackingRow]) -> list[str]:
    """In words, from the numbers."""
    base = rows["kube-scheduler"]
    ours = [one for one in rows.values() if one is not base]
    fewest, fastest = min(ours, key=lambda one: one.cores), min(ours, key=lambda one: one.pct_s)
    return [
        f"- fewest cores in use: {fewest.name}, {fewest.cores / base.cores:.2f} × those of kube-scheduler's default, "
        f"with {fewest.jct_s / base.jct_s:.2f} × its JCT and {fewest.pct_s / base.pct_s:.2f} × its mean PCT",
        f"- shortest Pods among carico's policies: {fastest.name}, {fastest.pct_s / base.pct_s:.2f} × the mean PCT of "
        f"kube-scheduler's default, with {fastest.cores / base.cores:.2f} × its cores",
        "- a packed node is as full as its slots allow, and slots end at twice the cores: Pods on it share CPUs, so "
        "packing saves nodes and costs completion time",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="renew lab/results/packing_cluster.md")
    given = parser.parse_args()
    rows = []
    for name, make in schedulers().items():
        results = [run(make(), JOBS, FIRST_SEED + seed, SETUP) for seed in range(given.seeds)]
        rows.append(row(name, results))
        print(*(one if isinstance(one, str) else f"{one:.1f}" for one in rows[-1]), flush=True)
    if given.write:
        RESULTS.write_text(report(rows, given.seeds))


if __name__ == "__main__":
    main()
