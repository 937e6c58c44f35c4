"""Old numbers and silent nodes; and Pods that take long to start."""

from dataclasses import replace

from lab.experiments.common import REPORTED_SEEDS, Section, mean_jct, mean_pct, pi, runs, warm
from lab.experiments.headline import overfilled
from lab.sim.engine import Setup
from lab.sim.fleet import AgentConfig, Faults
from lab.sim.schedulers.carico import PAPER_AGENTS, Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import PI

SILENT = frozenset({7})
"""One of 19 nodes, 5 %."""


def section(quick: bool) -> Section:
    s = Section("Old numbers, silent nodes, slow starts", quick=quick)
    which = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS[:2]
    _stale(s, which, quick)
    if not quick:
        _startup(s, which)
    return s


def _stale(s: Section, which: range, quick: bool) -> None:
    delays = (0.2, 30.0) if quick else (0.2, 10.0, 30.0, 60.0)
    rows = []
    for delay_s in delays:
        late = Faults(delay_s=delay_s)
        mine = runs(lambda late=late: Carico(AgentConfig(faults=late)), pi(), which, warm(PI, warm_s=70.0))
        theirs = runs(
            lambda late=late: PaperCarico(replace(PAPER_AGENTS, faults=late)),
            pi(),
            which,
            warm(PI, warm_s=70.0),
        )
        rows.append(
            (
                f"{delay_s:g} s old",
                mean_jct(mine),
                mean_pct(mine),
                overfilled(mine) / len(mine),
                mean_jct(theirs),
                mean_pct(theirs),
                overfilled(theirs) / len(theirs),
            )
        )
    quiet = Faults(silent=SILENT)
    mine = runs(lambda: Carico(AgentConfig(faults=quiet)), pi(), which)
    theirs = runs(lambda: PaperCarico(replace(PAPER_AGENTS, faults=quiet)), pi(), which, warm(PI))
    rows.append(
        (
            "1 of 19 nodes never publishes",
            mean_jct(mine),
            mean_pct(mine),
            overfilled(mine) / len(mine),
            mean_jct(theirs),
            mean_pct(theirs),
            overfilled(theirs) / len(theirs),
        )
    )
    s.say(
        "The headline job with numbers that reach the scheduler late, and with a node that is silent (closed, "
        "so 18 carry the job). "
        "Agents have seen the workload before:"
    )
    s.table(
        (
            "",
            "carico JCT [s]",
            "mean PCT [s]",
            "overfill [node s]",
            "paper CARICO JCT [s]",
            "mean PCT [s]",
            "overfill [node s]",
        ),
        rows,
    )
    fresh, worst = rows[0], rows[len(delays) - 1]
    s.claim(
        f"numbers {delays[-1]:g} s old cost carico {worst[1] / fresh[1] - 1:+.0%} JCT and "
        f"{worst[2] / fresh[2] - 1:+.0%} mean PCT "
        f"and no overfill ({worst[3]:.0f} node s)",
        worst[1] <= 1.1 * fresh[1] and worst[3] == 0,
    )


def _startup(s: Section, which: range) -> None:
    rows = []
    for low, high in ((0.3, 0.7), (0.5, 2.0), (1.0, 4.0), (3.0, 5.0), (6.0, 10.0)):
        setup = replace(Setup(), startup_s=(low, high))
        kube = {m: runs(Kube, pi(m), which, setup) for m in (300, 500, 700)}
        same = runs(Kube, pi(550), which, setup)
        mine = runs(Carico, pi(), which, setup)
        theirs = runs(PaperCarico, pi(), which, replace(setup, rehearsal=(PI,)))
        best = min(mean_jct(r) for r in kube.values())
        rows.append(
            (
                f"{low:g}–{high:g}",
                best,
                mean_jct(kube[500]),
                mean_pct(kube[500]),
                mean_jct(mine),
                mean_pct(mine),
                overfilled(mine),
                mean_jct(theirs),
                mean_pct(theirs),
                mean_jct(mine) / mean_jct(same),
            )
        )
    s.say("From bound to running [s]; the headline job:")
    s.table(
        (
            "startup",
            "best kube JCT (300, 500, 700m)",
            "kube 500m JCT",
            "PCT",
            "carico JCT",
            "PCT",
            "overfill",
            "paper CARICO JCT",
            "PCT",
            "carico JCT / 7 fixed places",
        ),
        rows,
    )
    s.say(
        "What falls short: a Pod that takes longer to start than to run holds a place for all that time and a core for "
        "less than half of it, so seven places cannot keep four cores busy, whoever hands them out: the last column "
        "compares with kube-scheduler at 550m, which has seven places too. Only a request that overfills the node (as "
        "soon as all its Pods run) hides slow starts. carico counts a starting Pod as a whole one, because it cannot "
        "take it back."
    )
