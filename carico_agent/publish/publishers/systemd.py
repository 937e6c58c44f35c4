"""systemd: READY with the first status, WATCHDOG with every one, STOPPING at the end."""

import os
from collections.abc import Mapping

from carico_agent.publish.publisher import PublisherContext
from carico_agent.supervise.notify import Notifier


class SystemdPublisher:
    name = "systemd"
    condition = "published"
    counters: Mapping[str, int] = {}

    def __init__(self, context: PublisherContext) -> None:
        self._board, self._notifier = context.board, Notifier()

    async def run(self) -> None:
        ready = False
        async for status in self._board.updates():
            if not ready:
                self._notifier.ready()
                ready = True
            self._notifier.alive(f"Pod-Capacity {status.pod_capacity} ({status.mode})")

    async def stop(self) -> None:
        self._notifier.stopping()


async def open_publisher(context: PublisherContext) -> SystemdPublisher | None:
    """None outside a systemd service."""
    return SystemdPublisher(context) if os.environ.get("NOTIFY_SOCKET") else None
