"""New statuses onto the board: once a second while anybody would read them, and at once when Pods or reservations
change. Made when they are read."""

import asyncio
import time
from collections.abc import Callable
from math import inf

from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.pulse import Pulse
from carico_agent.node.publish.board import UPDATE_S, StatusBoard
from carico_agent.node.publish.status import Status


class StatusUpdates:
    """`make()` gives the status of now, once `ready()`."""

    def __init__(
        self, board: StatusBoard, ready: Callable[[], bool], make: Callable[[], Status], cost: OwnCost
    ) -> None:
        self._board, self._ready, self._make, self._cost = board, ready, make, cost.stage("publish")
        self._scheduled = False

    def soon(self) -> None:
        """Publish once, however many changes come in this turn of the loop; not before the first regular one."""
        if not self._scheduled and self._board.sequence:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.now)

    def now(self) -> None:
        self._scheduled = False
        if self._ready():
            self._board.publish(self._timed)

    def _timed(self) -> Status:
        started_s = time.perf_counter()
        status = self._make()
        self._cost.record(time.perf_counter() - started_s)
        return status


class UpdateDemand:
    """Whether anybody would do something with a new status. Asked by the sampling thread, once a second."""

    def __init__(self, board: StatusBoard, pulse: Pulse, plugins_run: Callable[[], bool]) -> None:
        self._board, self._pulse, self._plugins_run = board, pulse, plugins_run
        self._due_s = -inf
        self.pods_changed = True
        """Pods have started or ended since somebody looked."""

    def wants(self) -> bool:
        if not self._board.sequence or self._board.is_followed or self.pods_changed or self._plugins_run():
            return True
        return time.monotonic() >= min(self._due_s, self._pulse.wanted_s)

    def met(self) -> None:
        """There is a new status."""
        self._due_s = time.monotonic() + UPDATE_S - 0.5
