"""The table of reports, and what is made of them."""

from math import inf, isnan, nan
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.pods.jobs import Jobs
from carico_agent.node.pods.peer_pod import Process
from carico_agent.node.pods.pods import Pod
from carico_agent.progress.table import BadReport, ProgressTable, parse, summary
from carico_agent.progress.work_left import MAX_LEFT_S, MAX_RUNS, Point, RunTimes, WorkLeft, estimate


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"done": 1},
        {"done": -1, "total": 10},
        {"done": 11, "total": 10},
        {"done": 0, "total": 0},
        {"done": 0, "total": -3},
        {"done": nan, "total": 10},
        {"done": 1, "total": inf},
        {"done": 1, "total": 1e300},
        {"done": 1, "total": 10**400},
        {"done": "1", "total": 10},
        {"done": True, "total": 10},
        {"done": None, "total": 10},
        {"trainerStatus": 5},
        {"trainerStatus": {}},
        {"trainerStatus": {"progressPercentage": 101}},
    ],
)
def test_what_is_no_report(body: dict[str, Any]) -> None:
    with pytest.raises(BadReport):
        parse(body)


def test_kubeflow_status() -> None:
    status = {"progressPercentage": 45, "estimatedRemainingSeconds": 795, "metrics": [{"name": "loss", "value": "0.2"}]}
    assert parse({"trainerStatus": status}) == (45.0, 100.0)


def steps(n: int, seconds: float, share: float, per_step: float = 1.0) -> list[Point]:
    """A job that needs `per_step` CPU seconds for a step and has `share` of a core."""
    return [Point(seconds * k, share * seconds * k / per_step, share * seconds * k) for k in range(n)]


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_contention_cancels_out(share: float) -> None:
    points = steps(9, 2.0, share)
    left = estimate(points, 100.0, points[-1].t)
    assert left.cpu_s == pytest.approx(100.0 - points[-1].done)
    assert left.end_s == pytest.approx(left.cpu_s / share)
    assert not left.uncertain


def test_the_original_formula_is_twice_off_for_two_jobs_on_one_core() -> None:
    """i = f/u·(MAX − P), *ProCon*, equation 3: f has the contention in it already, and u = 1/2 counts it again."""
    points, total = steps(9, 2.0, 0.5), 100.0
    last, before = points[-1], points[-2]
    per_unit_s = (last.t - before.t) / (last.done - before.done)
    original = per_unit_s / 0.5 * (total - last.done)
    truth_s = (total - last.done) / 0.5
    assert original == pytest.approx(2 * truth_s)
    assert estimate(points, total, last.t).end_s == pytest.approx(truth_s)


def test_one_slow_report_moves_nothing() -> None:
    points = [Point(p.t, p.done, p.cpu_s + (40.0 if p.t >= 10 else 0.0)) for p in steps(9, 2.0, 1.0)]
    left = estimate(points, 100.0, points[-1].t)
    assert left.cpu_s == pytest.approx(100.0 - points[-1].done)


def test_few_or_scattered_slopes_are_uncertain() -> None:
    assert estimate(steps(2, 1.0, 1.0), 10.0, 1.0).uncertain
    wild = [Point(float(2**n), float(n), float(2**n)) for n in range(9)]
    assert estimate(wild, 100.0, 256.0).uncertain
    assert isnan(estimate(steps(1, 1.0, 1.0), 10.0, 0.0).cpu_s)
    assert isnan(estimate([Point(0, 0, nan), Point(1, 1, nan)], 10.0, 1.0).cpu_s)


def test_a_finished_job_has_nothing_left() -> None:
    left = estimate([Point(0.0, 10.0, nan)], 10.0, 5.0)
    assert (left.cpu_s, left.end_s, left.uncertain) == (0.0, 0.0, False)


