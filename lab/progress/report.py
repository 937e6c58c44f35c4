"""lab/results/progress.md and its figure, from what the simulation, the real runs and the bench have kept:
`python -m lab.progress.report`."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from lab.progress import document

OUTSIDE = ("random", "least count", "Kubernetes 1.15, cold", "Kubernetes 1.15, raced", "Kubernetes 1.15, warm")
"""Of the figure: 1, or far above."""
RESULTS = Path(__file__).parents[1] / "results"
Row = dict[str, Any]

HALF_WAY = """Two jobs on one core, each when it was half done. The CPU seconds left are {worst:.0%} off at most. The
original's formula, f/u·(MAX − P), says {twice:.1f} times the time that was left: it counts contention twice. The
expected end takes for granted that a job goes on getting what it gets: it is late for the job that has the core for
itself once the other one has ended.
"""
PAIRS = """Twelve jobs of five workloads (2 to 12 CPU seconds) within 24 s, two workers of one core each; the same jobs
at the same times with both placements, in the order ABBA. Mean completion time with `least-left` is below that of
random placement in {below} of {count} pairs. Other work ran on the machine during pairs 0 to 2; the group of the jobs
had sixteen times its weight. `least-left` was Σ of the work left then; the pairs were not run again with today's rule.
"""
KUBE_PAIRS = """`--kube-pair`: the same jobs placed by an unmodified kube-scheduler 1.36, which binds a Pod without
requests for each, against today's rule of `least-left`. Mean completion time with `least-left` is below that with
kube-scheduler in {below} of {count} pairs.
"""
COST = """`python -m lab.bench.progress --write`. The target for 110 reporters is 0.3 % of a core, or 0.6 of what the
agent takes without them. With three reports a second both are met, narrowly, in one run on a busy machine; four a
second gave ratios of 0.66 and 0.93 at a load of about 40. A quiet machine has not decided yet.
"""
HEAD = """# Placing jobs where the least work is left

Made by `python -m lab.progress.report`. Source of the method and of the schedules: "Progress-based Container Scheduling
for Short-lived Applications in a Kubernetes Cluster" (*ProCon*), section VI.

## In simulation

`python -m lab.progress.sim --write`: {seeds} seeds per schedule, none of them used for choosing anything. Workers of 16
threads share them among their jobs. `least-left` is the agent's estimate (reports at most once a second, an error of a
tenth of an interval in each CPU reading) and the extender's policy; `oracle` knows all work exactly, that of the
newcomer too, and not who comes next. Numbers in brackets: 95 % interval by resampling the seeds; wins: seeds on which
a row is below least count.

- The fixed schedule is the document's: with a time of 186 s alone on a worker, jobs placed in turn have a mean of
  450.0 s (449.8 s there) and a contention of 1320 per worker (1275 to 1327 there); a test holds both to 1 %.
- Over the schedules with random arrivals least-left has {least:.3f} to {most:.3f} times the mean completion time of
  least count, and {random_least:.2f} to {random_most:.2f} times that of random placement. What there is to gain at all
  is what the oracle shows, {oracle_least:.3f} to {oracle_most:.3f}: a few per cent. Within noise, for the interval has
  1 in it: {noise}. There counting Pods is as good, and simpler.
- Until now least-left took the node with the least Σ of work left ("Σ of the work left": {sum_least:.3f} to
  {sum_most:.3f}). A job with hours left delays a newcomer of a minute by a minute only, so now it is
  Σ min(left, x), x half of what the running jobs need from start to end. The factor was chosen on seeds below 5000.
- Literal ProCon is hardly better than counting Pods, or worse, except on the fixed schedule: workers with one job and
  with none tie.
- The document's makespans fall by 15 to 37 % against kube-scheduler's default on its random schedules, here by
  {default}. In its runs the default left a worker idle for minutes; here it spreads Pods without requests almost
  evenly.

![mean completion time over that of least count](progress.png)

