"""What the kernel says about each Pod of a simulated node: read in turns as the agent does, with 5 % of noise.

A reading is the Pod's demand (CPU time and waiting for it, over twice the cores) and its memory. Pods that have just
started are read after 1, 2 and 4 s, later every 5 s (carico_agent/node/pods/meter.py); until the first reading the Pod
is listed with unknown usage.
"""

from collections.abc import Sequence
from math import nan

import numpy as np

from carico_agent.core import PodSample
from lab.sim.cluster import RUNNING, SimulatedCluster

PERIOD_S = 5.0
FIRST_S = (1.0, 2.0, 4.0)
NOISE = 0.05


class SimulatedMeter:
    """The Pods of all nodes. `workloads` are the names of the Pod table's workloads."""

    def __init__(self, cluster: SimulatedCluster, workloads: Sequence[str]) -> None:
        self._cluster, self._workloads = cluster, list(workloads)
        self._rng = np.random.default_rng([cluster.n, len(cluster.pods), 14])  # leaves the cluster's own draws alone
        self._latest: dict[int, tuple[float, PodSample]] = {}  # Pod → when it is read again [s], its last reading

    def read(self, nodes: np.ndarray) -> dict[int, list[PodSample]]:
        """All Pods that run on these `nodes` (a mask), by node."""
        cluster = self._cluster
        running = cluster.live[cluster.phase[cluster.live] == RUNNING]
        running = running[nodes[cluster.node[running]]]
        found: dict[int, list[PodSample]] = {int(node): [] for node in np.flatnonzero(nodes)}
        for pod, node in zip(running.tolist(), cluster.node[running].tolist(), strict=True):
            found[node].append(self._sample(pod))
        return found

    def _sample(self, pod: int) -> PodSample:
        t, started_s = self._cluster.t, float(self._cluster.start_s[pod])
        due_s, sample = self._latest.get(pod, (started_s + FIRST_S[0], None))
        if sample is None or t >= due_s - 1e-9:
            usage = self._usage(pod) if t >= due_s - 1e-9 else (nan, nan)
            due_s = next((started_s + age_s for age_s in FIRST_S if started_s + age_s > t), t + PERIOD_S)
            sample = PodSample(str(pod), self._workloads[self._cluster.pods.workload[pod]], usage)
            self._latest[pod] = (due_s, sample)
        return sample

    def _usage(self, pod: int) -> tuple[float, float]:
        cluster, node = self._cluster, self._cluster.node[pod]
        grown = min(1.0, (cluster.t - float(cluster.start_s[pod])) / float(cluster.pods.ramp_s[pod]))
        demand, memory = np.maximum(0.0, self._rng.normal(1.0, NOISE, 2)).tolist()
        cpu = demand * float(cluster.pods.threads[pod]) / (2 * float(cluster.cores[node]))
        return cpu, memory * grown * float(cluster.pods.memory[pod]) / float(cluster.memory_mib[node])
