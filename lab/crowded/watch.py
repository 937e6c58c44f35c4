"""The agent's own chain around some Pods, without the daemon: counters, demand, model. Ten ticks a second."""

import os
import time
from collections.abc import Mapping, Sequence

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.node.measurements import Measurements, PodTurn
from carico_agent.node.pipeline import Pipeline
from carico_agent.node.pods.demand import Demand
from carico_agent.node.pods.meter import Open, PodMeters
from carico_agent.node.pods.pods import Pod
from carico_agent.node.sampling import NodeReader, Root, TraceRow

CORES = os.cpu_count() or 1
MEMORY_BYTES = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
RESOURCES = ("cpu", "memory")
TICK_S = 0.1
UPDATE_TICKS = 5
"""Ticks between two updates of the model."""


class NodeWatch:
    """Some Pods, from their first second on. `period_s`: time between two readings of one [s]."""

    def __init__(self, pods: Mapping[str, Pod], open_pod: Open, period_s: float, config: ModelConfig) -> None:
        self._pods = pods
        self._meters = PodMeters(open_pod, period_s, max_tick_s=float("inf"))
        self._measurements = Measurements(RESOURCES, CORES, MEMORY_BYTES)
        self._pipeline = Pipeline(CapacityModel(RESOURCES, config))
        self._reader = NodeReader(Root("/"))
        self._tick = 0
        self.demands: list[Demand] = []
        """Of all Pods, in the order in which they were read."""

    def start_empty(self, t: float) -> None:
        """A node without Pods comes first: then these have arrived while the agent looked."""
        self._feed(t, {})
        self._feed(t + 0.01, {})

    def tick(self, t: float) -> None:
        self._feed(t, self._pods)

    def _feed(self, t: float, pods: Mapping[str, Pod]) -> None:
        self._tick += 1
        readings = self._meters.tick(t, pods)
        self.demands += [reading.demand() for reading in readings]
        measured = self._measurements.take(PodTurn(pods, readings, self._tick % UPDATE_TICKS == 0))
        self._pipeline.step(TraceRow(self._reader.read(t), len(pods), False, measured))

    def cost_of(self, workload: str) -> tuple[float, float]:
        """What a Pod of this workload costs and the standard deviation of that [cores]; NaN until it is known."""
        workloads = self._pipeline.model.estimate().workloads
        found = next((one for one in workloads if one.workload == workload), None)
        if found is None:
            return float("nan"), float("nan")
        return found.cost[0] * 2 * CORES, found.cost_sd[0] * 2 * CORES

    def close(self) -> None:
        self._meters.close()
        self._reader.close()


def follow(watches: Sequence[NodeWatch], seconds: float) -> None:
    due_s = time.monotonic()
    until_s = due_s + seconds
    while due_s < until_s:
        for watch in watches:
            watch.tick(time.monotonic())
        due_s += TICK_S
        time.sleep(max(due_s - time.monotonic(), 0.0))
