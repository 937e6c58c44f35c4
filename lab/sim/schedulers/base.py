"""What every simulated scheduler is: it sees starts and ends (late), and picks a node for a Pod."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from lab.sim.cluster import SimulatedCluster
from lab.sim.workload import SimulatedWorkload


class SimulatedScheduler(ABC):
    """One run's scheduler. `begin` once, `tick` every 100 ms, `pick` per Pod; the rest comes from the API server."""

    name: ClassVar[str]

    def begin(self, cluster: SimulatedCluster, workloads: list[SimulatedWorkload], rng: np.random.Generator) -> None:
        self.cluster, self.workloads, self.rng = cluster, workloads, rng

    def tick(self) -> None:
        """100 ms have passed."""
        return

    @abstractmethod
    def pick(self, pod: int) -> int | None:
        """The node for `pod`, or None if it has to wait."""

    def bound(self, pod: int, node: int) -> None:
        """The Pod was bound by this scheduler, right now."""
        return

    def on_started(self, pod: int, node: int) -> None:
        return

    def on_ended(self, pod: int, node: int) -> None:
        return

    def best(self, score: np.ndarray, fits: np.ndarray) -> int | None:
        """The fitting node with the highest score, ties at random as in kube-scheduler."""
        if not fits.any():
            return None
        masked = np.where(fits, score, -np.inf)
        top = np.flatnonzero(masked == masked.max())
        return int(top[0] if len(top) == 1 else self.rng.choice(top))
