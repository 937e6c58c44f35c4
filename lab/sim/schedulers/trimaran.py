"""Trimaran's TargetLoadPacking: best fit around a target utilisation, on metrics that are half a minute old."""

import numpy as np

from lab.sim.cluster import SimulatedCluster
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import SimulatedWorkload

TARGET = 40.0
MULTIPLIER = 1.5
"""targetUtilization and defaultRequestsMultiplier of scheduler-plugins/pkg/trimaran/targetloadpacking."""


class TargetLoadPacking(Kube):
    """`period_s`: metrics-server averages and the load-watcher fetches them once per period [s]."""

    name = "Trimaran TLP"

    def __init__(self, period_s: float = 30.0) -> None:
        super().__init__()
        self.period_s = period_s

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        super().begin(cluster, workloads, rng)
        self.load = np.zeros(cluster.n)  # by the last fetch [% of the node]
        self.expected = np.zeros(cluster.n)  # Pods assigned since, by their requests [% of the node]
        self._sum, self._count, self._next_s = np.zeros(cluster.n), 0, self.period_s

    def tick(self) -> None:
        self._sum += np.minimum(1.0, self.cluster.demand / self.cluster.machine.cores)
        self._count += 1
        if self.cluster.t >= self._next_s:
            self.load = 100 * self._sum / self._count
            self.expected = np.zeros(self.cluster.n)
            self._sum, self._count = np.zeros(self.cluster.n), 0
            self._next_s += self.period_s

    def pick(self, pod: int) -> int | None:
        x = self.load + self.expected + self._percent(pod)
        rising = (100 - TARGET) * x / TARGET + TARGET
        falling = TARGET * (100 - x) / (100 - TARGET)
        score = np.where(x <= TARGET, rising, np.where(x <= 100, falling, 0.0))
        return self.best(np.round(score), self.fitting(pod))

    def bound(self, pod: int, node: int) -> None:
        super().bound(pod, node)
        self.expected[node] += self._percent(pod)

    def _percent(self, pod: int) -> float:
        request = self.wants[self.cluster.pods.workload[pod]][0]
        return 100 * MULTIPLIER * request / (1000 * self.cluster.machine.cores)
