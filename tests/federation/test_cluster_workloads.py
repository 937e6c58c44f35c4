"""What workloads cost over all nodes: right when all are honest, and hardly moved by one that lies."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core import WorkloadCost
from carico_agent.core.subspace import Subspace
from carico_agent.federation import wire, wire_workloads
from carico_agent.federation.aggregator import Aggregator
from carico_agent.federation.cluster_workloads import MAX_WORKLOADS, ClusterWorkloads, combine, merge_nodes, middle_mean
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.contributions import ContributionTable
from carico_agent.federation.moments import Moments
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.workloads import ReportedWorkloads, WorkloadFit
from carico_agent.settings import AggregatorSettings

TWO = ("cpu", "memory")
NAN = float("nan")
TRUTH = {"shop/web": (0.5, 2e8), "shop/cache": (0.1, 3e9), "batch/train": (4.0, 8e9)}
"""Cores and bytes of one Pod."""


def merge_all(reports: list[ReportedWorkloads]) -> ClusterWorkloads:
    """All steps of a merge at once."""
    (result,) = [step for step in merge_nodes(reports) if step is not None]
    return result


def contribution(
    workloads: list[WorkloadCost], sizes=(8.0, 16e9), resources=TWO, room=(), fits: dict[str, WorkloadFit] | None = None
) -> Contribution:
    space = Subspace.of_batch(np.full((len(resources), 1), 0.3))
    return Contribution(resources, space, 10, workloads=workloads, sizes=sizes, room=room, fits=fits or {})


def honest_workloads(
    rng: np.random.Generator, sizes: tuple[float, float], pods: int | None = None
) -> list[WorkloadCost]:
    """What a node of that size measures: 5 % noise on each workload's cost."""
    found = []
    for name, cost in TRUTH.items():
        share = tuple(c * rng.normal(1.0, 0.05) / s for c, s in zip(cost, sizes, strict=True))
        seen = int(rng.integers(1, 40)) if pods is None else pods
        found.append(WorkloadCost(name, share, tuple(0.1 * c for c in share), seen, float(rng.random() * 10)))
    return found


def packed(workloads: list[pb.WorkloadCost]) -> bytes:
    return pb.WorkloadReport(workloads=workloads).SerializeToString()


def report(node: str, given: Contribution, **changes):
    raw = wire.write_contribution(node, given, time.time_ns())
    return wire.read_contribution(raw)[2]


def honest_reports(rng: np.random.Generator, count: int, pods: int | None = None):
    sizes = [(2.0 * cores, 4e9 * cores) for cores in (2, 4, 16, 64)]
    chosen = [sizes[rng.integers(4)] for _ in range(count)]
    return [report(f"n{i}", contribution(honest_workloads(rng, size, pods), size)) for i, size in enumerate(chosen)]


def cost_of(cluster: ClusterWorkloads, workload: str) -> dict[str, float]:
    return dict(zip(cluster.resources, cluster.rows[workload].cost.tolist(), strict=True))


def test_unlike_nodes_agree_on_what_a_workload_costs():
    cluster = merge_all(honest_reports(np.random.default_rng(1), 100))
    for workload, (cpu, memory) in TRUTH.items():
        assert cost_of(cluster, workload) == pytest.approx({"cpu": cpu, "memory": memory}, rel=0.02)
        assert cluster.rows[workload].nodes == 100


