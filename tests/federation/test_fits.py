"""How many more Pods of a workload fit: what nodes report, and their room by the cost where they report nothing."""

import time

import pytest

from carico_agent.core import WorkloadCost
from carico_agent.core.subspace import Subspace
from carico_agent.federation import wire
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.fits import answer_fit
from carico_agent.federation.status import describe_fit, fetch_fit
from carico_agent.federation.workloads import WorkloadFit

from .processes import aggregator, until
from .test_client import client, fast
from .test_cluster_workloads import TWO, aggregator_with, contribution

WEB = WorkloadCost("shop/web", (1 / 16, 1 / 32), (0.0, 0.0), 5, 2.0)  # 0.5 cores and 0.5 GB of 8 and 16


def nodes_of(one):
    return [(name, record.workloads) for name, record in one.table.nodes.items()]


def test_reported_counted_and_unknown():
    one = aggregator_with(
        ("reports", contribution([WEB], room=(0.9, 0.9), fits={"shop/web": WorkloadFit(3, "memory")})),
        ("counts", contribution([], sizes=(16.0, 16e9), room=(0.5, 0.25))),  # 8 cores: 16; 4 GB: 8
        ("full", contribution([], room=(0.05, 0.9))),  # 0.4 cores: 0
        ("unsure", contribution([], room=(float("nan"), 0.5))),  # only memory is known: 16
        ("silent", contribution([])),
    )
    fit = answer_fit("shop/web", nodes_of(one), one.table.workloads)
    assert fit.known and (fit.total, fit.nodes_fit, fit.nodes_asked, fit.nodes_silent) == (27, 3, 4, 1)
    assert [(limit.resource, limit.nodes) for limit in fit.limits] == [("memory", 3), ("cpu", 1)]
    assert [(n.node, n.fits) for n in fit.nodes] == [("unsure", 16), ("counts", 8), ("reports", 3), ("full", 0)]
    assert dict(zip(fit.resources, fit.cost.cost, strict=True)) == pytest.approx({"cpu": 0.5, "memory": 0.5e9})


def test_a_workload_nobody_has_seen():
    one = aggregator_with(("a", contribution([WEB], room=(0.5, 0.5))))
    fit = answer_fit("shop/other", nodes_of(one), one.table.workloads)
    assert not fit.known and fit.total == 0


def test_the_list_of_nodes_is_bounded():
    one = aggregator_with(*((f"n{i}", contribution([WEB], room=(0.5, 0.5))) for i in range(20)))
    fit = answer_fit("shop/web", nodes_of(one), one.table.workloads, max_nodes=5)
    assert len(fit.nodes) == 5 and fit.nodes_asked == 20 and fit.total == 160


def test_overdrawn_room_is_none():
    given = Contribution(TWO, Subspace.of_batch([[0.3], [0.3]]), room=(-0.2, 0.5), sizes=(8.0, 16.0))
    raw = wire.write_contribution("n", given, time.time_ns())
    assert wire.read_contribution(raw)[2].room == (0.0, 8.0)


@pytest.mark.asyncio(loop_scope="session")
async def test_over_the_wire():
    async with aggregator() as server:
        given = contribution([WEB], room=(0.5, 0.5))
        bystander = contribution([], room=(0.25, 0.5))
        async with client(fast(server.address), "a", given), client(fast(server.address), "b", bystander) as b:
            await until(lambda: b.view is not None and b.view.workloads)
            assert b.view.workloads[0].cost == pytest.approx(WEB.cost)

            async def both() -> bool:
                return (await fetch_fit(server.address, "shop/web"))["nodes_asked"] == 2

            await until(both)
            fit = await fetch_fit(server.address, "shop/web")
            assert describe_fit(fit) == "room for 12 more of shop/web on 2 of 2 nodes; limited by cpu on 2"
        assert "no node has seen" in describe_fit(await fetch_fit(server.address, "shop/other"))
