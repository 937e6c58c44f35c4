"""kube-scheduler's default: NodeResourcesFit (LeastAllocated) + NodeResourcesBalancedAllocation, by requests only."""

import numpy as np

from lab.sim.cluster import SimulatedCluster
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.workload import SimulatedWorkload

MAX_PODS = 110
DEFAULT_MCPU, DEFAULT_MIB = 100, 200
"""What scoring assumes of a Pod that asks for nothing (schedutil.DefaultMilliCPURequest, DefaultMemoryRequest)."""


class Kube(SimulatedScheduler):
    """`system_mcpu` is what the node's own Pods request. 0: in the paper 100m let 40 Pods onto a node of 4000m."""

    name = "kube-scheduler"

    def __init__(self, system_mcpu: float = 0.0) -> None:
        self.system_mcpu = system_mcpu

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        super().begin(cluster, workloads, rng)
        self.size = np.array([cluster.cores * 1000.0, cluster.memory_mib])
        self.used = np.zeros((2, cluster.n))  # for fitting
        self.used[0] = self.system_mcpu
        self.scored = self.used.copy()  # for scoring: Pods that ask for nothing count too
        self.pods = np.zeros(cluster.n, dtype=np.int64)
        self.wants = np.array([[k.request_mcpu, k.request_mib] for k in workloads], dtype=float)
        self.weighs = np.array(
            [[k.request_mcpu or DEFAULT_MCPU, k.request_mib or DEFAULT_MIB] for k in workloads], float
        )

    def fitting(self, pod: int) -> np.ndarray:
        want = self.wants[self.cluster.pods.workload[pod]][:, None]
        return ((self.used + want <= self.size + 1e-9).all(axis=0)) & (self.pods < MAX_PODS)

    def pick(self, pod: int) -> int | None:
        share = (self.scored + self.weighs[self.cluster.pods.workload[pod]][:, None]) / self.size
        least = np.floor((np.maximum(0, 1 - share) * 100).mean(axis=0))
        balanced = np.floor((1 - share.std(axis=0)) * 100)
        return self.best(least + balanced, self.fitting(pod))

    def bound(self, pod: int, node: int) -> None:
        self._add(pod, node, 1)

    def on_ended(self, pod: int, node: int) -> None:
        self._add(pod, node, -1)

    def _add(self, pod: int, node: int, sign: int) -> None:
        workload = self.cluster.pods.workload[pod]
        self.used[:, node] += sign * self.wants[workload]
        self.scored[:, node] += sign * self.weighs[workload]
        self.pods[node] += sign