LIES = [
    {
        "workloads": [WorkloadCost(workload, (1.0, 1.0), (0.0, 0.0), 10**6, 1e9) for workload in TRUTH],
        "sizes": (1e18, 1e18),
    },
    {"workloads": [WorkloadCost(workload, (0.0, 0.0), (0.0, 0.0), 10**6, 1e9) for workload in TRUTH]},
    {
        "workloads": [WorkloadCost(workload, (1.0,), (1.0,), 10**6, 1e9) for workload in TRUTH],
        "resources": ("cpu",),
        "sizes": (1e18,),
    },
    {
        "workloads": [WorkloadCost(workload, (1.0, 1.0), (1.0, 1.0), 10**6, 1e9) for workload in TRUTH],
        "resources": ("memory", "network"),
        "sizes": (1e-6, 1e18),
    },
    {"workloads": [WorkloadCost(f"junk/{i}", (1.0, 1.0), (1.0, 1.0), 10**6, 1e9) for i in range(32)]},
    {"workloads": [WorkloadCost(workload, (NAN, NAN), (NAN, NAN), 10**6, 1e9) for workload in TRUTH]},
]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("pods", [1, None, 1000])
def test_one_liar_among_100_moves_a_cost_by_at_max_5_percent(lie, pods):
    honest = honest_reports(np.random.default_rng(2), 99, pods)
    before, after = merge_all(honest), merge_all([*honest, report("liar", contribution(**lie))])
    for workload in TRUTH:
        was, now = cost_of(before, workload), cost_of(after, workload)
        for resource in TWO:
            assert now[resource] == pytest.approx(was[resource], rel=0.05)
        assert all(math.isnan(cost) for resource, cost in now.items() if resource not in was)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seen", [(20, 20), (1, 50)])
def test_nor_where_a_workload_costs_more_on_some_nodes(ratio, seen):
    """Two generations of CPUs: the middle of the reports may be between the two, and a liar must not choose a side."""
    rng = np.random.default_rng(9)

    def reported(node: str, cost: float, pods: int) -> ReportedWorkloads:
        return report(node, contribution([WorkloadCost("k", (cost, 0.1), (0.01, 0.01), pods, 1.0)], (1.0, 1.0)))

    fast, slow = (
        [reported(f"n{i}", x * rng.normal(0.01, 0.0005), n) for i in range(99)]
        for x, n in zip((1, ratio), seen, strict=True)
    )
    liars = [reported("liar", cost, pods) for cost in (0.0, 0.01, 1e18) for pods in (0, 50)]
    for slower in range(100):
        honest = slow[:slower] + fast[slower:]
        cost = cost_of(merge_all(honest), "k")["cpu"]
        for liar in liars:
            assert cost_of(merge_all([*honest, liar]), "k")["cpu"] == pytest.approx(cost, rel=0.05)


@pytest.mark.parametrize("lie", [0.0, 1e18])
def test_two_nodes_outvote_a_third(lie):
    assert 1.0 <= middle_mean(np.array([1.0, 1.1, lie]), np.ones(3)) <= 1.1


amounts = st.floats(0, 1e18) | st.just(NAN)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(
    cost=st.lists(amounts, min_size=3, max_size=3),
    pods=st.integers(0, 10**6),
    names=st.permutations(["cpu", "memory", "network"]),
    sizes=st.lists(st.floats(1e-6, 1e18), min_size=3, max_size=3),
)
def test_whatever_one_of_100_claims(cost, pods, names, sizes):
    honest = honest_reports(np.random.default_rng(3), 99)
    workloads = [
        pb.WorkloadCost(workload=workload, cost=cost, spread=cost, pods_seen=pods, arrivals=1e9) for workload in TRUTH
    ]
    message = pb.Contribution(
        node="liar",
        wire=2,
        subspace=pb.Subspace(resources=names),
        workloads=packed(workloads),
        cost=pb.Cost(size=sizes),
        room=cost,
    )
    try:
        liar = wire.read_contribution(message.SerializeToString())[2]
    except Rejected:
        return
    before, after = merge_all(honest), merge_all([*honest, liar])
    for workload in TRUTH:
        was, now = cost_of(before, workload), cost_of(after, workload)
        assert {name: now[name] for name in TWO} == pytest.approx(was, rel=0.05)
        assert math.isnan(now.get("network", NAN))


def test_a_liar_with_resources_of_its_own_does_not_move_the_mean_cost_either():
    """Reproduced before: a set of resources nobody else had was its own median, and the mean went to 1e16."""
    cluster = Moments()
    space, alone = Subspace.of_batch([[0.3], [0.3]]), Subspace.of_batch([[0.3], [0.3], [0.3]])
    for i in range(99):
        cluster.put(f"n{i}", Contribution(TWO, space, 10, [0.1, 0.05], [400.0, 400.0], 3, [8.0, 16e9]))
    before = cluster.sums().mean_cost()[0]
    three = ("cpu", "gpu", "memory")
    cluster.put("liar", Contribution(three, alone, 10, [1.0] * 3, [1e12] * 3, 3, [1e18] * 3))
    sums = cluster.sums()
    after = dict(zip(sums.resources, sums.mean_cost()[0].tolist(), strict=True))
    assert [after["cpu"], after["memory"]] == pytest.approx(before.tolist(), rel=0.05)


