"""The burst simulator gives the document's numbers, and ours are within the bounds we claim."""

import json
from typing import Any

import pytest

from lab.burst import sim as burst_sim

SEEDS = list(range(burst_sim.FIRST_SEED, burst_sim.FIRST_SEED + 50))


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return burst_sim.summary(SEEDS)


def test_the_workload_is_the_documents() -> None:
    jobs = burst_sim.workload(0)
    assert len(jobs) == 90
    assert sum(job.workload.startswith("train") for job in jobs) == 30
    assert max(job.arrival_s for job in jobs) < 1800
    assert sum(job.arrival_s == 0 for job in jobs) == 6


@pytest.mark.long
def test_home_only_takes_what_the_document_measured(table: dict[str, Any]) -> None:
    assert table["home"]["makespan_s"][0] == pytest.approx(3244, rel=0.01)


def test_naive_and_hcs_are_bound_by_arrivals(table: dict[str, Any]) -> None:
    for name in ("naive", "hcs"):
        assert abs(table[name]["makespan_s"][0] - 1847) < 2 * 21
    assert table["hcs"]["node_s"][0] == pytest.approx(3300, rel=0.08)
    assert table["hcs"]["nodes_left"][0] == pytest.approx(3, abs=0.2)


def test_ours_costs_less_than_the_documents_system_and_leaves_nothing_behind(table: dict[str, Any]) -> None:
    """With the planner and the rule to shrink that are shipped. An earlier bound of 2,000 node-seconds was kept by a
    rule that only the simulator had."""
    ours, hcs = table["ours"], table["hcs"]
    assert ours["makespan_s"][0] <= 1900
    assert ours["node_s"][0] <= 0.65 * hcs["node_s"][0]
    assert ours["nodes_left"] == [0, 0]
    assert ours["money_usd"][0] < 0.8 * hcs["money_usd"][0]


def test_ours_loses_to_naive_as_the_page_says(table: dict[str, Any]) -> None:
    """Should this fail, lab/results/burst.md and docs/burst.md say less than the truth."""
    ours, naive = table["ours"], table["naive"]
    assert ours["money_usd"][0] > naive["money_usd"][0]
    assert ours["turnaround_s"][0] > naive["turnaround_s"][0]


def test_with_a_standing_node_ours_beats_naive(table: dict[str, Any]) -> None:
    standing, naive = table["standing"], table["naive"]
    assert standing["money_usd"][0] < 0.85 * naive["money_usd"][0]
    assert standing["turnaround_s"][0] < naive["turnaround_s"][0]
    assert standing["makespan_s"][0] < naive["makespan_s"][0] + 10


@pytest.mark.parametrize("name", burst_sim.SYSTEMS)
def test_every_job_runs_once_and_no_place_is_taken_twice(name: str) -> None:
    world = burst_sim.simulate(name, 3)
    assert sorted(map(id, world.done)) == sorted(map(id, world.jobs))
    assert max(home for _, home, *_ in world.trace) <= burst_sim.PLACES
    assert all(cloud <= burst_sim.PLACES * nodes for _, _, cloud, _, _, nodes in world.trace)
    assert all(job.start_s >= job.arrival_s for job in world.jobs)


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert burst_sim.main(["--json", "--seed", "1"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"home", "naive", "hcs", "ours", "standing"}
