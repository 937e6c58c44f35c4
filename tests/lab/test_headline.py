"""Small versions of the headline claims; `make lab-quick` has the real ones."""

import pytest

from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.federation.pairwise_merge import PairwiseMerge
from lab.experiments.heavy import OneWorkload, excess
from lab.experiments.scenarios import capacity_trace
from lab.sim.engine import Setup, run
from lab.sim.fleet import AgentConfig, Faults
from lab.sim.schedulers.carico import Carico, PaperCarico, nodes_to_find
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import HEAVY, LIGHT, PI, SKLEARN, PodBatch

SMALL = Setup(nodes=5)


def test_carico_is_between_the_requests_without_knowing_any() -> None:
    job = [PodBatch(PI, 200)]
    mine = run(Carico(), job, 3, SMALL)
    loose, tight = (run(Kube(), [PodBatch(PI.asking(m), 200)], 3, SMALL) for m in (100, 1000))
    assert mine.pct_s().mean() < 0.4 * loose.pct_s().mean()
    assert mine.jct_s < 0.9 * tight.jct_s
    assert mine.overfill_s(7.97) == 0


def test_a_silent_node_is_closed_and_the_others_carry_on() -> None:
    faults = Faults(silent=frozenset({2}))
    r = run(Carico(AgentConfig(faults=faults)), [PodBatch(PI, 60)], 3, SMALL)
    assert r.finished and not (r.node == 2).any()


def test_old_numbers_do_not_overfill() -> None:
    late = AgentConfig(faults=Faults(delay_s=30.0))
    r = run(Carico(late), [PodBatch(PI, 150)], 3, Setup(nodes=5, warm_s=40.0))
    assert r.finished and r.overfill_s(7.97) == 0


@pytest.mark.long
def test_heavy_unprofiled_pods_are_let_in_slowly() -> None:
    jobs = [PodBatch(LIGHT, 100, 0.0, 30.0), PodBatch(HEAVY, 80, 30.0)]
    mine, paper = (run(make(), jobs, 4, Setup(nodes=4, rehearsal=(LIGHT,))) for make in (Carico, PaperCarico))
    assert excess(mine).sum() < 0.5 * excess(paper).sum()


def test_scenarios_of_chapter_three() -> None:
    conflicting, complementary = capacity_trace((0.25, 0.12))[1], capacity_trace((0.05, 0.55))[1]
    assert conflicting[-1] < conflicting[25]
    assert complementary[-1] > complementary[25]


def test_nodes_to_find_is_kube_schedulers() -> None:
    assert [nodes_to_find(n) for n in (50, 100, 1000, 5000, 10000)] == [50, 100, 420, 500, 500]


def test_nodes_really_share_what_they_know() -> None:
    """An aggregator nobody speaks to gives the same run as none: it would pass for "federation changes nothing"."""
    setup = Setup(nodes=3, rehearsal=(PI,))
    alone, shared = (
        run(PaperCarico(AgentConfig("paper-dual", None, aggregator=workload)), [PodBatch(PI, 40)], 3, setup)
        for workload in (None, PairwiseMerge)
    )
    fleet = shared.scheduler_object.fleet  # type: ignore[union-attr]
    assert len(fleet._aggregator) == 3
    assert not (alone.end_s == shared.end_s).all()


@pytest.mark.long
def test_pods_of_one_template_that_turn_heavy_overfill_half_as_much_as_with_the_dissertations_rule() -> None:
    jobs = [PodBatch(LIGHT, 120, 0.0, 40.0), PodBatch(HEAVY, 84, 40.0)]
    mine, paper = (run(make(), jobs, 4, Setup(nodes=4, rehearsal=(LIGHT,))) for make in (OneWorkload, PaperCarico))
    assert excess(mine).max(axis=0).mean() < 0.6 * excess(paper).max(axis=0).mean()


def test_a_job_that_nobody_has_measured_is_probed_first() -> None:
    job, setup = [PodBatch(SKLEARN, 32)], Setup(nodes=6)
    probed = run(Carico(), job, 3, setup)
    at_once = run(Carico(policy=PodCapacity(PodCapacitySettings(max_unmeasured=0))), job, 3, setup)
    assert probed.pct_s().mean() < 0.5 * at_once.pct_s().mean()
    assert probed.jct_s < 1.2 * at_once.jct_s
