"""Two unlike jobs at once (figure 5.7, 5.8, 5.9, table 5.3)."""

from lab.experiments.common import REPORTED_SEEDS, SPREAD_HEAD, Section, mean_jct, mean_pct, runs, spread, warm
from lab.experiments.headline import traces
from lab.sim.engine import Result
from lab.sim.schedulers.carico import Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.schedulers.oracle import Oracle
from lab.sim.workload import PI, SKLEARN, PodBatch

MIX = ((PI, 500), (SKLEARN, 20))
PAPER = {
    ("kube-scheduler", "pi-2000"): (28.78, 7.52, 7.0, 27.0, 30.0, 33.0, 45.0),
    ("kube-scheduler", "sklearn"): (65.25, 10.53, 49.0, 58.25, 64.0, 75.25, 82.0),
    ("carico", "pi-2000"): (7.40, 1.14, 5.0, 7.0, 7.0, 8.0, 11.0),
    ("carico", "sklearn"): (34.50, 7.39, 22.0, 27.5, 36.0, 40.25, 44.0),
}


def section(quick: bool) -> Section:
    s = Section("Unlike jobs together", quick=quick)
    which = REPORTED_SEEDS[:2] if quick else REPORTED_SEEDS
    jobs = [PodBatch(workload, pods) for workload, pods in MIX]
    ours = {"kube-scheduler": runs(Kube, jobs, which), "carico": runs(Carico, jobs, which)}
    if not quick:
        ours["paper CARICO (rehearsed)"] = runs(PaperCarico, jobs, which[:3], warm(PI))
        ours["carico, has seen both"] = runs(Carico, jobs, which[:3], warm(PI, SKLEARN))
        ours["oracle"] = runs(Oracle, jobs, which)
    s.say("500 pi-2000 (100m) and 20 sklearn Pods (200m, 750Mi) submitted together, table 5.3:")
    rows: list[tuple[object, ...]] = []
    for name, results in ours.items():
        for workload in ("pi-2000", "sklearn"):
            if (name, workload) in PAPER:
                rows.append((name, workload, "paper", *PAPER[name, workload]))
            rows.append((name, workload, "simulated", *spread(results, workload)))
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
            "500 pi-2000 and 20 sklearn Pods: Pods per node (figure 5.8; scales differ), CPU and memory (figure 5.9).",
        )
    kube, mine = ours["kube-scheduler"], ours["carico"]
    pi, sk = (mean_pct(mine, workload) / mean_pct(kube, workload) for workload in ("pi-2000", "sklearn"))
    s.claim(f"mixed: pi-2000's mean PCT is {pi:.2f} × kube-scheduler's (paper .26)", pi <= 0.26)
    s.claim(f"mixed: sklearn's mean PCT is {sk:.2f} × kube-scheduler's (paper .53)", sk <= 0.53, headline=False)
    if not quick:
        _attainable(s, ours, which)
    return s


def _attainable(s: Section, ours: dict[str, list[Result]], which: range) -> None:
    """What perfect knowledge of every Pod's use would give: requests that are true, at several levels of sharing."""
    kube = ours["kube-scheduler"]
    rows = [(name, *_ratios(results, kube)) for name, results in ours.items()]
    for full in (2.0, 1.5, 1.0):
        jobs = [PodBatch(workload.asking(round(1000 * workload.threads / full)), pods) for workload, pods in MIX]
        rows.append((f"true requests, node full at {full:g} × its cores", *_ratios(runs(Kube, jobs, which), kube)))
    s.say(
        "**What is attainable here?** All relative to kube-scheduler with the guessed requests above. *True requests*: "
        "kube-scheduler with exactly what each workload uses, with a node called full when its Pods want this many "
        "times its cores (2 is where the paper's CPU metric, and so carico's number, saturates):"
    )
    s.table(("scheduler", "sklearn PCT", "pi-2000 PCT", "JCT"), rows)
    s.say(
        "So with the paper's idea of a full node even perfect knowledge is only a little below the paper's .53: an "
        "sklearn Pod (3.6 threads) shares four cores with about four pi Pods as long as pi Pods wait. carico comes "
        "near that once it has met both workloads (whether the paper's agents had, it does not say). Cold, sklearn "
        "Pods land beside as many pi Pods as the prior allows, before any was measured, and stay there for their 30 to "
        "60 s. The paper's algorithm as we read it does worse in the same simulation. What would help is another idea "
        "of full (1.5 × the cores), or a cost per template instead of one per node."
    )
    both = _ratios(ours["carico, has seen both"], kube)[0]
    s.claim(
        f"mixed, agents that have seen both: sklearn's mean PCT is {both} × kube-scheduler's (paper .53)",
        float(both) <= 0.53,
        headline=False,
    )


def _ratios(results: list[Result], kube: list[Result]) -> list[str]:
    parts = [
        mean_pct(results, workload) / mean_pct(kube[: len(results)], workload) for workload in ("sklearn", "pi-2000")
    ]
    return [f"{ratio:.2f}" for ratio in (*parts, mean_jct(results) / mean_jct(kube[: len(results)]))]


def _sizes(s: Section, which: range) -> None:
    sizes = ((100, 50), (250, 40), (500, 20), (1000, 20))
    rows = []
    for make in (Kube, Carico):
        results = [runs(make, [PodBatch(PI, a), PodBatch(SKLEARN, b)], which) for a, b in sizes]
        rows.append((make.name, *map(mean_jct, results)))
    s.say("JCT [s] of both jobs together (figure 5.7):")
    s.table(("pi + sklearn Pods", *(f"{a} + {b}" for a, b in sizes)), rows)
