"""lab/results/progress.md and its figure, from the rows of the simulation."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.progress_sim import Row

HEAD = """# Placing jobs where the least work is left

Printed by `python -m lab.progress_sim --write`: {seeds} seeds per schedule, none of them used for choosing anything.
Workers of 16 threads share them among their jobs. `least-left` is the agent's estimate (reports at most once a second,
an error of a tenth of an interval in each CPU reading) and the extender's policy; `oracle` knows all work exactly, the
newcomer's too, and not who comes next. Numbers in brackets: 95 % interval by resampling the seeds.

Source: "Progress-based Container Scheduling for Short-lived Applications in a Kubernetes Cluster" (*ProCon*), section
VI. Its fixed schedule is reproduced: with a time of 186 s alone on a worker the mean is {fixed:.1f} s here, 449.8 s
there. Its gains over kube-scheduler's default (10 to 23 % in mean completion time) are not: in those runs the default
left workers idle for minutes. Here the default spreads Pods without requests almost evenly, and what is left to gain
beyond counting is what the oracle shows, 3 to 7 %.

![mean completion time over that of least count](progress.png)
"""


def write(rows: "Sequence[Row]", folder: Path) -> None:
    fixed = next(row for row in rows if row.schedule.startswith("fixed") and row.placer == "least-left")
    text = [HEAD.format(seeds=rows[0].seeds, fixed=fixed.mean_s)]
    for schedule in dict.fromkeys(row.schedule for row in rows):
        text += [f"## {schedule}\n", "| | mean completion [s] | makespan [s] | × least count | × random | wins |"]
        text += ["|---|---|---|---|---|---|"]
        text += [line(row) for row in rows if row.schedule == schedule] + [""]
    (folder / "progress.md").write_text("\n".join(text))
    draw(rows, folder / "progress.png")


def line(row: "Row") -> str:
    against = f"{row.against_count:.3f} ({row.low:.3f} to {row.high:.3f})"
    wins = f"{row.wins} of {row.seeds}"
    return f"| {row.placer} | {row.mean_s:.1f} | {row.makespan_s:.1f} | {against} | {row.against_random:.3f} | {wins} |"


def draw(rows: "Sequence[Row]", path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    schedules = list(dict.fromkeys(row.schedule for row in rows))
    placers = [name for name in dict.fromkeys(row.placer for row in rows) if name not in ("random", "least count")]
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for at, name in enumerate(placers):
        own = [next(row for row in rows if (row.schedule, row.placer) == (schedule, name)) for schedule in schedules]
        xs = [n + (at - (len(placers) - 1) / 2) * 0.14 for n in range(len(schedules))]
        ys = [row.against_count for row in own]
        errors = [[row.against_count - row.low for row in own], [row.high - row.against_count for row in own]]
        axes.errorbar(xs, ys, yerr=errors, fmt="o", markersize=4, capsize=2, linewidth=1, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(schedules)), [name.replace(" in ", "\nin ") for name in schedules], fontsize=8)
    axes.set_ylabel("mean completion time\n/ that of least count")
    axes.legend(fontsize=8, ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
