"""What was read of Pods, as the model wants it: one sample per Pod, in shares of the node. In the thread that feeds the
model."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

from carico_agent.core import PodSample
from carico_agent.node.pods.demand import Demand
from carico_agent.node.pods.meter import PodReading
from carico_agent.node.pods.pods import Pod
from carico_agent.node.sampling import PodMeasurements


class PodTurn(NamedTuple):
    """What one tick has to say of Pods: who runs, and those whose turn it was."""

    pods: Mapping[str, Pod]
    """Replaced when Pods come or go, never changed."""
    readings: Sequence[PodReading]
    due: bool
    """An update is: all Pods, as they were measured last, are wanted."""


class Measurements:
    """The latest sample of every Pod: cpu as a share of twice the cores, memory of MemTotal. NaN: not measured (yet).

    A Pod that was not read again is the same object again: the core counts readings by that.
    """

    def __init__(self, resources: Sequence[str], cores: int, memory_total_bytes: float) -> None:
        self._resources, self._cores, self._memory_bytes = tuple(resources), cores, memory_total_bytes
        self._pods: Mapping[str, Pod] = {}
        self._demand: dict[str, Demand] = {}
        self._samples: dict[str, PodSample] = {}

    def take(self, turn: PodTurn) -> PodMeasurements | None:
        """All Pods, when an update is due or Pods have come or gone."""
        changed = turn.pods is not self._pods
        for reading in turn.readings:
            pod = reading.pod
            if pod.counts:
                found = self._demand[pod.key] = reading.demand()
                self._samples[pod.key] = self._sample(pod, found)
        if changed:
            self._change(turn.pods)
        return self._all() if turn.due or changed else None

    def _change(self, pods: Mapping[str, Pod]) -> None:
        """Other Pods than before. All that count are kept, in their order; no Pod is missed."""
        demand, samples = self._demand, self._samples
        self._demand = {key: demand[key] for key, pod in pods.items() if pod.counts and key in demand}
        self._samples = {}
        for key, pod in pods.items():
            if pod.counts:
                known = samples.get(key)
                if known is None or known.workload != pod.workload or known.per_node != pod.per_node:
                    known = self._sample(pod, demand.get(key))
                self._samples[key] = known
        self._pods = pods

    def _all(self) -> PodMeasurements | None:
        if self._samples and not self._demand:  # none is measured yet, or none can be: the node as a whole is known
            return None
        found = self._demand.values()
        used_cores = sum([one.cpu_usage_cores for one in found if one.cpu_usage_cores == one.cpu_usage_cores])
        throttled = sum([one.throttled_ratio for one in found if one.throttled_ratio == one.throttled_ratio])
        waited_cores = sum([one.waited_cores for one in found if one.waited_cores == one.waited_cores])
        return PodMeasurements(tuple(self._samples.values()), used_cores, throttled, waited_cores)

    def _sample(self, pod: Pod, found: Demand | None) -> PodSample:
        got_ratio = 1.0 if found is None else found.got_ratio
        return PodSample(pod.key, pod.workload, self._usage(found), pod.per_node, got_ratio, pod.service)

    def _usage(self, found: Demand | None) -> tuple[float, ...]:
        if found is None:
            return (nan,) * len(self._resources)
        cpu = found.cpu_cores / (2 * self._cores)
        memory = found.memory_bytes / self._memory_bytes if self._memory_bytes > 0 else nan
        if self._resources == ("cpu", "memory"):
            return (cpu, memory)
        shares = {"cpu": cpu, "memory": memory, "io": found.io_ratio}
        return tuple([shares.get(name, nan) for name in self._resources])
