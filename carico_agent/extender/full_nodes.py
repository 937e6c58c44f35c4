"""An opt-in taint on nodes whose room is gone: `carico.dev/full:PreferNoSchedule`.

It is for Pods that ask neither for the resource nor an extender: kube-scheduler then prefers other nodes for them, and
a Pod that the descheduler has evicted does not come back to the node that it left. Nothing is ever refused by it.

A node is tainted when no Pod has fitted for `after_s`, and the taint goes when two have fitted for `until_s`: a number
that moves by one Pod does not make it flap. The taint goes at once when the number is no longer valid, and when the
extender that leads stops. An extender that was killed leaves it; the next one that leads judges every taint it finds,
so none outlives its reason for longer than that. `carico kube remove` takes it away, too.

Why the leading extender writes it, and not each agent: only a living process can end what a dead one has left, and an
agent's token then needs no right to change the spec of a Node.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.node_marks import NodeMarks, read_marks
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.node_taint import FULL, set_taint
from carico_agent.lib.net.times import boottime_s

log = logging.getLogger(__name__)

ROUND_S = 2.0
FULL_BELOW, ROOMY_FROM = 1.0, 2.0
"""Pods that fit: tainted below the first, no longer from the second."""


@dataclass(frozen=True, slots=True)
class TaintTimes:
    """[s]"""

    after_s: float = 60.0
    """A node has been full for this long when it is tainted."""
    until_s: float = 30.0
    """It has had room for this long when the taint goes."""


class FullNodes:
    """`run` works while `leads` says so; `clear` takes all taints away."""

    def __init__(self, client: KubeClient, cluster: Cluster, leads: Callable[[], bool], times: TaintTimes) -> None:
        self._client, self._cluster, self._leads, self._times = client, cluster, leads, times
        self.health = Health("taints of full nodes")
        self.marks = NodeMarks(client, self.health)
        self._since_s: dict[str, float] = {}  # by node: since when its taint has been wrong

    @property
    def tainted(self) -> list[str]:
        return [name for name, node in self.marks.nodes.items() if any(one.key == FULL for one in node.taints)]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.marks.watch.run())
            group.create_task(self._rounds())

    async def _rounds(self) -> None:
        await self.marks.watch.synced.wait()
        while True:
            await asyncio.sleep(ROUND_S)
            if not (self._leads() and self._cluster.synced and self._cluster.watches.open()):
                self._since_s.clear()  # what is not seen is not judged
                continue
            try:
                await self.round(boottime_s())
                self.health.good("taints")
            except KubeError as error:
                self.health.bad("taints", error)

    async def round(self, now_s: float) -> None:
        """Write the taints that have been wrong for long enough."""
        nodes, tainted = self._cluster.table.all(), set(self.tainted)
        valid, room = now_s - nodes.published_s <= nodes.ttl_s, np.nan_to_num(nodes.available())
        for name, is_valid, fits in zip(nodes.names(), valid.tolist(), room.tolist(), strict=True):
            if name in tainted:
                due_s = self._for_s(name, not is_valid or fits >= ROOMY_FROM, now_s)
                if due_s >= (self._times.until_s if is_valid else 0.0):
                    await self._write(name, False)
            elif self._for_s(name, is_valid and fits < FULL_BELOW, now_s) >= self._times.after_s:
                await self._write(name, True)

    def _for_s(self, name: str, wrong: bool, now_s: float) -> float:
        """For how long the taint, or its absence, has been wrong [s]; below 0: it is right."""
        if not wrong:
            self._since_s.pop(name, None)
            return -1.0
        return now_s - self._since_s.setdefault(name, now_s)

    async def clear(self) -> None:
        """Take all taints away, as far as this succeeds."""
        for name in self.tainted if self._leads() else ():
            await self._write(name, False)

    async def _write(self, name: str, full: bool) -> None:
        self._since_s.pop(name, None)
        if (node := await set_taint(self._client, name, full)) is not None:
            self.marks.changed(False, read_marks(node))
            log.info("%s: %s", name, f"no room, tainted {FULL}:PreferNoSchedule" if full else f"taint {FULL} removed")
