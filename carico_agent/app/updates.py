"""New statuses onto the board: once a second, and at once when Pods or reservations change. Made when they are read."""

import asyncio
import time
from collections.abc import Callable

from carico_agent.publish.board import StatusBoard
from carico_agent.publish.status import Status
from carico_agent.supervise.cost import OwnCost


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