def test_few_nodes_still_outvote_one():
    rng = np.random.default_rng(4)
    honest = honest_reports(rng, 3, pods=2)
    before, after = merge_all(honest), merge_all([*honest, report("liar", contribution(**LIES[0]))])
    for workload in TRUTH:
        assert cost_of(after, workload) == pytest.approx(cost_of(before, workload), rel=0.25)


def test_workloads_are_bounded_and_those_max_nodes_know_stay():
    junk = [
        report(f"junk{n}", contribution([WorkloadCost(f"junk/{n}-{i}", (0.1, 0.1), (0, 0), 9, 9.0) for i in range(32)]))
        for n in range(80)
    ]
    cluster = merge_all([*junk, *honest_reports(np.random.default_rng(5), 2)])
    assert len(cluster.rows) == MAX_WORKLOADS
    assert set(list(cluster.rows)[:3]) == set(TRUTH)


def test_several_aggregators_are_weighted_by_their_nodes():
    few, many = (merge_all(honest_reports(np.random.default_rng(seed), n)) for seed, n in ((6, 10), (7, 90)))
    both = combine([few, many])
    for workload in TRUTH:
        for name in TWO:
            expected = 0.1 * cost_of(few, workload)[name] + 0.9 * cost_of(many, workload)[name]
            assert cost_of(both, workload)[name] == pytest.approx(expected)
        assert both.rows[workload].nodes == 100


def test_aggregators_share_their_workloads_and_forget_them_with_the_peer():
    tables = [ContributionTable(name, Moments(), incarnation=i) for i, name in enumerate("ab")]
    rng = np.random.default_rng(8)
    for i, table in enumerate(tables):
        raw = wire.write_contribution(f"n{i}", contribution(honest_workloads(rng, (8.0, 16e9))), 1)
        table.apply(*wire.read_contribution(raw), raw, 0.0)
        list(table.merge_workloads())
    a, b = tables
    a.apply_partial(*wire.read_partial(b.partial("a").SerializeToString()), 0.0)
    assert True in list(a.merge_workloads())
    assert a.workloads.rows["shop/web"].nodes == 2 and a.own_workloads.rows["shop/web"].nodes == 1
    a.expire(100.0, 1000.0, 5.0)
    assert True in list(a.merge_workloads())
    assert a.workloads.rows["shop/web"].nodes == 1


def aggregator_with(*contributions: tuple[str, Contribution]) -> Aggregator:
    one = Aggregator(AggregatorSettings(), "test")
    for node, given_ in contributions:
        answer = pb.View.FromString(one.exchange(wire.write_contribution(node, given_, time.time_ns()), None))
        assert not answer.rejected
    one.merge()
    for is_new in one.table.merge_workloads():
        if is_new:
            one.render_workloads()
    return one


def test_a_node_that_never_ran_a_workload_learns_its_cost_in_its_own_unit():
    one = aggregator_with(("a", contribution([WorkloadCost("shop/web", (1 / 16, 0.01), (0.01, 0.001), 5, 2.0)])))
    raw = one.exchange(wire.write_contribution("new", contribution([], (32.0, 64e9)), time.time_ns()), None)
    about, _ = wire.read_view(raw, ("memory", "cpu", "io"), (64e9, 32.0, 1.0), 0.0)
    (workload,) = wire_workloads.to_node(
        wire_workloads.read_table(about.workloads), ("memory", "cpu", "io"), (64e9, 32.0, 1.0)
    )
    assert workload.workload == "shop/web" and workload.pods_seen == 5
    assert workload.cost[:2] == pytest.approx((0.0025, 1 / 64)) and math.isnan(workload.cost[2])