def test_between_two_reports_work_goes_on_for_one_interval() -> None:
    points = steps(9, 2.0, 1.0)
    at = [estimate(points, 100.0, points[-1].t + later).cpu_s for later in (0.0, 1.0, 2.0, 9.0)]
    assert at == pytest.approx([84.0, 83.0, 82.0, 82.0])


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e15), st.floats(0, 1e9) | st.just(nan)), max_size=12),
    st.floats(1e-6, 1e15),
)
def test_nothing_that_was_reported_breaks_it(raw: list[tuple[float, float, float]], total: float) -> None:
    table = ProgressTable()
    for t, done, cpu_s in sorted(raw, key=lambda one: one[0]):
        table.report("a", t, min(done, total), total, cpu_s)
    left = table.left("a", 2e6)
    assert isnan(left.cpu_s) or left.cpu_s >= 0
    assert isnan(left.end_s) or left.end_s >= 0


def test_backwards_is_a_new_run() -> None:
    table = ProgressTable()
    for n in range(6):
        table.report("a", float(n), n, 10, 2.0 * n)
    table.report("a", 6.0, 1, 10, 12.0)
    job = table.get("a")
    assert job is not None
    assert (job.runs, job.done, len(job.points)) == (2, 1, 1)
    assert isnan(table.left("a", 6.0).cpu_s)
    table.report("a", 7.0, 2, 10, 13.0)
    assert table.left("a", 7.0).cpu_s == pytest.approx(8.0)


ROWS: list[tuple[str, list[tuple[int, int]], set[int], tuple[float, int]]] = [
    ("two ranks, the second a step behind", [(1, 5), (2, 4), (1, 6), (2, 5)], {1, 2}, (6, 1)),
    ("the second overtakes", [(1, 5), (2, 6), (1, 5), (2, 7)], {1, 2}, (7, 1)),
    ("the same process begins again", [(1, 5), (1, 1)], {1}, (1, 2)),
    ("the first has ended, the next begins", [(1, 5), (2, 1)], {2}, (1, 2)),
    ("one process for each report, as with curl", [(1, 1), (2, 2), (3, 3)], set(), (3, 1)),
    ("the first is done and waits, another one begins", [(1, 9), (2, 1)], {1, 2}, (1, 2)),
]