Random placement and Kubernetes 1.15 are outside of the figure.
"""


def page(folder: Path = RESULTS) -> str:
    rows: list[Row] = json.loads((folder / "progress.json").read_text())
    kept = _read(folder / "progress_real.json"), _read(folder / "progress_bench.json")
    beside = json.loads((folder / "progress_document.json").read_text())
    own = document.page(beside, rows[0]["seeds"]) + document.placements(_rows(folder / "progress_figures.json"))
    return "\n".join([*simulation(rows), *own, *real(kept[0]), *cost(kept[1])])


def write(folder: Path = RESULTS) -> None:
    rows: list[Row] = json.loads((folder / "progress.json").read_text())
    (folder / "progress.md").write_text(page(folder))
    draw(rows, folder / "progress.png")


def _rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def simulation(rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["placer"] == "least-left" and row["schedule"].startswith("random")]
    default = {row["schedule"]: row["makespan_s"] for row in rows if row["placer"].startswith("kube-scheduler")}
    gains = sorted(1 - row["makespan_s"] / default[row["schedule"]] for row in own)
    against, lot = sorted(row["against_count"] for row in own), sorted(row["against_random"] for row in own)
    oracle, sums = (_against_count(rows, name) for name in ("oracle", "Σ of the work left"))
    text = [
        HEAD.format(
            seeds=rows[0]["seeds"],
            least=against[0],
            most=against[-1],
            oracle_least=oracle[0],
            oracle_most=oracle[-1],
            sum_least=sums[0],
            sum_most=sums[-1],
            random_least=lot[0],
            random_most=lot[-1],
            noise=", ".join(row["schedule"].split(" in ")[0] for row in own if row["high"] >= 1) or "nowhere",
            default=f"{gains[0]:.0%} to {gains[-1]:.0%}",
        )
    ]
    for schedule in dict.fromkeys(row["schedule"] for row in rows):
        text += [f"### {schedule}\n", "| | mean completion [s] | makespan [s] | × least count | × random | wins |"]
        text += ["|---|---|---|---|---|---|"]
        text += [line(row) for row in rows if row["schedule"] == schedule] + [""]
    return text


def _against_count(rows: Sequence[Row], placer: str) -> list[float]:
    own = [row for row in rows if row["placer"] == placer and row["schedule"].startswith("random")]
    return sorted(row["against_count"] for row in own)


def line(row: Row) -> str:
    against = f"{row['against_count']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
    times = f"{row['mean_s']:.1f} | {row['makespan_s']:.1f}"
    return f"| {row['placer']} | {times} | {against} | {row['against_random']:.3f} | {row['wins']} of {row['seeds']} |"


def real(found: dict[str, Any]) -> list[str]:
    """Containers that train, on a machine of two cores."""
    half = [one for name, entry in sorted(found.items()) if name.startswith("half-way") for one in entry]
    pairs = {name: entry for name, entry in sorted(found.items()) if name.startswith("pair")}
    text = list[str]()
    if half or pairs:
        text += ["## With real jobs\n"]
        text += [
            "`python -m lab.progress.real`: containers that train small models with numpy, the real agent, two cores.\n"
        ]
    if half:
        worst = max(abs(one["left_cpu_s"] / one["truth_cpu_s"] - 1) for one in half)
        twice = mean(one["original_s"] / one["truth_s"] for one in half)
        text += [HALF_WAY.format(worst=worst, twice=twice)]
        text += [
            "| job | CPU left [s] | came true | end in [s] | original's formula | came true |",
            "|---|---|---|---|---|---|",
        ]
        text += [
            f"| {one['workload']} | {one['left_cpu_s']:.1f} | {one['truth_cpu_s']:.1f} | {one['left_s']:.1f} | "
            f"{one['original_s']:.1f} | {one['truth_s']:.1f} |"
            for one in half
        ]
        text += [""]
    if pairs:
        below = sum(entry["ratio"] < 1 for entry in pairs.values())
        text += [PAIRS.format(below=below, count=len(pairs))]
        text += ["| pair | first | least-left [s] | random [s] | ratio | makespans [s] |", "|---|---|---|---|---|---|"]
        text += [_pair(name, entry) for name, entry in pairs.items()] + [""]
    kube = {name: entry for name, entry in sorted(found.items()) if name.startswith("kube pair")}
    if kube:
        below = sum(entry["ratio"] < 1 for entry in kube.values())
        text += [KUBE_PAIRS.format(below=below, count=len(kube))]
        text += ["| pair | first | least-left [s] | kube-scheduler [s] | ratio | makespans [s] |", "|---" * 6 + "|"]
        text += [_pair(name, entry, "kube-scheduler") for name, entry in kube.items()] + [""]
    return text


def _pair(name: str, entry: dict[str, Any], other: str = "random") -> str:
    own, lot = entry["least-left"], entry[other]
    return (
        f"| {name.rpartition('pair ')[2]} | {entry['order'][0]} | {own['mean_s']:.1f} | {lot['mean_s']:.1f} | "
        f"{entry['ratio']:.2f} | {own['makespan_s']:.1f}, {lot['makespan_s']:.1f} |"
    )


def cost(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    text = ["## What it costs\n", COST, "| | |", "|---|---|"]
    return [*text, *(f"| {name} | {value} |" for name, value in found.items()), ""]


def draw(rows: Sequence[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    schedules = list(dict.fromkeys(row["schedule"] for row in rows))
    placers = [name for name in dict.fromkeys(row["placer"] for row in rows) if name not in OUTSIDE]
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for at, name in enumerate(placers):
        own = [row for schedule in schedules for row in rows if (row["schedule"], row["placer"]) == (schedule, name)]
        xs = [n + (at - (len(placers) - 1) / 2) * 0.14 for n in range(len(schedules))]
        ys = [row["against_count"] for row in own]
        errors = [
            [row["against_count"] - row["low"] for row in own],
            [row["high"] - row["against_count"] for row in own],
        ]
        axes.errorbar(xs, ys, yerr=errors, fmt="o", markersize=4, capsize=2, linewidth=1, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(schedules)), [name.replace(" in ", "\nin ") for name in schedules], fontsize=8)
    axes.set_ylabel("mean completion time\n/ that of least count")
    axes.legend(fontsize=8, ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    write()
