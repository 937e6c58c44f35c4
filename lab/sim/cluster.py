"""The machines: processor sharing, memory, container starts and stops, and what the kernel says about it all.

One step is 100 ms. Vectorised over Pods and nodes; nothing here knows about schedulers or agents.

CPU: all runnable threads of a node share its cores equally, without loss. Utilisation is demand over cores up to 1. The
kernel's "some" pressure is, per CPU, whether somebody waits there; with d runnable threads spread over c CPUs that
is a share (d − c)/c of them, up to 1. So the mean of both is linear up to twice the cores: the measured table in
lab/experiments/calibration.py, which tests/lab/test_calibration.py holds this file against.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.sim.workload import DrawnPods

STEP_S = 0.1
WAITING, STARTING, RUNNING, DONE = range(4)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """What every node is like. Defaults: the paper's virtual machines (5.1)."""

    cores: int = 4
    memory_mib: float = 8192.0
    base_cpu: float = 0.03
    """CPUs that the system itself keeps busy."""
    base_memory: float = 0.12
    start_threads: float = 1.0
    stop_threads: float = 0.5
    spike_s: float = 0.2
    """A container start or stop occupies that many CPUs for this long (paper 4.2.2: about 200 ms)."""
    noise: float = 0.015
    """Standard deviation of one 100 ms reading of utilisation and of pressure, away from 0 and 1."""


class SimulatedCluster:
    """State of all nodes and Pods. `step` advances 100 ms and returns which Pods started, ended and were killed."""

    def __init__(
        self,
        nodes: int,
        machine: Machine,
        pods: DrawnPods,
        rng: np.random.Generator,
        sizes: tuple[float, ...] = (),
    ) -> None:
        """`sizes`: each node as a multiple of `machine`; none: all are like it."""
        self.n, self.machine, self.pods, self.rng = nodes, machine, pods, rng
        times = np.array(sizes) if sizes else np.ones(nodes)
        self.cores, self.memory_mib = machine.cores * times, machine.memory_mib * times
        self.t = 0.0
        count = len(pods)
        self.phase = np.full(count, WAITING, dtype=np.int8)
        self.node = np.full(count, -1)
        self.bound_s, self.start_s, self.end_s = (np.full(count, np.nan) for _ in range(3))
        self.left = pods.work.copy()
        self.running = np.zeros(nodes, dtype=np.int64)
        self.assigned = np.zeros(nodes, dtype=np.int64)
        self.demand = np.full(nodes, machine.base_cpu)
        self.memory = np.full(nodes, machine.base_memory)
        self.kills = 0
        self.live = np.zeros(0, dtype=np.int64)  # Pods starting or running
        self._spikes: list[tuple[float, NDArray[np.int64], float]] = []
        self.churn_until_s = np.zeros(nodes)

    def bind(self, pod: int, node: int) -> None:
        self.phase[pod], self.node[pod] = STARTING, node
        self.bound_s[pod] = self.t
        self.start_s[pod] = self.t + self.pods.startup_s[pod]
        self.assigned[node] += 1
        self.live = np.append(self.live, pod)

    def step(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        self.t += STEP_S
        live = self.live
        starting = live[self.phase[live] == STARTING]
        started = starting[self.start_s[starting] <= self.t]
        self.phase[started] = RUNNING
        np.add.at(self.running, self.node[started], 1)
        self._spike(self.node[started], self.machine.start_threads)
        running = live[self.phase[live] == RUNNING]
        where, threads = self.node[running], self.pods.threads[running]
        self.demand = self.machine.base_cpu + np.bincount(where, threads, self.n) + self._spiking()
        # processor sharing: everybody gets min(1, cores/demand) of what he wants
        share = np.minimum(1.0, self.cores / self.demand)
        rate = threads * share[where]
        over = self.left[running] <= rate * STEP_S
        ended = running[over]
        self.end_s[ended] = self.t - STEP_S + self.left[ended] / rate[over]
        self.left[running] -= rate * STEP_S
        self._leave(ended, DONE)
        killed = self._use_memory(running[self.phase[running] == RUNNING])
        return started, ended, killed

    def _leave(self, gone: NDArray[np.int64], phase: int) -> None:
        if not len(gone):
            return
        self.phase[gone] = phase
        np.add.at(self.running, self.node[gone], -1)
        np.add.at(self.assigned, self.node[gone], -1)
        self._spike(self.node[gone], self.machine.stop_threads)
        self.live = self.live[~np.isin(self.live, gone)]

    def _use_memory(self, running: NDArray[np.int64]) -> NDArray[np.int64]:
        """Memory fills up over a Pod's first seconds; a node that runs out kills its newest Pod, which starts anew."""
        grown = np.minimum(1.0, (self.t - self.start_s[running]) / self.pods.ramp_s[running])
        used = np.bincount(self.node[running], grown * self.pods.memory[running], self.n)
        self.memory = self.machine.base_memory + used / self.memory_mib
        killed = []
        for node in np.flatnonzero(self.memory > 1.0):
            here = running[self.node[running] == node]
            killed.append(here[np.argmax(self.start_s[here])])
        gone = np.array(killed, dtype=np.int64)
        self._leave(gone, WAITING)
        self.left[gone] = self.pods.work[gone]
        self.kills += len(gone)
        return gone

    def _spike(self, nodes: NDArray[np.int64], threads: float) -> None:
        if len(nodes):
            self._spikes.append((self.t + self.machine.spike_s, np.bincount(nodes, minlength=self.n), threads))
            self.churn_until_s[nodes] = self.t + self.machine.spike_s

    def _spiking(self) -> Array:
        self._spikes = [spike for spike in self._spikes if spike[0] > self.t + 1e-9]
        total = np.zeros(self.n)
        for _, counts, threads in self._spikes:
            total += counts * threads
        return total

    def telemetry(self) -> tuple[Array, Array, Array]:
        """Utilisation, cpu pressure ("some") and memory use per node, as the kernel would report the last 100 ms."""
        m = self.machine
        noise = self.rng.normal(0.0, m.noise, (2, self.n))
        utilisation = np.minimum(1.0, self.demand / self.cores)
        utilisation = np.where(utilisation < 1, np.clip(utilisation + noise[0] * np.sqrt(utilisation), 0, 1), 1.0)
        pressure = np.clip((self.demand - self.cores) / self.cores, 0, 1)
        inside = (pressure > 0) & (pressure < 1)
        pressure = np.where(inside, np.clip(pressure + 2 * noise[1], 0, 1), pressure)
        return utilisation, pressure, np.clip(self.memory, 0, 1)
