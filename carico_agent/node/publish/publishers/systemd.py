"""systemd: READY with the first status, WATCHDOG at the pace the unit asks for, STOPPING at the end."""

import os
import time
from collections.abc import Callable, Mapping
from math import inf

from carico_agent.lib.supervise.notify import Notifier
from carico_agent.node.publish.latest import IDLE_S, Wants
from carico_agent.node.publish.publisher import PublisherContext

PERIOD_S = 10.0
"""Between two notices where the unit has no WatchdogSec [s]."""
WATCHDOG_SHARE = 0.2
"""Of WatchdogSec between two notices: four may be lost."""


def period_s(watchdog_usec: str) -> float:
    """Between two notices, by what systemd puts into $WATCHDOG_USEC.

    >>> period_s("30000000"), period_s("600000000"), period_s("")
    (6.0, 10.0, 10.0)
    """
    usec = int(watchdog_usec) if watchdog_usec.isdigit() else 0
    return min(PERIOD_S, WATCHDOG_SHARE * usec / 1e6) if usec else PERIOD_S


class SystemdPublisher:
    name = "systemd"
    condition = "published"
    counters: Mapping[str, int] = {}

    def __init__(self, context: PublisherContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._latest, self._notifier, self._clock = context.latest, Notifier(), clock
        self._period_s = period_s(os.environ.get("WATCHDOG_USEC", ""))

    async def run(self) -> None:
        due_s = -inf
        wants = Wants.EVERY_SECOND if self._period_s < IDLE_S else Wants.NOW_AND_THEN
        async for status in self._latest.updates(wants):
            now_s = self._clock()
            if now_s < due_s:
                continue
            if due_s == -inf:
                self._notifier.ready()
            due_s = now_s + self._period_s
            self._notifier.alive(f"Pod-Capacity {status.pod_capacity} ({status.mode})")

    async def stop(self) -> None:
        self._notifier.stopping()


async def open_publisher(context: PublisherContext) -> SystemdPublisher | None:
    """None outside a systemd service."""
    return SystemdPublisher(context) if os.environ.get("NOTIFY_SOCKET") else None
