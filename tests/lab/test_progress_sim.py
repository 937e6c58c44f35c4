"""The simulator against what the document measured and what can be worked out by hand."""

import json
import subprocess
import sys
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.progress.work_left import Point
from lab.progress.figures import busy, numbers, run
from lab.progress.placers import (
    PLACERS,
    contention,
    contention_by_steps,
    expected_contention,
    is_below_limit,
    procon,
    procon_ties,
    remaining_s,
    round_robin,
    total_s,
)
from lab.progress.report import RESULTS, page
from lab.progress.sim import BIRNN, SCHEDULES, simulate, table
from lab.progress.workers import THREADS, TrainingModel, Worker, WorkerJob, shares

SIX = TrainingModel("six", 6, 60.0)


def test_the_fixed_schedule_of_the_document() -> None:
    """20 jobs of 186 s, one each 30 s, four workers in turn: 449.8 s there, contention 1323, 1327, 1325, 1275."""
    run = simulate(SCHEDULES[0].make(Random(1)), 4, round_robin(), 1)
    assert run.mean_s == pytest.approx(450.0, rel=0.01)
    assert run.contention == pytest.approx([1320.0] * 4, rel=0.01)


def reported(*points: tuple[float, float], workload: TrainingModel = SIX) -> WorkerJob:
    """A job that reported (time, done)."""
    job = WorkerJob(workload, 0.0)
    job.reports.extend(Point(t, done, 0.0) for t, done in points)
    return job


def worker(*jobs: WorkerJob) -> Worker:
    made = Worker(Random(1))
    made.jobs = list(jobs)
    return made


@pytest.mark.parametrize(
    ("remaining", "c"), [([], 0), ([7], 0), ([5, 5], 5), ([3, 5, 9], 8), ([1, 1, 1, 100], 3), ([10, 20, 30], 30)]
)
def test_contention_by_hand(remaining: list[int], c: int) -> None:
    assert contention(remaining) == contention_by_steps(remaining) == c


@given(st.lists(st.integers(0, 200), max_size=8))
def test_the_sum_over_seconds_is_the_sum_without_the_largest(remaining: list[int]) -> None:
    assert contention_by_steps(remaining) == contention(remaining)


def test_remaining_time_by_hand() -> None:
    """f = 10 s per step, 4 of 6 steps left: alone 40 s; with half of the CPU the formula says 80."""
    job = reported((0.0, 1.0), (10.0, 2.0))
    assert remaining_s(job, 1.0) == 40.0
    assert remaining_s(job, 0.5) == 80.0
    assert remaining_s(reported((0.0, 1.0)), 1.0) == 0.0


def test_expected_contention_by_hand() -> None:
    """Two jobs with 40 and 30 s of f·(MAX − P), u = 1/3: i = 120 and 90, c = 90."""
    two = worker(reported((0, 1), (10, 2)), reported((0, 2), (10, 3)))
    assert expected_contention(two) == (90.0, 210.0)


def test_literal_procon_by_hand() -> None:
    """All full: c = 90 for two jobs, 0 for one; it takes the one with one, however long that is."""
    two = worker(reported((0, 1), (10, 2)), reported((0, 2), (10, 3)))
    one = worker(reported((0, 0), (1000, 1)))
    assert not is_below_limit(two)
    assert procon([two, one], WorkerJob(SIX, 0.0), 0.0, Random(1)) == 1


def test_its_flaw_and_the_mended_tie() -> None:
    """One job with a step left and one with five: both have c = 0. The literal one draws lots, the mended one none."""
    short, long = worker(reported((0, 4), (10, 5))), worker(reported((0, 0), (10, 1)))
    drawn = {procon([long, short], WorkerJob(SIX, 0.0), 0.0, Random(seed)) for seed in range(20)}
    assert drawn == {0, 1}
    assert {procon_ties([long, short], WorkerJob(SIX, 0.0), 0.0, Random(seed)) for seed in range(20)} == {1}


def test_a_worker_below_its_limit_is_taken_whatever_its_contention() -> None:
    light = TrainingModel("light", 6, 60.0, threads=2.0)
    idle = worker(reported((0, 1), (10, 2), workload=light), reported((0, 1), (10, 2), workload=light))
    assert is_below_limit(idle)
    assert procon([worker(reported((0, 4), (10, 5))), idle], WorkerJob(SIX, 0.0), 0.0, Random(1)) == 1


