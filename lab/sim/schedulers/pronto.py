"""PRONTO's reject signal (paper 2.3.8): spikes in the projections of centred telemetry close a node for now."""

import numpy as np

from lab.sim.cluster import SimulatedCluster
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.schedulers.kube import MAX_PODS
from lab.sim.workload import SimulatedWorkload

WINDOW = 50
FORGET = 0.9
DEVIATIONS = 2.0
THRESHOLD = 0.5


class Pronto(SimulatedScheduler):
    """Random among nodes that do not reject. The signal knows nothing of Pods on their way."""

    name = "PRONTO"

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        super().begin(cluster, workloads, rng)
        n = cluster.n
        self.mean = np.zeros((n, 3))
        self.moment = np.tile(np.eye(3) * 1e-6, (n, 1, 1))
        self.past: list[np.ndarray] = []
        self.reject = np.zeros(n, dtype=bool)
        self.count = np.zeros(n, dtype=np.int64)

    def tick(self) -> None:
        y = np.stack(self.cluster.telemetry(), axis=1)
        self.mean += 0.02 * (y - self.mean)
        centred = y - self.mean
        self.moment = FORGET * self.moment + (1 - FORGET) * centred[:, :, None] * centred[:, None, :]
        values, vectors = np.linalg.eigh(self.moment)
        projected = np.abs(np.einsum("ni,nij->nj", y, vectors))
        self.past = [*self.past[-WINDOW + 1 :], projected]
        window = np.stack(self.past)
        spikes = projected > window.mean(axis=0) + DEVIATIONS * window.std(axis=0) + 0.02
        weights = np.sqrt(np.maximum(values, 0))
        weights /= weights.sum(axis=1, keepdims=True) + 1e-12
        # "Reject-Job": the spikes, weighted by their singular values, exceed a threshold
        self.reject = (weights * spikes).sum(axis=1) > THRESHOLD

    def pick(self, pod: int) -> int | None:
        return self.best(np.zeros(self.cluster.n), ~self.reject & (self.count < MAX_PODS))

    def bound(self, pod: int, node: int) -> None:
        self.count[node] += 1

    def on_ended(self, pod: int, node: int) -> None:
        self.count[node] -= 1
