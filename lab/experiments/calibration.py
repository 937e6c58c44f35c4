"""Does the simulated node behave as a real one? Measurements of the cpu channel and the paper's kube-scheduler rows."""

import numpy as np

from lab.experiments.common import SPREAD_HEAD, Section, pi, runs, seeds, spread
from lab.sim.cluster import Machine, SimulatedCluster
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import PodBatch, SimulatedWorkload, draw

MEASURED = {
    0: (0.010, 0.007),
    1: (0.513, 0.004),
    2: (1.000, 0.021),
    3: (0.999, 0.554),
    4: (1.000, 0.999),
    5: (1.000, 0.998),
    8: (1.000, 1.000),
}
"""Busy loops on the real 2-core node: utilisation and pressure, as measured."""

LOOP = SimulatedWorkload("loop", work_core_s=1e6, work_cv=0.0)


def simulated(loops: int, seed: int = 0) -> tuple[float, float]:
    """The same on the simulated node: mean utilisation and pressure over ten seconds."""
    rng = np.random.default_rng(seed)
    _, pods = draw([PodBatch(LOOP, max(loops, 1))], (0.0, 0.0), rng)
    cluster = SimulatedCluster(1, Machine(cores=2), pods, rng)
    for pod in range(loops):
        cluster.bind(pod, 0)
    readings = []
    for step in range(120):
        cluster.step()
        if step >= 20:
            readings.append([float(part[0]) for part in cluster.telemetry()[:2]])
    utilisation, pressure = np.mean(readings, axis=0)
    return float(utilisation), float(pressure)


def section(quick: bool) -> Section:
    s = Section("Calibration", quick=quick)
    s.say("The cpu channel against the real 2-core node, n busy loops:")
    rows, worst = [], 0.0
    for n, (u, p) in MEASURED.items():
        su, sp = simulated(n)
        worst = max(worst, abs((u + p) / 2 - (su + sp) / 2))
        rows.append((n, u, su, p, sp, (u + p) / 2, (su + sp) / 2))
    s.table(("n", "utilisation", "sim", "pressure", "sim", "mean", "sim"), rows)
    s.claim(
        f"Calibration: the simulated cpu channel is within .03 of the measured one (worst {worst:.3f})", worst <= 0.03
    )
    few = seeds(quick)[:2]
    s.say(
        "The two kube-scheduler rows of table 5.1 fix the only free numbers of pi-2000 (5.9 core seconds, ± 8 %). "
        "Everything else in this report is a prediction."
    )
    paper = {100: (47.43, 14.59, 7, 39, 52, 57, 73), 500: (9.55, 1.49, 5, 9, 10, 10, 14)}
    rows, off = [], 0.0
    for mcpu, row in paper.items():
        mine = spread(runs(Kube, pi(mcpu), few))
        off = max(off, abs(mine[0] / row[0] - 1))
        rows += [(f"kube-scheduler {mcpu}m", "paper", *map(float, row)), ("", "simulated", *mine)]
    s.table(("", "", *SPREAD_HEAD), rows)
    s.claim(f"Calibration: mean PCT of both kube-scheduler rows within 5 % of the paper's ({off:.1%})", off <= 0.05)
    return s
