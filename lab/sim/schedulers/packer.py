"""carico with any policy of the extender on nodes of different sizes: requests as the API server has them."""

from typing import Any

import numpy as np

from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.placement.lifecycle import PodEvent
from carico_agent.extender.placement.place import Place
from carico_agent.extender.policy import Policy
from lab.sim.cluster import SimulatedCluster
from lab.sim.schedulers.carico import Carico
from lab.sim.schedulers.kube import DEFAULT_MCPU, DEFAULT_MIB
from lab.sim.workload import SimulatedWorkload

MIB = 1024.0**2


class Packer(Carico):
    """As Carico, with what the packing policies look at."""

    def __init__(self, policy: Policy[Any]) -> None:
        super().__init__(policy=policy)
        self.name = policy.name  # type: ignore[misc]

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        super().begin(cluster, workloads, rng)
        for state, cores, mib in zip(self.states, cluster.cores.tolist(), cluster.memory_mib.tolist(), strict=True):
            state.cpu, state.memory, state.prior_places = cores, mib * MIB, 2.0 * cores
            self.table.put(state)
        self._pods = [
            PendingPod(
                "",
                self.template(workload),
                cpu=(workload.request_mcpu or DEFAULT_MCPU) / 1000,
                memory=(workload.request_mib or DEFAULT_MIB) * MIB,
                requested=workload.request_mcpu > 0,
            )
            for workload in workloads
        ]

    def _apply(self, event: PodEvent, pod: int, node: int) -> None:
        own = self._pods[self.cluster.pods.workload[pod]]
        place = Place(str(node), own.workload, cpu=own.cpu, memory=own.memory, requested=own.requested)
        self.ledger.apply(event, str(pod), self.cluster.t, place)
        self._refresh(node)
