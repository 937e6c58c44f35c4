"""A workload that suddenly turns heavy (paper 5.9): nodes have learned light Pods, then heavy ones arrive."""

import numpy as np

from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from lab.experiments.common import FIGURES, Section, plot, runs, seeds, warm
from lab.sim.engine import Result
from lab.sim.fleet import AgentConfig
from lab.sim.schedulers.carico import Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.schedulers.oracle import Oracle
from lab.sim.workload import HEAVY, LIGHT, PodBatch, SimulatedWorkload

JOBS = [PodBatch(LIGHT, 570, 0.0, 60.0), PodBatch(HEAVY, 400, 60.0)]

PAPER = "paper CARICO"


CAREFUL = PodCapacitySettings(starting_ratio=0.1, starting_headroom=0.5)


class OneWorkload(Carico):
    """carico where heavy and light Pods come from the same template: nobody is unprofiled."""

    def prior_places(self) -> float:
        return float("inf")

    def template(self, workload: SimulatedWorkload) -> str:
        return "job"


def excess(r: Result) -> np.ndarray:
    """Heavy Pods above what fits (cpu channel full at twice the cores), per second and node."""
    return np.maximum(0.0, r.demand - 2 * r.machine.cores) / HEAVY.threads


def section(quick: bool) -> Section:
    s = Section("A workload that suddenly turns heavy", quick=quick)
    which = seeds(quick)[:1] if quick else seeds(quick)[:3]
    setup = warm(LIGHT)
    ours = {
        PAPER: runs(PaperCarico, JOBS, which, setup),
        "carico": runs(Carico, JOBS, which, setup),
        "carico, one template": runs(OneWorkload, JOBS, which, setup),
    }
    if not quick:
        ours["carico, one template, no limit on starts"] = runs(
            lambda: OneWorkload(policy=PodCapacity(PodCapacitySettings(starting_ratio=1.0))), JOBS, which, setup
        )
        ours["carico, one template, starting_ratio 0.1"] = runs(
            lambda: OneWorkload(policy=PodCapacity(CAREFUL)),
            JOBS,
            which,
            setup,
        )
        ours["paper's scheduler, carico's estimator"] = runs(
            lambda: PaperCarico(AgentConfig(throttle=None)), JOBS, which, setup
        )
        ours["kube-scheduler 100m"] = runs(Kube, JOBS, which)
        ours["oracle"] = runs(Oracle, JOBS, which)
    s.say(
        "60 s of light Pods (0.2 CPU, 20 s), then 400 heavy ones (2 CPUs, 20 core seconds) at once. "
        "Overfill: heavy Pods on a "
        "node above what fits; its peak (mean over nodes) and its sum over time."
    )
    rows = []
    for name, results in ours.items():
        peak = float(np.mean([excess(r).max(axis=0).mean() for r in results]))
        total = float(np.mean([excess(r).sum(axis=0).mean() for r in results]))
        heavy = np.concatenate([r.pct_s("heavy") for r in results])
        rows.append((name, peak, total, float(heavy.mean()), float(np.mean([r.jct_s for r in results]))))
    s.table(("scheduler", "peak [Pods]", "sum [Pod s]", "mean PCT of heavy Pods [s]", "JCT [s]"), rows)
    apart, same = rows[1][1] / rows[0][1], rows[2][1] / rows[0][1]
    s.claim(
        f"sudden heavy workload, another template: peak overfill is {apart:.2f} × paper CARICO's, at most .5",
        apart <= 0.5,
    )
    s.claim(
        f"sudden heavy workload, the same template: peak overfill is {same:.2f} × paper CARICO's (.5 wanted)",
        same <= 0.5,
        headline=False,
    )
    s.say(
        "**Another template.** Unprofiled Pods (of a controller whose Pods have not run on this node for 12 s yet) "
        "count at the prior cost of one core until the node has measured them.",
        "",
        "**The same template** (a Job whose later Pods get heavier work): nothing distinguishes Pods before they run. "
        "Two things bound the damage. Few may start at once: Pods that start for 3 s and run for 20 need 13 % of the "
        "slots for it. And a saturated node is full, whatever was predicted from light Pods while Pods come and go. "
        "What is left are the Pods bound between a heavy Pod's binding and its showing: start (2.3 s), smoothing, "
        "a second's publication, and the next ones are already on their way. Paper CARICO has neither; it is not worse "
        "only because it underestimates how many light Pods fit (with carico's estimator its scheduler does "
        "as badly as kube-scheduler). The row with starting_ratio 0.1 shows that still fewer starts at once would get "
        "below half; it is not the default because short Pods would wait for places (see the last section).",
    )
    if not quick:
        _figure(ours)
        s.figure("heavy.png", "Overfill per node after heavy Pods arrive at 60 s.")
    return s


def _figure(ours: dict[str, list[Result]]) -> None:
    plt = plot()
    figure, axes = plt.subplots(figsize=(7, 3.6))
    lines = {
        PAPER: ("#d1495b", "-"),
        "carico": ("#0b6e4f", "-"),
        "carico, one template": ("#0b6e4f", "--"),
        "oracle": ("#777777", "-"),
    }
    for name, (colour, style) in lines.items():
        axes.plot(excess(ours[name][0]).mean(axis=1), style, color=colour, label=name, lw=1.6)
    axes.set(xlabel="time [s]", ylabel="heavy Pods above what fits", xlim=(50, 200), ylim=(0, None))
    axes.legend(fontsize=9)
    figure.savefig(FIGURES / "heavy.png")
    plt.close(figure)