def test_workloads_travel_only_when_they_changed():
    given_ = contribution([WorkloadCost("shop/web", (0.1, 0.1), (0.0, 0.0), 5, 2.0)])
    one = aggregator_with(("a", given_))
    seen = wire.HeldView(one.table.incarnation, one.table.sequence, one.table.workloads_sequence)
    raw = wire.write_contribution("a", given_, time.time_ns(), seen=seen)
    answer = pb.View.FromString(one.exchange(raw, None))
    assert answer.unchanged and not answer.HasField("workloads") and not answer.HasField("subspace")
    older = wire.HeldView(seen.incarnation, seen.sequence, seen.workloads - 1)
    answer = pb.View.FromString(one.exchange(wire.write_contribution("a", given_, time.time_ns(), seen=older), None))
    assert answer.unchanged and answer.workloads.workloads[0].workload == "shop/web"


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (pb.WorkloadCost(workload="", cost=[1, 1], spread=[0, 0]), "workload"),
        (pb.WorkloadCost(workload="a\nb", cost=[1, 1], spread=[0, 0]), "workload"),
        (pb.WorkloadCost(workload="x" * 254, cost=[1, 1], spread=[0, 0]), "workload"),
        (pb.WorkloadCost(workload="k", cost=[1], spread=[0, 0]), "size"),
        (pb.WorkloadCost(workload="k", cost=[-1, 1], spread=[0, 0]), "cost of a workload"),
        (pb.WorkloadCost(workload="k", cost=[math.inf, 1], spread=[0, 0]), "cost of a workload"),
        (pb.WorkloadCost(workload="k", cost=[1, 1], spread=[0, -1]), "spread of a workload"),
        (pb.WorkloadCost(workload="k", cost=[1, 1], spread=[0, 0], arrivals=NAN), "workload"),
    ],
)
def test_malformed_workloads_are_rejected_by_name(workload, reason):
    message = pb.Contribution(node="n", wire=2, subspace=pb.Subspace(resources=TWO), workloads=packed([workload]))
    with pytest.raises(Rejected) as error:
        wire.read_contribution(message.SerializeToString())
    assert error.value.reason == reason


def test_too_many_workloads_and_the_same_twice():
    many = [pb.WorkloadCost(workload=f"k{i}", cost=[1, 1], spread=[0, 0]) for i in range(33)]
    for workloads in (many, [many[0], many[0]]):
        message = pb.Contribution(node="n", wire=2, subspace=pb.Subspace(resources=TWO), workloads=packed(workloads))
        with pytest.raises(Rejected, match="size"):
            wire.read_contribution(message.SerializeToString())
    given_ = contribution([WorkloadCost(f"k{i}", (0.1, 0.1), (0.0, 0.0), 1, float(i)) for i in range(64)])
    names = report("n", given_).names
    assert len(names) == 32 and names[0] == "k63"  # those that arrive most are sent


@pytest.mark.parametrize(("fits", "limiting"), [([1, 1], [0, 0]), ([1], []), ([1], [2]), ([10**9], [0])])
def test_malformed_fits_are_rejected(fits, limiting):
    workloads = packed([pb.WorkloadCost(workload="k", cost=[1, 1], spread=[0, 0])])
    message = pb.Contribution(
        node="n", wire=2, subspace=pb.Subspace(resources=TWO), workloads=workloads, fits=fits, limiting=limiting
    )
    with pytest.raises(Rejected, match="fits"):
        wire.read_contribution(message.SerializeToString())


def test_the_same_workloads_are_read_once():
    one = aggregator_with(
        ("a", contribution([WorkloadCost("shop/web", (0.1, 0.1), (0.0, 0.0), 5, 2.0)], room=(0.5, 0.5)))
    )
    before = one.table.nodes["a"].workloads
    again = contribution([WorkloadCost("shop/web", (0.1, 0.1), (0.0, 0.0), 5, 2.0)], room=(0.4, 0.5))
    one.exchange(wire.write_contribution("a", again, time.time_ns()), None)
    after = one.table.nodes["a"].workloads
    assert after.table is before.table and after.room != before.room
    assert list(one.table.merge_workloads()) == []
