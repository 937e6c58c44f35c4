"""The numbers of the document beside ours: ProCon against Kubernetes 1.15's default, on its six schedules.

`python -m lab.progress.sim --write` keeps ours in lab/results/progress_document.json. Each is the mean over the seeds
of what one run shows, as the document shows one run; the best job is the median over the seeds of each run's best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev
from typing import Any

from lab.progress.runs import PlacerRun

BASELINES = ("Kubernetes 1.15, warm", "Kubernetes 1.15, raced", "Kubernetes 1.15, cold")
OURS = ("ProCon, literal", "least-left")


@dataclass(frozen=True, slots=True)
class Said:
    """What the document says of one schedule (section VI); shares, not per cent. None: it does not say."""

    improved: int
    gain: float
    """Of the improved jobs."""
    overall: float | None
    makespan: float
    best: float | None = None
    sigma: tuple[int, int] | None = None
    """Of the contention of the workers: default, ProCon."""


DOCUMENT = {
    "fixed 20/4": Said(13, 0.074, None, 0.011, sigma=(382, 25)),
    "random 20/4 in 600 s": Said(15, 0.261, 0.230, 0.153, 0.533, (2901, 508)),
    "random 30/4 in 600 s": Said(18, 0.348, 0.113, 0.366),
    "random 40/4 in 600 s": Said(26, 0.224, 0.102, 0.282),
    "random 30/7 in 900 s": Said(19, 0.315, 0.147, 0.217),
    "random 60/7 in 1200 s": Said(36, 0.359, 0.129, 0.374),
}


def compare(schedule: str, runs: Mapping[str, Sequence[PlacerRun]]) -> list[dict[str, Any]]:
    """Each of OURS against each of BASELINES."""
    return [
        {"schedule": schedule, "baseline": base, "placer": own, **_row(runs[base], runs[own])}
        for base in BASELINES
        for own in OURS
    ]


def _row(base: Sequence[PlacerRun], own: Sequence[PlacerRun]) -> dict[str, float]:
    pairs = list(zip(base, own, strict=True))
    gains = [[1 - b / a for a, b in zip(one.times_s, two.times_s, strict=True)] for one, two in pairs]
    better = [[gain for gain in run if gain > 1e-9] for run in gains]
    return {
        "jobs": len(base[0].times_s),
        "improved": mean(len(run) for run in better),
        "gain": mean(mean(run) if run else 0.0 for run in better),
        "overall": mean(1 - two.mean_s / one.mean_s for one, two in pairs),
        "makespan": mean(1 - two.makespan_s / one.makespan_s for one, two in pairs),
        "best": median(max(run) for run in gains),
        "sigma_base": mean(pstdev(one.contention) for one in base),
        "sigma_own": mean(pstdev(one.contention) for one in own),
    }


HEAD = """## The document's numbers beside ours

`procon` in the lab is the code of the policy. The document compares it with the default scheduler of Kubernetes 1.15,
which is not today's: its scores are whole numbers from 0 to 10, so that Pods without requests tie on all workers, and
a worker that has an image scores higher for it. We read its rules in the source of v1.15.12. Of workers that tie it
takes the next one in turn, but of a list whose order is that in which parallel checks found the workers. *warm*: all
images are everywhere, and the list always has one order, so that what is left is round robin. *raced*: the same with
a list in any order, so that ties are drawn. *cold*: no image is anywhere at first, one of 1000 MiB per model (our
assumption), and Pods of a model stay on the worker that pulled it. The document does not say which it had, and
explains its default by a delay in reading the usage of workers, which 1.15 does not read at all. On the fixed
schedule it had 6, 4, 5 and 5 jobs per worker: between warm and raced. On random 20/4 its default left a worker idle
for 359 s and had contentions of 6323, 91, 250 and 2344: raced or cold. So we take its numbers to belong between the
rows.

Gains are shares of the baseline's time: positive is better than Kubernetes 1.15. One number of the document is one run;
ours are means over {seeds} seeds.

