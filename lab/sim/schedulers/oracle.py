"""An oracle that knows every Pod: its work, its threads and how long it takes to start. A bound."""

import numpy as np

from lab.sim.cluster import RUNNING, STARTING
from lab.sim.schedulers.base import SimulatedScheduler


class Oracle(SimulatedScheduler):
    """Binds a Pod so that it starts the moment its cores become free; prefers the node with most free cores then."""

    name = "oracle"

    def pick(self, pod: int) -> int | None:
        c = self.cluster
        begins_s = c.pods.startup_s[pod]
        live = c.live
        running = live[c.phase[live] == RUNNING]
        # alone on its cores a Pod runs at full speed, so it is still there then if more work is left than that
        stays = running[c.left[running] / c.pods.threads[running] > begins_s]
        starting = live[c.phase[live] == STARTING]
        there = np.concatenate([stays, starting])
        busy = np.bincount(c.node[there], c.pods.threads[there], c.n) + c.machine.base_cpu
        fill = np.bincount(c.node[live], c.pods.memory[live], c.n)
        memory_fits = fill + c.pods.memory[pod] <= (1 - c.machine.base_memory) * c.machine.memory_mib
        room = c.machine.cores + c.machine.base_cpu + 0.01 - busy - c.pods.threads[pod]
        return self.best(np.round(room, 6), (room >= 0) & memory_fits)
