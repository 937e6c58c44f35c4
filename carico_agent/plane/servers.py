"""Several API servers behind one address: a window for each, and which of them counts."""

from dataclasses import dataclass

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.plane.components import API, load_of
from carico_agent.plane.scrape import scrape_api
from carico_agent.plane.window import Scrape, Window, between

MAX_TRIES = 4
"""Readings in one look, until an API server answers that answered before."""
MAX_AGE = 10
"""A server that did not answer in so many looks is forgotten."""
RECENT = 3
"""A window of this many looks ago still counts when the busiest server is chosen."""


@dataclass(frozen=True, slots=True)
class ServerReading:
    """What one API server said last, and its window if it had answered before."""

    reading: Scrape
    window: Window | None
    round: int
    """In which round of readings that was."""


class ApiServers:
    """Reads whichever server answers; knows the others from earlier rounds."""

    def __init__(self) -> None:
        self._servers: dict[float, ServerReading] = {}
        self._round = 0

    @property
    def known(self) -> bool:
        return bool(self._servers)

    @property
    def count(self) -> int:
        return len(self._servers)

    async def read(self, client: KubeClient, missing: dict[str, str]) -> ServerReading | None:
        """One look; None, and why in `missing`, when no server answers. A server that was never seen has no window, and
        the next connection may reach another one: so that the second look has a window, whichever answers."""
        self._round += 1
        found: ServerReading | None = None
        for _ in range(MAX_TRIES):
            try:
                found = self.take(await scrape_api(client))
            except KubeError as error:
                if found is None:
                    missing[API] = str(error)
                break
            finally:
                await client.close()  # a connection that is kept would ask the same server every time
            if found.window is not None or self._round == 1:
                break
        return found

    def take(self, reading: Scrape) -> ServerReading:
        """Remember a reading, and forget servers that are gone."""
        started_s = reading.start_s or 0.0
        old = self._servers.get(started_s)
        new = ServerReading(reading, between(old.reading, reading) if old else None, self._round)
        self._servers = {
            **{key: one for key, one in self._servers.items() if self._round - one.round <= MAX_AGE},
            started_s: new,
        }
        return new

    def worst(self, fresh: ServerReading | None) -> Window | None:
        """The window of the server that used most cores, of those that answered lately."""
        lately = [one.window for one in self._servers.values() if one.window and self._round - one.round < RECENT]
        loads = {at: load_of(API, window) for at, window in enumerate(lately)}
        busy = {at: load.cores for at, load in loads.items() if load is not None}
        if fresh is None or fresh.window is None or not busy:
            return None  # after a restart the windows of the process that ended are history
        return lately[max(busy, key=lambda at: busy[at])]
