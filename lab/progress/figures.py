"""Figures 5, 6, 8, 9, 12 and 13 of the document: which job ran where and when, and how busy each worker was.

    python -m lab.progress.figures      # lab/results/progress_placement.png, progress_figures.json and progress.md

The picture shows one seed. The numbers are means over all seeds of the simulation; the document has one run of each.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import mean, pstdev
from typing import Any

from lab.progress.placers import PLACERS
from lab.progress.report import RESULTS, write
from lab.progress.sim import FIRST_SEED, SCHEDULES, SEEDS, Schedule, simulate
from lab.progress.workers import WorkerJob

SHOWN = ("ProCon, literal", "Kubernetes 1.15, raced", "Kubernetes 1.15, warm", "least-left")
FIGURES = {"fixed 20/4": "5, 6", "random 20/4 in 600 s": "8, 9", "random 30/4 in 600 s": "12, 13"}
BIN_S = 60.0


def run(schedule: Schedule, placer: str, seed: int) -> list[WorkerJob]:
    """The jobs of one run, each with its worker, its arrival and its end."""
    jobs = schedule.make(Random(seed))
    simulate(jobs, schedule.workers, PLACERS[placer], seed)
    return jobs


def busy(jobs: Sequence[WorkerJob], worker: int, until_s: float) -> list[float]:
    """CPU used of one worker, by minute, from 0 to 1: one job alone takes all threads."""
    spans = sorted((job.arrives_s, job.ends_s) for job in jobs if job.worker == worker)
    found = []
    for n in range(int(until_s // BIN_S) + 1):
        begun, ended = n * BIN_S, (n + 1) * BIN_S
        covered, at = 0.0, begun
        for first, last in spans:
            low, high = max(first, at), min(last, ended)
            if high > low:
                covered, at = covered + high - low, high
        found.append(covered / BIN_S)
    return found


def numbers(jobs: Sequence[WorkerJob], workers: int) -> dict[str, float]:
    """Of one run: the most and the fewest jobs of a worker, the longest wait of a worker for its first job, and how far
    the workers' CPU use is apart."""
    counts = Counter(job.worker for job in jobs)
    end_s = max(job.ends_s for job in jobs)
    first = [min((job.arrives_s for job in jobs if job.worker == n), default=end_s) for n in range(workers)]
    used = [mean(busy(jobs, n, end_s)) for n in range(workers)]
    return {
        "most": max(counts[n] for n in range(workers)),
        "fewest": min(counts[n] for n in range(workers)),
        "idle_s": max(first),
        "cpu_sigma": pstdev(used),
    }


def table() -> list[dict[str, Any]]:
    rows = []
    for schedule in (one for one in SCHEDULES if one.name in FIGURES):
        for placer in SHOWN:
            found = [
                numbers(run(schedule, placer, seed), schedule.workers) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)
            ]
            means = {name: mean(one[name] for one in found) for name in found[0]}
            rows.append({"schedule": schedule.name, "placer": placer, **means})
    return rows


def draw(path: Path, seed: int = FIRST_SEED) -> None:
    """A row for each pair of figures: jobs as bars on their workers; below, the CPU of each worker for 12 and 13."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [one for one in SCHEDULES if one.name in FIGURES]
    figure, axes = pyplot.subplots(len(chosen), 2, figsize=(11, 8), sharex="row")
    for row, schedule in zip(axes, chosen, strict=True):
        for axis, placer in zip(row, SHOWN[:2], strict=True):
            jobs = run(schedule, placer, seed)
            (draw_cpu if FIGURES[schedule.name] == "12, 13" else draw_jobs)(axis, jobs, schedule.workers)
            axis.set_title(f"{schedule.name}: {placer} (figures {FIGURES[schedule.name]})", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_jobs(axis: Any, jobs: Sequence[WorkerJob], workers: int) -> None:
    rows = {worker: list[float]() for worker in range(workers)}
    for number, job in enumerate(jobs, 1):
        ends = rows[job.worker]
        lane = next((n for n, end in enumerate(ends) if end <= job.arrives_s), len(ends))
        ends[lane : lane + 1] = [job.ends_s]
        axis.barh(job.worker + lane * 0.12, job.ends_s - job.arrives_s, 0.1, job.arrives_s, align="edge")
        axis.text(job.arrives_s, job.worker + lane * 0.12, str(number), fontsize=5)
    axis.set_yticks(range(workers), [f"worker {n + 1}" for n in range(workers)], fontsize=7)


def draw_cpu(axis: Any, jobs: Sequence[WorkerJob], workers: int) -> None:
    until_s = max(job.ends_s for job in jobs)
    for worker in range(workers):
        axis.plot([n * BIN_S for n in range(int(until_s // BIN_S) + 1)], busy(jobs, worker, until_s), linewidth=1)
    axis.set_ylabel("CPU used", fontsize=7)


def main() -> int:
    (RESULTS / "progress_figures.json").write_text(json.dumps(table(), indent=1) + "\n")
    draw(RESULTS / "progress_placement.png")
    write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