| schedule | | jobs improved | their gain | best job | all jobs | makespan | σ of contention, default → own |
|---|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[Mapping[str, Any]], seeds: int) -> list[str]:
    """The table as lines of Markdown."""
    text = [HEAD.format(seeds=seeds).rstrip("\n")]
    for schedule, said in DOCUMENT.items():
        own = [row for row in rows if row["schedule"] == schedule]
        sigma = f"{said.sigma[0]} → {said.sigma[1]}" if said.sigma else "not said"
        numbers = (
            f"{said.improved} of {own[0]['jobs']} | {said.gain:.1%} | {_share(said.best)} | {_share(said.overall)}"
        )
        text.append(f"| {schedule} | document | {numbers} | {said.makespan:.1%} | {sigma} |")
        for row in own:
            against = row["baseline"].rpartition(", ")[2]
            numbers = (
                f"{row['improved']:.1f} of {row['jobs']} | {row['gain']:.1%} | {row['best']:.1%} | {row['overall']:.1%}"
            )
            sigma = f"{row['sigma_base']:.0f} → {row['sigma_own']:.0f}"
            text.append(f"| | {row['placer']}, {against} | {numbers} | {row['makespan']:.1%} | {sigma} |")
    return [*text, "", *headlines(rows), ""]


def headlines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    by = {(row["schedule"], row["baseline"].rpartition(", ")[2], row["placer"]): row for row in rows}
    first, dense = "random 20/4 in 600 s", "random 40/4 in 600 s"
    procon = [by[first, state, "ProCon, literal"] for state in ("warm", "raced", "cold")]
    worst = by[dense, "warm", "ProCon, literal"]
    left = by[dense, "warm", "least-left"]
    warm, raced, cold = (f"{row['best']:.1%} and {row['overall']:.1%}" for row in procon)
    return [
        f"- The document's headlines, 53.3 % for one job and 23.0 % over all on random 20/4, are {warm} against a warm",
        f"  default, {raced} against a raced and {cold} against a cold one.",
        f"- Where far more work comes than the workers can do (40/4) ProCon gains {worst['overall']:.1%} over all",
        f"  against a warm default (10.2 % in the document) and least-left {left['overall']:.1%}.",
        *between(by),
        "- Against today's default (scores 0 to 100) there is little left to gain: the tables above.",
        "- `python -m lab.progress.real --kube-pair 0` runs a real pair of kube-scheduler and `least-left`.",
        "  `procon` was not run with real jobs.",
    ]


def between(by: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> list[str]:
    """How many of the document's numbers lie between ProCon's gains over a warm and over a raced default."""
    lines = []
    for name, what in (("overall", "Over all jobs"), ("makespan", "Of the makespan")):
        inside, outside = list[str](), list[str]()
        for schedule, said in DOCUMENT.items():
            value = getattr(said, name)
            if value is not None:
                ends = sorted(by[schedule, state, "ProCon, literal"][name] for state in ("warm", "raced"))
                (inside if ends[0] <= value <= ends[1] else outside).append(schedule.split(" in ")[0])
        missing = f"; not {', '.join(outside)}" if outside else ""
        lines.append(f"- {what} {len(inside)} of {len(inside + outside)} numbers lie between warm and raced{missing}.")
    return lines


PLACEMENTS = """### Who ran where (figures 5, 6, 8, 9, 12, 13)

`python -m lab.progress.figures`: means over the seeds. The document's figures in numbers: on the fixed schedule its
default gave 6 jobs to one worker and 4 to another, ProCon 5 to each; on random 20/4 its default left a worker idle for
359 s; on random 30/4 its default's workers differ in CPU use, which it shows as curves.

![jobs on their workers, and CPU of the workers](progress_placement.png)

| schedule | | most jobs of a worker | fewest | longest wait for a first job [s] | σ of the workers' CPU use |
|---|---|---|---|---|---|
"""


def placements(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Nothing without rows."""
    lines = [
        f"| {row['schedule']} | {row['placer']} | {row['most']:.1f} | {row['fewest']:.1f} | {row['idle_s']:.0f} | "
        f"{row['cpu_sigma']:.3f} |"
        for row in rows
    ]
    return [PLACEMENTS.rstrip("\n"), *lines, ""] if rows else []


def _share(value: float | None) -> str:
    return "not said" if value is None else f"{value:.1%}"
