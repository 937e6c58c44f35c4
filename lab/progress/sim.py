"""Where should the next job go, when the running ones say how far they are? Simulated on the document's six schedules.

python -m lab.progress.sim [--seeds 40] [--first 5000] [--json] [--write]

Rows: random, the defaults of Kubernetes 1.15 and of today's, least count, ProCon (literal, and with ties broken),
least-left (the code of the agent and of the extender) and an oracle. The source is *ProCon* ("Progress-based Container
Scheduling for Short-lived Applications in a Kubernetes Cluster"), section VI. `--write` renews lab/results/progress.md
and its figure. Nothing was chosen on these seeds; those below 5000 were for trying out.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from math import inf
from random import Random
from statistics import mean
from typing import Any

from lab.progress.document import compare
from lab.progress.placers import PLACERS, Place
from lab.progress.report import RESULTS, write
from lab.progress.runs import PlacerRun
from lab.progress.workers import TrainingModel, Worker, WorkerJob

FIRST_SEED, SEEDS = 5000, 40
BIRNN = TrainingModel("Bidirectional-RNN (TensorFlow)", 10_000, 186.0)
WORKLOADS = (
    TrainingModel("VAE (PyTorch)", 15, 90.0),
    TrainingModel("VAE (TensorFlow)", 15, 120.0),
    TrainingModel("MNIST-CNN (PyTorch)", 200, 30.0),
    TrainingModel("MNIST-CNN (TensorFlow)", 200, 50.0),
    TrainingModel("Deep regression (PyTorch)", 5000, 250.0),
    BIRNN,
    TrainingModel("LeNet-CNN (TensorFlow)", 5, 60.0),
)
"""The models of table II with their steps. Their times are not in the document but for that of BiRNN, which follows
from the fixed schedule (186 s); the others are spread over 30 to 250 s."""


@dataclass(frozen=True, slots=True)
class Schedule:
    name: str
    jobs: int
    workers: int
    within_s: float
    """Jobs come at random within so many seconds; or every 30 s, if `fixed`."""
    fixed: bool = False

    def make(self, rng: Random) -> list[WorkerJob]:
        if self.fixed:
            return [WorkerJob(BIRNN, 30.0 * n) for n in range(self.jobs)]
        times = sorted(rng.uniform(0.0, self.within_s) for _ in range(self.jobs))
        return [WorkerJob(rng.choice(WORKLOADS), time_s) for time_s in times]


SCHEDULES = (
    Schedule("fixed 20/4", 20, 4, 600, fixed=True),
    Schedule("random 20/4 in 600 s", 20, 4, 600),
    Schedule("random 30/4 in 600 s", 30, 4, 600),
    Schedule("random 40/4 in 600 s", 40, 4, 600),
    Schedule("random 30/7 in 900 s", 30, 7, 900),
    Schedule("random 60/7 in 1200 s", 60, 7, 1200),
)


def simulate(jobs: list[WorkerJob], workers: int, place: Place, seed: int) -> PlacerRun:
    """Event by event: arrivals and ends; all jobs of one run get the same arrivals whoever places them."""
    chance, noise = Random(f"{seed} place"), Random(f"{seed} noise")
    cluster, waiting = [Worker(noise) for _ in range(workers)], list(jobs)
    while waiting or any(worker.jobs for worker in cluster):
        arrival_s = waiting[0].arrives_s if waiting else inf
        now_s = min(arrival_s, *(worker.next_end_s() for worker in cluster))
        for worker in cluster:
            worker.advance(now_s)
        if waiting and now_s >= arrival_s:
            job = waiting.pop(0)
            job.worker = place(cluster, job, now_s, chance)
            cluster[job.worker].jobs.append(job)
    ends = [job.ends_s - job.arrives_s for job in jobs]
    contention = tuple(worker.contention for worker in cluster)
    return PlacerRun(mean(ends), max(job.ends_s for job in jobs), contention, tuple(ends))


@dataclass(frozen=True, slots=True)
class PlacerRow:
    schedule: str
    placer: str
    seeds: int
    mean_s: float
    makespan_s: float
    against_count: float
    """Mean completion time over that of least count."""
    against_random: float
    wins: int
    """Seeds on which it is below least count."""
    low: float
    high: float
    """95 % interval of `against_count`, by resampling the seeds."""


def all_runs(seeds: range, schedule: Schedule) -> dict[str, list[PlacerRun]]:
    return {
        name: [simulate(schedule.make(Random(seed)), schedule.workers, place, seed) for seed in seeds]
        for name, place in PLACERS.items()
    }


def table(seeds: range, schedules: tuple[Schedule, ...] = SCHEDULES) -> list[PlacerRow]:
    return tables(seeds, schedules)[0]


def tables(seeds: range, schedules: tuple[Schedule, ...] = SCHEDULES) -> tuple[list[PlacerRow], list[dict[str, Any]]]:
    """The rows of all placers, and the document's numbers beside ours."""
    rows, beside = list[PlacerRow](), list[dict[str, Any]]()
    for schedule in schedules:
        runs = all_runs(seeds, schedule)
        rows += [_row(schedule, name, runs) for name in runs]
        beside += compare(schedule.name, runs)
    return rows, beside


def _row(schedule: Schedule, name: str, runs: dict[str, list[PlacerRun]]) -> PlacerRow:
    own, count, lot = runs[name], runs["least count"], runs["random"]
    mean_s, count_s = [run.mean_s for run in own], [run.mean_s for run in count]
    low, high = _interval(mean_s, count_s)
    return PlacerRow(
        schedule.name,
        name,
        len(own),
        mean(mean_s),
        mean(run.makespan_s for run in own),
        mean(mean_s) / mean(count_s),
        mean(mean_s) / mean(run.mean_s for run in lot),
        sum(a < b for a, b in zip(mean_s, count_s, strict=True)),
        low,
        high,
    )


def _interval(own: list[float], other: list[float], draws: int = 1000) -> tuple[float, float]:
    """Of the ratio of the means, seeds drawn with replacement."""
    rng, n, found = Random(1), len(own), list[float]()
    for _ in range(draws):
        picked = rng.choices(range(n), k=n)
        found.append(sum(own[at] for at in picked) / sum(other[at] for at in picked))
    found.sort()
    return found[int(0.025 * draws)], found[int(0.975 * draws)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--json", action="store_true", help="all rows as JSON")
    parser.add_argument("--write", action="store_true", help="renew lab/results/progress.md and its figure")
    given = parser.parse_args()
    rows, beside = tables(range(given.first, given.first + given.seeds))
    if given.write:
        (RESULTS / "progress_document.json").write_text(json.dumps(beside, indent=1) + "\n")
        (RESULTS / "progress.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        write()
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            print(
                f"{row.schedule:22} {row.placer:24} mean {row.mean_s:6.1f} s  makespan {row.makespan_s:7.1f} s  "
                f"{row.against_count:.3f} × least count ({row.low:.3f} to {row.high:.3f}), "
                f"{row.against_random:.3f} × random"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
