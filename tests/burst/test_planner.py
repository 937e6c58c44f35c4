"""Rounds of thinking on made-up clusters: when, where, how many nodes."""

import pytest

from carico_agent.burst.catalogue import BadPrices, Prices, parse_prices
from carico_agent.burst.choice import (
    Data,
    JobNeeds,
    TargetOffer,
    hcs,
    min_cost,
    parse_data,
)
from carico_agent.burst.overflow import Asked, NodeRoom, Waiting
from carico_agent.burst.planner import BurstPolicy, Candidate, Growth, TargetState, plan
from carico_agent.lib.kube.filters.pod_rules import NodeTraits, PodRules, Taint

FULL = [NodeRoom("home-1", cpu=0.0)]
BIG = NodeRoom("new", cpu=6.0, memory=16e9)


def candidate(name: str, unschedulable_s: float = 60.0, duration_s: float = 600.0, pods: int = 1) -> Candidate:
    return Candidate(Waiting(("d", name), "k", Asked(2.0, 2e9), unschedulable_s, pods), JobNeeds(duration_s))


def target(name: str = "cloud", price: float | None = 0.68, cpu: float = 8.0, **more: object) -> TargetState:
    return TargetState(name, price_per_h=price, rooms=[NodeRoom("n", cpu=cpu)], **more)  # type: ignore[arg-type]


def test_overflow_moves_where_there_is_room() -> None:
    made = plan([candidate(f"j{n}") for n in range(6)], FULL, [500.0], [target()], BurstPolicy())
    assert list(made.moves.values()) == ["cloud"] * 4  # 8 CPUs
    assert made.reasons[("d", "j5")] == "cloud: it has no room (0/1 nodes: 1 insufficient cpu); it cannot grow"


def test_a_job_stays_while_it_may_start_at_home_sooner() -> None:
    growing = target(cpu=0.0, growths=[Growth(BIG, 300.0, 4)])
    made = plan([candidate("a"), candidate("b")], FULL, [100.0], [growing], BurstPolicy())
    assert made.reasons[("d", "a")] == "starts at home in about 100 s, at cloud in 300 s"
    assert made.reasons[("d", "b")] == "waits for a node at cloud"
    assert made.add["cloud"] in (0, 1)


def test_requests_and_pod_capacity_decide_together() -> None:
    agent_says_full = [NodeRoom("home-1", cpu=64.0, memory=64e9, pod_capacity=0.3)]
    agent_has_room = [NodeRoom("home-1", cpu=64.0, memory=64e9, pod_capacity=0.3, fits={"k": 1.5})]
    assert plan([candidate("a")], agent_says_full, [500.0], [target()], BurstPolicy()).moves
    assert plan([candidate("a")], agent_has_room, [500.0], [target()], BurstPolicy()).reasons == {
        ("d", "a"): "node home-1 has room for it"
    }


def test_not_before_it_has_waited() -> None:
    made = plan([candidate("a", 10.0)], FULL, [500.0], [target()], BurstPolicy())
    assert made.reasons == {("d", "a"): "unschedulable for 10 s, of 30 s"}


def test_a_job_moves_as_a_whole() -> None:
    made = plan([candidate("a", pods=5)], FULL, [500.0], [target(cpu=8.0)], BurstPolicy())
    assert not made.moves
    assert plan([candidate("a", pods=4)], FULL, [500.0], [target(cpu=8.0)], BurstPolicy()).moves


def test_no_price_no_target() -> None:
    made = plan([candidate("a")], FULL, [500.0], [target(price=None)], BurstPolicy())
    assert made.reasons == {("d", "a"): "cloud: no price is known for it"}


def test_a_target_that_does_not_answer_is_not_chosen() -> None:
    states = [target("near", 0.1, obstacle="does not answer for 12 s"), target("far", 9.0)]
    assert plan([candidate("a")], FULL, [500.0], states, BurstPolicy()).moves == {("d", "a"): "far"}


def test_without_a_home_that_runs_anything_a_first_node_is_ordered() -> None:
    growing = target(cpu=0.0, growths=[Growth(BIG, 300.0, 4)])
    made = plan([candidate("a")], [], [], [growing], BurstPolicy())
    assert made.add["cloud"] == 1


def test_nodes_on_their_way_count() -> None:
    jobs = [candidate(f"j{n}", duration_s=3000.0) for n in range(6)]
    fresh = target(cpu=0.0, growths=[Growth(BIG, 300.0, 4)])
    under_way = target(cpu=0.0, growths=[Growth(BIG, 300.0, 2, [100.0, 100.0])])
    policy = BurstPolicy(value_per_h=2.0)
    first = plan(jobs, FULL, [3000.0], [fresh], policy).add["cloud"]
    assert first >= 1
    assert plan(jobs, FULL, [3000.0], [under_way], policy).add["cloud"] < first


