"""What the nodes of the federation's benchmark send: contributions of real models under load that wanders.

Each trajectory is one node's CapacityModel over a few minutes: Pods come and go, each uses what it uses with some
noise, and the host's own load drifts. Twenty trajectories are enough; thousands of nodes play them from different
moments on. When a node sends is decided by the same ExchangeSchedule as in the agent.
"""

import numpy as np

from carico_agent.core import CapacityModel, ModelConfig, WorkloadCost
from carico_agent.federation import wire
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.exchange import ExchangeSchedule
from carico_agent.settings import FederationSettings

RESOURCES = ("cpu", "memory")
WORKLOADS = 40
WORKLOADS_PER_NODE = 8
POD = (0.045, 0.02)
"""What one Pod uses of an 8-core node."""


class WanderingLoad:
    """Usage and number of Pods of one node, ten times a second."""

    def __init__(self, seed: int, pods: bool = True) -> None:
        self._rng = np.random.default_rng(seed)
        self._pods = int(self._rng.integers(0, 12)) if pods else 0
        self._changes = pods
        self._base = np.array([0.05, 0.15])
        self._drift = np.zeros(2)

    def step(self) -> tuple[tuple[float, float], int, bool]:
        """Usage, Pods, and whether one has just come or gone: about every 20 s."""
        rng = self._rng
        churn = self._changes and rng.random() < 1 / 200
        if churn:
            self._pods = int(np.clip(self._pods + rng.choice((-1, 1)), 0, 14))
        # an Ornstein-Uhlenbeck walk: a standard deviation of 3 % of the node, forgotten within 30 s
        self._drift += -self._drift / 300 + rng.normal(0.0, 0.03 * np.sqrt(2 / 300), 2)
        usage = self._base + self._drift + self._pods * np.array(POD) + rng.normal(0.0, 0.01, 2)
        cpu, memory = np.clip(usage, 0.0, 1.0).tolist()
        return (cpu, memory), self._pods, bool(churn)


class ModelNode:
    """A node: its model, fed with wandering load."""

    def __init__(self, seed: int, pods: bool = True, cores: int = 8) -> None:
        self.model = CapacityModel(RESOURCES, ModelConfig(cores=cores))
        self.sizes = (2.0 * cores, 4e9 * cores)
        self._load = WanderingLoad(seed, pods)
        self._t = 0.0

    def run_second(self) -> None:
        for _ in range(10):
            self._t += 0.1
            usage, pods, churn = self._load.step()
            self.model.observe(self._t, usage, pods=pods, churn=churn)

    def contribution(self) -> Contribution:
        cost, precision = self.model.local_cost
        return Contribution(RESOURCES, self.model.subspace, 10, cost, precision, self.model.pods, self.sizes)


def trajectory(seed: int, seconds: int, warm_s: int = 60) -> list[Contribution]:
    """What one node would send in each second, workloads and room included."""
    node, rng = ModelNode(seed), np.random.default_rng(seed)
    for _ in range(warm_s):
        node.run_second()
    chosen = rng.choice(WORKLOADS, WORKLOADS_PER_NODE, replace=False)
    found = []
    for _ in range(seconds):
        node.run_second()
        plain = node.contribution()
        workloads = [_workload(int(number), rng) for number in chosen]
        room = tuple(max(0.0, 1.0 - usage) for usage in node.model.estimate().usage)
        found.append(
            Contribution(
                plain.resources,
                plain.subspace,
                plain.samples,
                plain.cost,
                plain.precision,
                plain.pods,
                plain.sizes,
                workloads,
                room,
            )
        )
    return found


def _workload(number: int, rng: np.random.Generator) -> WorkloadCost:
    cost = tuple(c * (0.5 + number / WORKLOADS) * (1 + 0.01 * rng.normal()) for c in POD)
    return WorkloadCost(f"team-{number % 7}/service-{number}", cost, tuple(0.1 * c for c in cost), 20, 3.0)


def trajectories(count: int = 20, seconds: int = 120) -> list[list[Contribution]]:
    """What `count` nodes would send in each second."""
    return [trajectory(seed, seconds) for seed in range(count)]


def plan(number: int, recorded: list[list[Contribution]], total: int, seconds: int) -> list[bytes]:
    """What node `number` of `total` sends when it connects and in each second afterwards, without what is written at
    the last moment (its name, the time, which view it holds); empty where the agent would not send.

    Why beforehand: deciding and writing this takes longer than sending it, and would take the CPU time away from the
    aggregator that is measured. Nodes do not beat in step: a node's heartbeat runs from its own start.
    """
    settings = FederationSettings()
    schedule = ExchangeSchedule(settings.period_s, settings.heartbeat_s, settings.tolerance)
    schedule.nodes = total
    track, offset = recorded[number % len(recorded)], number // len(recorded)
    found = []
    for second in range(-(number % round(settings.heartbeat_s)), seconds):
        given = track[(second + offset) % len(track)]
        due = schedule.is_due(given, float(second))
        if due:
            given = schedule.with_sent_workloads(given)
            schedule.on_sent(given, float(second))
        if second >= 0:
            found.append(wire.write_contribution("", given, 0) if due else b"")
    return [wire.write_contribution("", track[offset % len(track)], 0), *found]


def plans(nodes: int, seconds: int) -> list[list[bytes]]:
    """The plans of all nodes; those that would be the same are one."""
    recorded = trajectories()
    different = len(recorded) * len(recorded[0])
    made = [plan(number, recorded, nodes, seconds) for number in range(min(nodes, different))]
    return [made[number % different] for number in range(nodes)]
