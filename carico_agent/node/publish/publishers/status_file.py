"""The status in a file, replaced atomically at every update, for readers that want no socket."""

import asyncio
import logging
from pathlib import Path

from carico_agent.lib.supervise.files import replace_file
from carico_agent.lib.supervise.workers import WorkersBusy
from carico_agent.node.publish.publisher import PublisherContext

log = logging.getLogger(__name__)

CONFIGURED_S = 5.0
"""A file that the configuration names from now on is written within this long [s]."""


class StatusFilePublisher:
    """Writes in a worker thread: a slow disk delays no other publisher, and updates that come meanwhile are skipped."""

    name = "status_file"

    def __init__(self, context: PublisherContext) -> None:
        self._context = context
        self._trouble, self._writes = "", 0

    @property
    def condition(self) -> str:
        return self._trouble or ("published" if self._path else "off")

    @property
    def counters(self) -> dict[str, int]:
        return {"writes": self._writes}

    @property
    def _path(self) -> str:
        return self._context.settings().socket.status_file

    async def run(self) -> None:
        latest = self._context.latest
        while True:
            if not self._path:  # it may be configured while the agent runs
                await asyncio.sleep(CONFIGURED_S)
                continue
            seen = latest.sequence  # of what is written: a status that comes during the write is written after it
            if seen:
                await self._write(Path(self._path), latest.encoded() + b"\n")
            while seen == latest.sequence:
                await latest.changed()

    async def _write(self, path: Path, encoded: bytes) -> None:
        try:
            await self._context.disk.run(replace_file, path, encoded)
            self._writes, trouble = self._writes + 1, ""
        except (OSError, WorkersBusy) as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            log.warning("status file: %s", trouble)
        self._trouble = trouble

    async def stop(self) -> None:
        """The last status stays: its time and TTL say until when it was valid."""


async def open_publisher(context: PublisherContext) -> StatusFilePublisher:
    """Always: a file may be configured while the agent runs."""
    return StatusFilePublisher(context)
