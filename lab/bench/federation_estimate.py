"""What exchanging on change costs a node's estimate, against exchanging every second: simulated, no network.

The same nodes under the same load twice, with an aggregator each: one gets every node's contribution and gives its view
every second, the other as the daemons do (ExchangeSchedule, pushed views, heartbeat).
"""

from dataclasses import dataclass

import numpy as np

from carico_agent.federation.exchange import ExchangeSchedule, view_moved
from carico_agent.federation.moments import Moments, Sums
from carico_agent.federation.server import push_period_s
from carico_agent.settings import FederationSettings
from lab.bench.federation_nodes import RESOURCES, ModelNode

WARM_S = 60


@dataclass
class Difference:
    nodes: int
    seconds: int
    max_pods: float
    p99_pods: float
    mean_pods: float
    exchanges_per_s: float
    """Of one node, on change."""
    pushes_per_s: float
    """To one node."""


class ExchangingCluster:
    """Nodes and their aggregator; `always`: everybody exchanges every second."""

    def __init__(self, nodes: int, always: bool) -> None:
        settings = FederationSettings()
        self.nodes = [ModelNode(seed, pods=seed % 5 != 0) for seed in range(nodes)]  # one in five never ran a Pod
        self._weight, self._always = settings.weight, always
        self._moments = Moments()
        self._pushed, self._push_after_s = self._moments.sums(), 0.0
        self._schedules = [
            ExchangeSchedule(settings.period_s, settings.heartbeat_s, settings.tolerance) for _ in self.nodes
        ]
        for schedule in self._schedules:
            schedule.nodes = nodes
        self.exchanges = self.pushes = 0

    def run_second(self, now_s: float) -> None:
        senders = []
        for number, node in enumerate(self.nodes):
            node.run_second()
            given = node.contribution()
            # nodes do not beat in step: a node's heartbeat runs from its own start
            if self._always or self._schedules[number].is_due(given, now_s + number % 5 * 0.01):
                self._moments.put(str(number), given)
                self._schedules[number].on_sent(given, now_s)
                senders.append(node)
        self.exchanges += len(senders)
        sums = self._moments.sums()
        if not self._always and now_s >= self._push_after_s and view_moved(self._pushed, sums):
            self._push_after_s = now_s + push_period_s(len(self.nodes))
            self._pushed, senders = sums, self.nodes
            self.pushes += len(self.nodes)
        for node in senders if sums.nodes else ():
            self._learn(node, sums)

    def _learn(self, node: ModelNode, sums: Sums) -> None:
        cost, precision = sums.mean_cost()
        sizes = np.array(node.sizes)
        known = precision > 0
        node.model.merge(sums.subspace(), self._weight)
        node.model.learn_cost(
            np.clip(np.where(known, cost / sizes, 0.0), 0.0, 1.0).tolist(),
            np.minimum(np.where(known, precision * sizes**2, 0.0), 1e12).tolist(),
        )

    def estimates(self) -> list[float]:
        return [node.model.estimate().pod_capacity for node in self.nodes]


def compare(nodes: int = 40, seconds: int = 240) -> Difference:
    assert tuple(sorted(RESOURCES)) == RESOURCES  # the order of Sums
    exact, lazy = ExchangingCluster(nodes, always=True), ExchangingCluster(nodes, always=False)
    found = []
    for second in range(WARM_S + seconds):
        for cluster in (exact, lazy):
            cluster.run_second(float(second))
        if second == WARM_S:
            lazy.exchanges = lazy.pushes = 0
        if second >= WARM_S:
            found.append(np.abs(np.subtract(exact.estimates(), lazy.estimates())))
    off = np.array(found)
    per_s = nodes * seconds
    return Difference(
        nodes,
        seconds,
        float(off.max()),
        float(np.percentile(off, 99)),
        float(off.mean()),
        lazy.exchanges / per_s,
        lazy.pushes / per_s,
    )
