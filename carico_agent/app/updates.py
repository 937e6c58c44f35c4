"""New statuses onto the board: once a second, and at once when Pods or reservations change."""

import asyncio
import time
from collections.abc import Callable

from carico_agent.publish.board import StatusBoard
from carico_agent.publish.status import Status
from carico_agent.supervise.cost import OwnCost


class StatusUpdates:
    """`make()` gives the status of now, None while there is none."""

    def __init__(self, board: StatusBoard, make: Callable[[], Status | None], cost: OwnCost) -> None:
        self._board, self._make, self._cost = board, make, cost.stage("publish")
        self._scheduled = False

    def soon(self) -> None:
        """Publish once, however many changes come in this turn of the loop; not before the first regular one."""
        if not self._scheduled and self._board.sequence:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.now)

    def now(self) -> None:
        started_s = time.perf_counter()
        self._scheduled = False
        status = self._make()
        if status is not None:
            self._board.publish(status)
        self._cost.record(time.perf_counter() - started_s)