@pytest.mark.parametrize(("reports", "living", "found"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_several_processes_of_one_pod(
    reports: list[tuple[int, int]], living: set[int], found: tuple[float, int]
) -> None:
    """(pid, done) of 9: what counts in the end, and how many runs were seen."""
    jobs, pod = Jobs(lambda _: nan, lambda: 0.0, lambda process: process.pid in living), Pod("uid-1", "a", "lab")
    for at, (pid, done) in enumerate(reports):
        jobs.report(pod, float(at), done, 9, Process(pid, 1, "/pod"))
    job = jobs.table.get(pod.key)
    assert job is not None
    assert (job.done, job.runs) == found


def test_a_job_that_was_asked_to_wait_is_not_stale_while_it_does() -> None:
    jobs, pod = Jobs(lambda _: nan, lambda: 0.0), Pod("uid-1", "a", "lab")
    for second in range(9):
        jobs.report(pod, float(second), second, 100)
    jobs.ask(pod, 30.0)
    job = jobs.table.get(pod.key)
    assert job is not None
    assert not job.is_stale(8 + 299)
    assert job.is_stale(8 + 301)


def test_one_job_counts_for_three_years_of_a_core_at_most() -> None:
    absurd = [Point(float(k), 1e-9 * k, float(k)) for k in range(9)]
    assert estimate(absurd, 1e15, 8.0).cpu_s == MAX_LEFT_S
    assert estimate(absurd[1:2], 1e15, 8.0).cpu_s == MAX_LEFT_S


def test_a_counter_that_began_again_is_a_new_run() -> None:
    """The Pod's container was restarted: the same key, other counters."""
    table = ProgressTable()
    table.report("a", 0.0, 1, 10, 50.0)
    table.report("a", 1.0, 2, 10, 0.5)
    job = table.get("a")
    assert job is not None
    assert job.runs == 2


def test_silent_for_ten_intervals_is_stale_and_a_report_heals() -> None:
    table = ProgressTable()
    for n in range(5):
        table.report("a", 3.0 * n, n, 10, 1.0 * n)
    assert table.left("a", 12.0 + 30.0).cpu_s == pytest.approx(5.0)
    assert isnan(table.left("a", 12.0 + 30.1).cpu_s)
    table.report("a", 50.0, 5, 10, 5.0)
    assert table.left("a", 50.0).cpu_s == pytest.approx(5.0)


def test_reports_that_do_not_move_keep_a_job_alive_but_make_no_slope() -> None:
    table = ProgressTable()
    for n in range(4):
        table.report("a", float(n), n, 10, float(n))
    for n in range(4, 100):
        table.report("a", float(n), 3, 10, float(n))
    job = table.get("a")
    assert job is not None
    assert len(job.points) == 4
    assert not job.is_stale(105.0)


def test_the_table_is_bounded() -> None:
    table = ProgressTable(most=10)
    for n in range(1000):
        table.report(f"pod-{n}", float(n), 1, 10)
        for k in range(2, 10):
            table.report(f"pod-{n}", float(n) + k / 10, k, 10)
    assert len(table) == 10
    assert all(len(job.points) <= 9 for _, job in table)
    table.keep(["pod-999"])
    assert [key for key, _ in table] == ["pod-999"]


def test_run_times_are_bounded_and_keep_the_latest() -> None:
    runs = RunTimes(max_workloads=4)
    for n in range(100):
        for _ in range(MAX_RUNS + 5):
            runs.ended(f"workload-{n}", 10.0)
    assert [runs.knows(f"workload-{n}") for n in (0, 95, 96, 99)] == [False, False, True, True]
    runs.ended("", 5.0)
    runs.ended("x", nan)
    assert not runs.knows("x")


def test_older_than_all_runs_of_its_workload_is_unknown() -> None:
    runs = RunTimes()
    for seconds in (10.0, 12.0, 14.0):
        runs.ended("train", seconds)
    assert isnan(runs.left_s("train", 14.0))


def pod(key: str, workload: str = "lab/train", **more: Any) -> Pod:
    return Pod(key, key, "lab", uid=key, workload=workload, **more)


def test_pods_that_do_not_report_are_known_by_their_workload() -> None:
    used = {"new": 0.0}
    jobs = Jobs(lambda one: used.get(one.key, nan), lambda: 1e9)
    for n in range(3):
        jobs.refresh(100.0 * n, {f"old-{n}": pod(f"old-{n}")})
    jobs.refresh(300.0, {})
    jobs.refresh(301.0, pods := {"new": pod("new"), "other": pod("other", "lab/serve"), "d": pod("d", per_node=True)})
    used["new"] = 5.0
    jobs.refresh(311.0, pods)
    assert jobs.views(311.0) == []  # it never reported: it is in the sum, and no job for a reader
    found = jobs.summary(311.0)
    assert (found.jobs, found.uncertain) == (1, 1)
    assert found.total_s == pytest.approx((100 - 10) * 0.5)


def test_reports_go_before_history_and_end_with_the_pod() -> None:
    jobs = Jobs(lambda one: 7.0, lambda: 1e9)
    jobs.refresh(0.0, {"a": pod("a")})
    jobs.report(pod("a"), 1.0, 10, 10)
    assert jobs.summary(1.0).jobs == 1
    jobs.refresh(2.0, {})
    assert jobs.summary(2.0).jobs == 0
    assert len(jobs.table) == 0


def test_an_endless_container_is_no_job() -> None:
    """Issue 36: it was listed with 0 s left. It is older than all others of its workload, and never reports."""
    used = {"endless": 0.0}
    jobs = Jobs(lambda one: used.get(one.key, nan), lambda: 1e9)
    for n in range(3):
        jobs.refresh(10.0 * n, {f"old-{n}": pod(f"old-{n}")})
    jobs.refresh(30.0, pods := {"endless": pod("endless")})
    for t in range(31, 100):
        used["endless"] += 1.0
        jobs.refresh(float(t), pods)
    assert jobs.views(100.0) == []
    found = jobs.summary(100.0)
    assert (found.jobs, found.unknown, found.total_s) == (0, 0, 0.0)


def test_a_container_that_runs_on_after_its_last_report_is_no_job() -> None:
    jobs = Jobs(lambda one: 7.0, lambda: 1e9)
    jobs.refresh(0.0, {"a": pod("a")})
    for n in range(1, 6):
        jobs.report(pod("a"), float(n), 2 * n, 10)
    assert [view.left.end_s for view in jobs.views(6.0)] == [0.0], "it has just reported its end"
    assert jobs.views(16.0) == [] and jobs.summary(16.0).jobs == 0
    jobs.report(pod("a"), 17.0, 1, 10)
    assert [view.job.runs for view in jobs.views(18.0)] == [2], "it works again"


def test_summary() -> None:
    found = summary([WorkLeft(10.0, 1.0, 10.0, False), WorkLeft(5.0, 1.0, 5.0, True), WorkLeft()])
    assert (found.jobs, found.unknown, found.uncertain, found.total_s, found.longest_s) == (2, 1, 1, 15.0, 10.0)


def test_a_job_that_waits_for_a_gpu_is_known_by_its_time() -> None:
    """A step each 2 s, in which it uses 10 ms of CPU, counted in ticks of 10 ms: now none, now three."""
    ticks = [0, 1, 1, 4, 4, 5, 8, 8, 9]
    points = [Point(2.0 * n, float(n), 0.01 * ticks[n]) for n in range(9)]
    left = estimate(points, 108.0, 16.0)
    assert (left.basis, left.uncertain) == ("time", False)
    assert left.end_s == pytest.approx(200.0)
    assert left.per_s == pytest.approx(0.5)


def test_a_job_whose_cpu_is_unknown_still_has_an_end() -> None:
    left = estimate([Point(3.0 * n, float(n), nan) for n in range(9)], 18.0, 24.0)
    assert (left.basis, left.end_s, isnan(left.cpu_s)) == ("time", 30.0, True)


def test_a_job_beside_neighbours_that_come_and_go_is_known_by_its_cpu() -> None:
    """One CPU second per step; it gets a core, half of one, a third … Time per step differs by a factor of three."""
    points, t = [Point(0.0, 0.0, 0.0)], 0.0
    for n, share in enumerate((1.0, 0.5, 0.33, 1.0, 0.5, 0.33, 1.0, 0.5), 1):
        t += 1.0 / share
        points.append(Point(t, float(n), float(n)))
    left = estimate(points, 108.0, t)
    assert left.basis == "cpu"
    assert left.cpu_s == pytest.approx(100.0)


def test_the_interval_holds_the_end_nine_times_of_ten() -> None:
    """2,000 jobs whose steps take 1 s ± a third (lognormal), asked after 9 reports of 5 steps; 100 steps remain."""
    rng, inside, bounds = Random(34), 0, list[float]()
    for _ in range(2000):
        steps = [rng.lognormvariate(0.0, 0.33) for _ in range(145)]
        ends = [sum(steps[: 5 * n]) for n in range(1, 10)]
        left = estimate([Point(t, 5.0 * n, nan) for n, t in enumerate(ends, 1)], 145.0, ends[-1])
        inside += left.low_s <= sum(steps[45:]) <= left.high_s
        bounds.append((left.high_s - left.low_s) / left.end_s)
    assert inside / 2000 >= 0.9
    assert median(bounds) < 0.4  # and it is no interval that holds everything
