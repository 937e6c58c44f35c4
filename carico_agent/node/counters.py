"""The Pods' cgroup counters, read when a client or a plugin asks and not more often than configured."""

import asyncio
import time
from collections.abc import Callable, Mapping
from math import inf

from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node.pods.usage import PodUsage
from carico_agent.node.pods.watch import Runtime

UNUSED_S = 60.0
"""Files of Pods' cgroups are closed when no client has asked for their counters for so long [s]."""
READ_WITHIN_S = 2.0
"""Who asks over the socket gets the Pods without counters when they cannot be read in this time [s]. Reading those of
110 Pods takes 11 ms."""


class PodCounters:
    """`read` is for threads that may wait, `recent` for the event loop."""

    def __init__(self, runtime: Runtime, period_s: Callable[[], float], cost: OwnCost) -> None:
        """`period_s()`: counters at most this old are not read again."""
        self._runtime, self._period_s, self._cost = runtime, period_s, cost
        self._latest: tuple[float, Mapping[str, PodUsage]] = (-inf, {})
        self._workers = Workers("Pod counters", 1)
        self._reading: asyncio.Task[Mapping[str, PodUsage]] | None = None

    def read(self) -> Mapping[str, PodUsage]:
        """Counters by Pod. From any thread; waits for the kernel."""
        now_s = time.monotonic()
        if now_s - self._latest[0] >= self._period_s():
            with self._cost.timed("pod usage"):
                self._latest = (now_s, self._runtime.read_usage(now_s))
        return self._latest[1]

    async def recent(self) -> Mapping[str, PodUsage]:
        """The same for the event loop; empty when they cannot be read in time. All who ask meanwhile share one read."""
        if time.monotonic() - self._latest[0] < self._period_s():
            return self._latest[1]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._workers.run(self.read))
        done, _ = await asyncio.wait([self._reading], timeout=READ_WITHIN_S)
        return self._reading.result() if done else {}

    def tidy(self) -> None:
        """Close the files of Pods that ended, and all files when no client asks any more."""
        self._runtime.tidy_usage(unused=time.monotonic() - self._latest[0] > UNUSED_S)
