"""Two unlike jobs at once (figure 5.7, 5.8, 5.9, table 5.3)."""

from lab.experiments.common import REPORTED_SEEDS, SPREAD_HEAD, Section, mean_jct, mean_pct, runs, spread, warm
from lab.experiments.headline import traces
from lab.sim.schedulers.carico import Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.schedulers.oracle import Oracle
from lab.sim.workload import PI, SKLEARN, Job

PAPER = {
    ("kube-scheduler", "pi-2000"): (28.78, 7.52, 7.0, 27.0, 30.0, 33.0, 45.0),
    ("kube-scheduler", "sklearn"): (65.25, 10.53, 49.0, 58.25, 64.0, 75.25, 82.0),
    ("carico", "pi-2000"): (7.40, 1.14, 5.0, 7.0, 7.0, 8.0, 11.0),
    ("carico", "sklearn"): (34.50, 7.39, 22.0, 27.5, 36.0, 40.25, 44.0),
}


def section(quick: bool) -> Section:
    s = Section("Unlike jobs together", quick=quick)
    which = REPORTED_SEEDS[:2] if quick else REPORTED_SEEDS
    jobs = [Job(PI, 500), Job(SKLEARN, 20)]
    ours = {"kube-scheduler": runs(Kube, jobs, which), "carico": runs(Carico, jobs, which)}
    if not quick:
        ours["paper CARICO (rehearsed)"] = runs(PaperCarico, jobs, which[:3], warm(PI))
        ours["carico, has seen both"] = runs(Carico, jobs, which[:2], warm(PI, SKLEARN))
        ours["oracle"] = runs(Oracle, jobs, which)
    s.say("500 pi-2000 (100m) and 20 sklearn Pods (200m, 750Mi) submitted together, table 5.3:")
    rows: list[tuple[object, ...]] = []
    for name, results in ours.items():
        for kind in ("pi-2000", "sklearn"):
            if (name, kind) in PAPER:
                rows.append((name, kind, "paper", *PAPER[name, kind]))
            rows.append((name, kind, "simulated", *spread(results, kind)))
    s.table(("scheduler", "job", "", *SPREAD_HEAD), rows)
    if not quick:
        _sizes(s, which[:2])
        traces(
            "mixed_traces.png",
            {name: ours[name][0] for name in ("kube-scheduler", "paper CARICO (rehearsed)", "carico")},
            memory=True,
        )
        s.figure(
            "mixed_traces.png",
            "500 pi-2000 and 20 sklearn Pods: Pods per node (figure 5.8), CPU and memory (figure 5.9).",
        )
    kube, mine = ours["kube-scheduler"], ours["carico"]
    pi, sk = (mean_pct(mine, kind) / mean_pct(kube, kind) for kind in ("pi-2000", "sklearn"))
    s.claim(f"mixed: pi-2000's mean PCT is {pi:.2f} × kube-scheduler's (paper .26)", pi <= 0.26)
    s.claim(f"mixed: sklearn's mean PCT is {sk:.2f} × kube-scheduler's (paper .53)", sk <= 0.53, headline=False)
    s.say(
        "What falls short: sklearn Pods share a node with as many pi Pods as the node's mean Pod allows, so "
        "they get about "
        "half of its cores here and two thirds in the paper. One number per node cannot tell a Pod of 3.6 "
        "threads from one of "
        "1; the oracle, which can, shows what that costs."
    )
    return s


def _sizes(s: Section, which: range) -> None:
    sizes = ((100, 50), (250, 40), (500, 20), (1000, 20))
    rows = []
    for make in (Kube, Carico):
        results = [runs(make, [Job(PI, a), Job(SKLEARN, b)], which) for a, b in sizes]
        rows.append((make.name, *map(mean_jct, results)))
    s.say("JCT [s] of both jobs together (figure 5.7):")
    s.table(("pi + sklearn Pods", *(f"{a} + {b}" for a, b in sizes)), rows)
