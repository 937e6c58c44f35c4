"""What happened to containers, kept for local readers (`/v1/events`).

A ring of the newest events and a bounded queue per subscriber: a slow reader loses its oldest events and learns how
many, the agent never waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from carico_agent.lib.net.times import rfc3339

RING = 512
QUEUE = 256


@dataclass(frozen=True, slots=True)
class Event:
    """One container event, with the Pod it belongs to and the count it led to."""

    time_s: float
    """Wall clock of the runtime that reported it [s since 1970]."""
    t: float
    """Monotonic clock of the agent when it arrived [s]."""
    topic: str
    namespace: str = ""
    container_id: str = ""
    pod: str = ""
    """Key of the Pod in `Runtime.pods`; empty when it belongs to none (yet)."""
    pod_name: str = ""
    pod_namespace: str = ""
    count: int = 0
    """Pods that count after this event."""
    churn: bool = False
    """Whether it opened the churn window."""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """RFC 3339, microseconds, UTC.

        >>> Event(time_s=0.25, t=0.0, topic="/tasks/start").time
        '1970-01-01T00:00:00.250000Z'
        """
        return rfc3339(self.time_s, "microseconds")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; empty fields are left out."""
        row = {
            "time": self.time,
            "topic": self.topic,
            "namespace": self.namespace,
            "container_id": self.container_id,
            "pod": self.pod,
            "pod_name": self.pod_name,
            "pod_namespace": self.pod_namespace,
        }
        return {**{k: v for k, v in row.items() if v}, "count": self.count, "churn": self.churn, **self.detail}


class Subscription:
    """One reader's queue. Use as a context manager; `async for` gives events, `dropped` what was lost so far."""

    def __init__(self, log: "EventLog", size: int) -> None:
        self.dropped = 0
        self._log = log
        self._queue: deque[Event] = deque(maxlen=size)
        self._wake = asyncio.Event()

    def put(self, event: Event) -> None:
        if len(self._queue) == self._queue.maxlen:
            self.dropped += 1
        self._queue.append(event)
        self._wake.set()

    async def get(self) -> Event:
        while not self._queue:
            self._wake.clear()
            await self._wake.wait()
        return self._queue.popleft()

    def take_dropped(self) -> int:
        """How many were lost since the last call; the reader says so in its stream."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.get()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._log.unsubscribe(self)


class EventLog:
    """The newest events and who listens. Belongs to the event loop; not for other threads."""

    def __init__(self, ring: int = RING) -> None:
        self.total = 0
        self._ring: deque[Event] = deque(maxlen=ring)
        self._subscriptions: set[Subscription] = set()

    def append(self, event: Event) -> None:
        self.total += 1
        self._ring.append(event)
        for subscription in self._subscriptions:
            subscription.put(event)

    def recent(self, count: int = RING) -> list[Event]:
        """The newest events, oldest first."""
        return list(self._ring)[-count:] if count > 0 else []

    def subscribe(self, size: int = QUEUE, replay: int = 0) -> Subscription:
        """A queue of at most `size` events, beginning with the newest `replay` ones."""
        subscription = Subscription(self, size)
        for event in self.recent(replay):
            subscription.put(event)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
