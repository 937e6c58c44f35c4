"""What federation is for: figures 4.6 and 4.7 of *CARICO*, and a node that has never run a Pod."""

import pytest

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.federation.contribution import Contribution

from .processes import aggregator, until
from .test_client import client, fast, sees

pytestmark = pytest.mark.asyncio(loop_scope="session")
TWO = ("cpu", "memory")
WEIGHT = 0.5


class Node:
    """A model fed with made-up telemetry; time runs as fast as it can."""

    def __init__(self, cores: int = 4, estimator: str = "resource-space") -> None:
        self.model = CapacityModel(TWO, ModelConfig(cores=cores, estimator=estimator))
        self.sizes = (2.0 * cores, 4.0 * cores)
        self.t = 0.0

    def run(self, cpu: float, memory: float, pods: int = 0, seconds: int = 60) -> None:
        for _ in range(seconds * 10):
            self.t += 0.1
            self.model.observe(self.t, (cpu, memory), pods=pods)

    def contribution(self) -> Contribution:
        cost, precision = self.model.local_cost
        return Contribution(TWO, self.model.subspace, 10, cost, precision, 0, self.sizes)

    def learn(self, view) -> None:
        self.model.merge(view.subspace, WEIGHT)
        cost, precision = view.cost_to_learn()
        self.model.learn_cost(cost, precision)


async def capacities(own: tuple[float, float], quiet: tuple[float, float], heavy: tuple[float, float]) -> list[float]:
    """The measured node's Capacity while its four peers are quiet, and after they turned heavy."""
    measured, *peers = [Node(estimator="paper-dual") for _ in range(5)]
    found = []
    async with aggregator() as server:
        settings = fast(server.address)
        for phase in (quiet, heavy):
            measured.run(*own)
            for peer in peers:
                peer.run(*phase)
            contributed = [node.contribution() for node in (measured, *peers)]
            others = [client(settings, f"peer{i}", peer.contribution) for i, peer in enumerate(peers)]
            async with (
                client(settings, "measured", measured.contribution) as one,
                others[0],
                others[1],
                others[2],
                others[3],
            ):
                await until(lambda: sees(one, 5, *contributed))  # noqa: B023
                measured.learn(one.view)
            measured.run(*own, seconds=2)
            found.append(measured.model.estimate().capacity)
    return found


@pytest.mark.long
async def test_figure_4_6_peers_turn_cpu_heavy_and_a_lightly_loaded_cpu_node_has_less_room():
    before, after = await capacities(own=(0.25, 0.1), quiet=(0.2, 0.1), heavy=(0.95, 0.15))
    assert after < 0.7 * before, (before, after)


@pytest.mark.long
async def test_figure_4_7_peers_turn_cpu_heavy_and_a_memory_heavy_node_has_more_room():
    before, after = await capacities(own=(0.05, 0.6), quiet=(0.05, 0.3), heavy=(0.95, 0.15))
    assert after > 1.2 * before, (before, after)


@pytest.mark.parametrize("cores", [4, 16])
async def test_a_node_that_never_ran_a_pod_knows_what_one_costs(cores):
    """Peers of 4 cores run Pods of 0.4 cores (5 % of usage 1 = 8 cores); the naive prior is one whole core each."""
    peers, new, alone = [Node(4) for _ in range(3)], Node(cores), Node(cores)
    for i, peer in enumerate(peers):
        for pods in (0, 3, 6 + i, 2, 8):
            peer.run(0.02 + 0.05 * pods, 0.1 + 0.02 * pods, pods=pods, seconds=20)
    for node in (new, alone):
        node.run(0.02, 0.1, pods=0, seconds=20)
    truth = (1 - 0.02) / (0.05 * 4 / cores)
    async with aggregator() as server:
        settings = fast(server.address)
        async with (
            client(settings, "a", peers[0].contribution),
            client(settings, "b", peers[1].contribution),
            client(settings, "c", peers[2].contribution),
            client(settings, "new", new.contribution) as one,
        ):
            await until(lambda: sees(one, 4))
            new.learn(one.view)
    new.run(0.02, 0.1, pods=0, seconds=2)
    federated, naive = new.model.estimate().pod_capacity, alone.model.estimate().pod_capacity
    print(f"{cores} cores: truth {truth:.1f}, federated {federated:.1f}, naive prior {naive:.1f}")
    assert federated == pytest.approx(truth, rel=0.25)
    assert abs(naive - truth) > 0.25 * truth
