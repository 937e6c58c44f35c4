"""What a job does to a latency-sensitive server next to it (table 5.4)."""

import numpy as np

from lab.experiments.common import REPORTED_SEEDS, Section, pi, runs, warm
from lab.sim.engine import Result
from lab.sim.schedulers.carico import Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import PI

WAIT_MS = 2.35
"""How long a waking server waits behind one runnable task of its CPU; fitted to kube-scheduler's median below."""

PERCENTILES = (0, 50, 90, 95, 99, 100)
PAPER = {
    "pristine": (0.99, 3.04, 3.78, 4.00, 4.47, 8.32),
    "kube-scheduler 100m": (1.07, 10.06, 18.61, 22.28, 28.82, 54.49),
    "carico": (1.00, 2.48, 6.09, 7.82, 10.53, 17.39),
}


def latencies(demand: np.ndarray, cores: int, rng: np.random.Generator, per_s: int = 20) -> np.ndarray:
    """Response times [ms] of a server on a node with this many runnable threads, one entry of `demand` per second.

    Pristine: lognormal around 3 ms, as the paper measured it. On a busy node the server wakes on a CPU with k other
    runnable tasks and waits behind j of them, j uniform in 0…k (a fair scheduler lets a sleeper in somewhere), each for
    an exponential time of mean WAIT_MS.
    """
    runnable = np.repeat(demand, per_s)
    pristine = np.clip(rng.lognormal(np.log(3.0), 0.17, len(runnable)), 1.0, None)
    per_cpu = runnable / cores
    k = np.floor(per_cpu) + (rng.random(len(runnable)) < per_cpu % 1.0)
    idle = rng.random(len(runnable)) < np.maximum(0.0, 1.0 - per_cpu)  # a CPU is free: woken there
    ahead = np.where(idle, 0, rng.integers(0, k.astype(int) + 1))
    return pristine + rng.gamma(np.maximum(ahead, 1e-9), WAIT_MS)


def of_run(results: list[Result], seed: int) -> np.ndarray:
    """A server on every node of the run, while the job runs."""
    rng = np.random.default_rng([seed, 77])
    parts = [
        latencies(r.demand[2 : int(r.jct_s), node], r.machine.cores, rng)
        for r in results
        for node in range(r.demand.shape[1])
    ]
    return np.concatenate(parts)


def section(quick: bool) -> Section:
    s = Section("Isolation of a latency-sensitive server", quick=quick)
    which = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS[:3]
    rng = np.random.default_rng(77)
    ours = {
        "pristine": latencies(np.full(600, 0.03), 4, rng),
        "kube-scheduler 100m": of_run(runs(Kube, pi(100), which), 1),
        "kube-scheduler 500m": of_run(runs(Kube, pi(500), which), 2),
        "carico": of_run(runs(Carico, pi(), which), 3),
    }
    if not quick:
        ours["paper CARICO (rehearsed)"] = of_run(runs(PaperCarico, pi(), which, warm(PI)), 4)
    rows: list[tuple[object, ...]] = []
    for name, values in ours.items():
        if name in PAPER:
            rows.append((name, "paper", *PAPER[name]))
        rows.append((name, "simulated", *(float(v) for v in np.percentile(values, PERCENTILES))))
    s.say(
        "Response latency [ms] while 1000 pi-2000 Pods run. The queueing model has one fitted number (see "
        "lab/experiments/"
        "isolation.py): the median under kube-scheduler 100m. The other cells are predictions."
    )
    s.table(("", "", "Min", "Med", "P90", "P95", "P99", "Max"), rows)
    median, tail = (
        float(np.percentile(ours["carico"], q) / np.percentile(ours["kube-scheduler 100m"], q)) for q in (50, 99)
    )
    s.claim(f"isolation: P99 is {tail:.2f} × kube-scheduler's (paper .37)", tail <= 0.40)
    s.claim(f"isolation: the median is {median:.2f} × kube-scheduler's (paper .25)", median <= 0.25, headline=False)
    s.say(
        "The paper's median under CARICO (2.48 ms) is below that of its own idle cluster (3.04 ms). In this model "
        "sharing a CPU can only add time, so nothing gets below pristine, which is .31 of kube-scheduler's median here."
    )
    return s
