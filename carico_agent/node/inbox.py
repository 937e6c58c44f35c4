"""What the agent's loop has to do next: one queue, filled by the sampling thread, the runtime and the local API.

All that waits is taken at once, so that a burst of container events makes one Status and not one each.
"""

import asyncio
from enum import Enum

from carico_agent.node.pods.events import Event


class Notice(Enum):
    """What needs no more words than its name."""

    SECOND = "a second of samples waits in the queue"
    FOLLOWED = "a reader waits for the next status"
    RESERVED = "reservations have changed"
    ENDED = "the replayed trace has ended"


News = Event | Notice


class Inbox:
    """Many producers, one consumer. Made and read in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[News] = []
        self._arrived = asyncio.Event()

    def put(self, news: News) -> None:
        """In the event loop's thread."""
        self._waiting.append(news)
        self._arrived.set()

    def put_from_thread(self, news: News) -> None:
        """In any other thread. After the loop's end there is no reader, and it is dropped."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.put, news)

    async def get(self) -> list[News]:
        """All that has arrived, oldest first; waits for the first."""
        await self._arrived.wait()
        self._arrived.clear()
        news, self._waiting = self._waiting, []
        return news
