"""What one or two nodes say about a workload: a real aggregator, real clients, and the model of a node that never ran
it."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from carico_agent.core import CapacityModel, ModelConfig, WorkloadCost
from carico_agent.core.subspace import Subspace
from carico_agent.core.workloads import MAX_COST
from carico_agent.federation.client import FederationClient
from carico_agent.federation.contribution import Contribution, GlobalView

from .processes import aggregator, until
from .test_client import client, fast

pytestmark = pytest.mark.asyncio(loop_scope="session")
TWO = ("cpu", "memory")
CORES = 8.0
SIZES = (CORES, 16e9)
SPACE = Subspace.of_batch(np.full((2, 1), 0.1))


def reporting(cores: float) -> Contribution:
    """A node that has seen many Pods of shop/web, each of that many cores and 100 MB."""
    cost = (cores / CORES, 1e8 / SIZES[1])
    workloads = [WorkloadCost("shop/web", cost, (0.1 * cost[0], 0.1 * cost[1]), 50, 20.0)]
    return Contribution(TWO, SPACE, 10, sizes=SIZES, workloads=workloads)


def idle_model() -> CapacityModel:
    model = CapacityModel(TWO, ModelConfig(cores=4))
    for tick in range(50):
        model.observe(0.1 * tick, (0.1, 0.1), pods=0)
        model.observe_pods(0.1 * tick, [])
    return model


async def learned(*cores: float) -> CapacityModel:
    """The model of a node after it has heard these reporters."""
    model = idle_model()

    def on_view(view: GlobalView) -> None:
        model.learn_workloads(view.workloads)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(aggregator())
        settings = fast(server.address)
        for number, each in enumerate(cores):
            await stack.enter_async_context(client(settings, f"reporter{number}", reporting(each)))
        own = Contribution(TWO, SPACE, 10, sizes=SIZES)
        new = FederationClient(settings, "new", TWO, lambda: own, on_view)
        running = asyncio.create_task(new.run())
        stack.callback(running.cancel)
        await until(lambda: new.view is not None and len(new.view.workloads) == 1 and new.view.nodes == len(cores) + 1)
        await asyncio.sleep(0.5)  # all reports are merged into the workloads
        await until(lambda: running.done() or len(model._measured.workloads.elsewhere) == 1)
        assert not running.done(), running.exception()
        assert new.condition.startswith("connected")
    return model


@pytest.mark.long
@pytest.mark.parametrize("lie", [4000.0, 1e6, 1e-9])
@pytest.mark.parametrize("liars", [1, 2])
async def test_they_widen_the_interval_and_decide_nothing(lie: float, liars: int) -> None:
    """Before, 4,000 cores made fits fall from 11 to 0.001, "measured", and at 1e6 cores the model raised while the
    status said connected."""
    model, before = await learned(*[lie] * liars), idle_model().estimate(workload="shop/web")
    found, following = model.estimate(workload="shop/web"), model.estimate()
    assert found.pod_capacity == pytest.approx(before.pod_capacity)
    assert found.mode == before.mode == "learning"
    told = 0.9 * CORES / min(lie, MAX_COST * CORES)
    assert found.low <= max(told, before.low) + 1e-3 and found.high >= min(told, before.high)
    assert following.pod_capacity == pytest.approx(idle_model().estimate().pod_capacity)


@pytest.mark.long
async def test_three_that_agree_decide() -> None:
    found = (await learned(0.5, 0.5, 0.5)).estimate(workload="shop/web")
    assert found.mode != "learning"
    assert found.pod_capacity == pytest.approx(0.9 * CORES / 0.5, rel=0.05)


@pytest.mark.long
async def test_one_liar_of_three_decides_nothing() -> None:
    found = (await learned(0.5, 0.5, 1e6)).estimate(workload="shop/web")
    assert found.pod_capacity == pytest.approx(0.9 * CORES / 0.5, rel=0.05)


async def test_a_lone_reporter_does_not_move_what_this_node_has_measured() -> None:
    """A quarter of a Pod's weight, times 1e6 cores, was more than all of its own evidence."""
    model = idle_model()
    own, told = (0.05, 0.01), WorkloadCost("shop/web", (500.0, 0.01), (50.0, 0.001), 50, 20.0, decides=False)
    workload = model._measured.workloads.find("shop/web", per_node=False)
    workload.past = [(5.0, cost, 1e-6) for cost in own]
    model.learn_workloads([told])
    assert workload.cost == pytest.approx(own, rel=0.05)
    assert workload.hint is told


async def test_what_it_learned_survives_a_restart() -> None:
    model = idle_model()
    model.learn_workloads([WorkloadCost("a", (0.1, 0.1), (0.1, 0.1), 5, 1.0, decides=False)])
    again = CapacityModel.from_state(model.state())
    assert [cost.decides for cost in again._measured.workloads.elsewhere.values()] == [False]