def test_hcs_adds_one_node_at_a_time_and_does_not_look_at_home() -> None:
    jobs = [candidate(f"j{n}") for n in range(30)]
    growing = target(cpu=0.0, growths=[Growth(BIG, 300.0, 4)])
    assert plan(jobs, FULL, [1.0], [growing], BurstPolicy("hcs")).add == {"cloud": 1}


def test_egress_and_regions_decide() -> None:
    prices = Prices(egress_per_gb={"west": 0.09})
    near, cheap = TargetOffer("near", "west", 1.0), TargetOffer("cheap", "east", 0.5)
    small, large = JobNeeds(600.0), JobNeeds(600.0, (Data("m", "s3://m", "west", 50.0),))
    assert min_cost(small, [near, cheap], prices, 0.1)[0].target == "cheap"
    assert min_cost(large, [near, cheap], prices, 0.1)[0].target == "near"
    assert hcs(large, [near, cheap], prices, 0.1)[0].target == "cheap"
    only = min_cost(JobNeeds(600.0, regions=("west",)), [cheap], prices, 0.1)[0]
    assert only.why_not == "region east is not allowed (carico.dev/regions)"


@pytest.mark.parametrize("text", ["x", "=s3://a,r", "a=,r", "a=b,r,many", "a=b,r,1,2", "a=b,r,-1", "a=b,r,nan"])
def test_data_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_data(text)


@pytest.mark.parametrize(
    "text,why",
    [
        ("[", "not TOML"),
        ("[machins]", "unknown: machins"),
        ("[machines.a]\nb = -1", "a.b: -1 is not a price"),
        ("[egress_per_gb]\na = 'much'", "not a price"),
        ("machines = 3", "not a table"),
        ("[machines]\na = 3", "a: 3 is not a table"),
    ],
)
def test_prices_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(BadPrices, match=why):
        parse_prices(text)


def test_prices_are_read() -> None:
    prices = parse_prices("[machines.us-east-1]\n'c5.4xlarge' = 0.68\n[egress_per_gb]\nus-east-1 = 0.09\n")
    assert prices.machines["us-east-1"]["c5.4xlarge"].price == 0.68


GPU = "nvidia.com/gpu"


def gpu_candidate() -> Candidate:
    return Candidate(Waiting(("d", "gpu"), "k", Asked(2.0, 2e9, {GPU: 1.0}), 60.0), JobNeeds(600.0))


def test_a_job_for_a_gpu_is_overflow_where_home_has_none_and_goes_only_where_there_is_one() -> None:
    home = [NodeRoom("home-1", cpu=64.0, memory=64e9)]
    without, with_one = (
        target("plain", 0.1),
        TargetState("gpus", price_per_h=9.0, rooms=[NodeRoom("g", others={GPU: 1})]),
    )
    assert plan([gpu_candidate()], home, [500.0], [without, with_one], BurstPolicy()).moves == {("d", "gpu"): "gpus"}
    made = plan([gpu_candidate()], home, [500.0], [without], BurstPolicy())
    assert "plain: it has no room" in made.reasons["d", "gpu"]


def test_selectors_and_taints_decide_at_home_and_for_nodes_that_do_not_exist_yet() -> None:
    rules = PodRules(selector=(("disk", "ssd"),))
    picky = Candidate(Waiting(("d", "a"), "k", Asked(2.0, rules=rules), 60.0), JobNeeds(600.0))
    home = [NodeRoom("home-1", cpu=64.0)]
    plain, ssd = NodeRoom("new", cpu=6.0), NodeRoom("new", cpu=6.0, traits=NodeTraits({"disk": "ssd"}))
    tainted = NodeRoom("new", cpu=6.0, traits=NodeTraits({"disk": "ssd"}, (Taint("team", "x"),)))
    added = {}
    for name, node in (("plain", plain), ("ssd", ssd), ("tainted", tainted)):
        growing = TargetState("cloud", price_per_h=0.68, growths=[Growth(node, 300.0, 4)])
        added[name] = plan([picky], home, [], [growing], BurstPolicy()).add.get("cloud", 0)
    assert added == {"plain": 0, "ssd": 1, "tainted": 0}


def test_where_volumes_decide_only_kube_scheduler_is_believed() -> None:
    rules = PodRules(unjudged="where its volumes are")
    bound = Candidate(Waiting(("d", "a"), "k", Asked(2.0, rules=rules), 60.0), JobNeeds(600.0))
    assert plan([bound], [NodeRoom("home-1")], [500.0], [target()], BurstPolicy()).moves