@given(st.lists(st.floats(0.1, 20.0), min_size=1, max_size=10))
def test_shares_are_fair_and_whole(wanted: list[float]) -> None:
    given = shares(wanted)
    assert sum(given) == pytest.approx(min(THREADS, sum(wanted)))
    assert all(have <= want + 1e-9 for have, want in zip(given, wanted, strict=True))
    short = [have for have, want in zip(given, wanted, strict=True) if have < want - 1e-6]
    assert max(given) <= min(short, default=max(given)) + 1e-6


@given(st.lists(st.floats(10.0, 5000.0), min_size=1, max_size=6))
def test_completion_times_in_closed_form_are_those_of_the_simulation(lefts: list[float]) -> None:
    jobs = [WorkerJob(TrainingModel("k", 10, left / THREADS), 0.0) for left in lefts]
    run = simulate(jobs, 1, PLACERS["least count"], 1)
    assert total_s(lefts) == pytest.approx(run.mean_s * len(jobs), rel=1e-6)


def test_work_is_neither_lost_nor_made() -> None:
    for name, place in PLACERS.items():
        jobs = SCHEDULES[2].make(Random(3))
        run = simulate(jobs, 4, place, 3)
        assert all(job.used_s == pytest.approx(job.workload.work_s, rel=1e-5) for job in jobs), name
        assert run.makespan_s * 4 * THREADS >= sum(job.workload.work_s for job in jobs)


def test_reports_come_at_max_once_a_second_and_in_order() -> None:
    one = worker(WorkerJob(BIRNN, 0.0))
    for now_s in (5.0, 9.5, 30.0, 100.0):
        one.advance(now_s)
        times = [point.t for point in one.jobs[0].reports]
        assert all(b - a >= 1.0 - 1e-9 for a, b in pairwise(times))
        assert [p.done for p in one.jobs[0].reports] == sorted(p.done for p in one.jobs[0].reports)
        assert len(times) == min(9, int(now_s))


@pytest.mark.long
def test_least_left_on_seeds_of_its_own() -> None:
    """The claim of lab/results/progress.md on fewer seeds, others than those there."""
    rows = {row.placer: row for row in table(range(9000, 9020), (SCHEDULES[5],))}
    assert rows["least-left"].against_count <= 0.97
    assert rows["least-left"].against_random <= 0.70
    assert rows["oracle"].mean_s <= rows["least-left"].mean_s * 1.02


def test_the_command_prints_every_row_and_the_same_twice() -> None:
    command = [sys.executable, "-m", "lab.progress.sim", "--json", "--seeds", "1"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    rows = json.loads(first)
    assert len(rows) == len(SCHEDULES) * len(PLACERS)
    assert first == second


def test_the_page_of_results_is_made_of_what_was_kept_and_keeps_its_promises() -> None:
    assert (RESULTS / "progress.md").read_text() == page(), "python -m lab.progress.report renews it"
    kept = {(row["schedule"], row["placer"]): row for row in json.loads((RESULTS / "progress.json").read_text())}
    assert set(kept) == {(schedule.name, name) for schedule in SCHEDULES for name in PLACERS}
    for schedule in ("random 20/4 in 600 s", "random 60/7 in 1200 s"):
        row = kept[schedule, "least-left"]
        assert (row["seeds"] >= 20, row["against_count"] <= 0.97, row["against_random"] <= 0.70) == (True, True, True)


def test_defaults_of_1_15_by_hand() -> None:
    """Whole scores to 10 do not tell one job from fifteen; the order of equal ones is what warm and raced differ in."""
    crowded, empty = worker(*[WorkerJob(SIX, 0.0) for _ in range(14)]), worker()
    names = ("Kubernetes 1.15, warm", "Kubernetes 1.15, raced")
    warm, raced = (
        [PLACERS[name]([crowded, empty], WorkerJob(SIX, 0.0), 0.0, Random(n)) for n in range(40)] for name in names
    )
    assert warm == [0, 1] * 20
    assert 8 <= sum(raced) <= 32
    full = worker(*[WorkerJob(SIX, 0.0) for _ in range(16)])
    assert {PLACERS[name]([full, empty], WorkerJob(SIX, 0.0), 0.0, Random(1)) for name in names} == {1}


def test_the_figures_show_the_simulation() -> None:
    jobs = run(SCHEDULES[0], "Kubernetes 1.15, warm", 1)
    assert numbers(jobs, 4) == {"most": 5, "fewest": 5, "idle_s": 90.0, "cpu_sigma": pytest.approx(0.0, abs=0.03)}
    used = busy([WorkerJob(SIX, 30.0, worker=0, ends_s=90.0), WorkerJob(SIX, 60.0, worker=0, ends_s=80.0)], 0, 130.0)
    assert used == [0.5, 0.5, 0.0]
