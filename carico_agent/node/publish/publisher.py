"""Publisher: one way out for the status. The agent knows this protocol and no publisher by name.

A publisher is one file in the folder `publishers` with an `open_publisher(context)`; it is found there, not listed.
What can be configured about it is a class in `carico_agent/node/settings/`. It reads statuses from the latest (`async
for status in context.latest.updates()`), may answer on the local socket (`context.http.add`), and does what may block
with `context.disk`.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.net.http import HttpServer
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node.publish import publishers
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.settings import Settings


class Publisher(Protocol):
    """Carries the status to one consumer."""

    name: str

    @property
    def condition(self) -> str:
        """For humans, in a few words: how it is doing."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What it has done since the agent started, for /v1/self."""

    async def run(self) -> None:
        """Publish until cancelled. Failures end it; the supervisor starts it again. May return when it has no work."""

    async def stop(self) -> None:
        """The agent ends: take back what no agent will correct any more, and close."""


@runtime_checkable
class Measured(Protocol):
    """A publisher with metrics of its own."""

    def families(self) -> Iterable[Family]:
        """For /metrics."""


@runtime_checkable
class KnowsPods(Protocol):
    """A publisher that has this node's Pods from the API server."""

    def declared(self, uid: str) -> DeclaredPod | None:
        """What the Pod's object says; None: not known. May be asked from any thread."""


@dataclass(frozen=True, slots=True)
class PublisherContext:
    """What a publisher may use."""

    node: str
    latest: LatestStatus
    http: HttpServer
    """The local API; routes are added while publishers are opened."""
    settings: Callable[[], Settings]
    """Those in force now: some change when the configuration is read again."""
    families: Callable[[], Iterable[Family]]
    """Metrics of the agent itself and its plugins."""
    counted: Callable[[], Mapping[str, bool]]
    """UIDs of the Pods that run here → whether they are counted."""
    disk: Workers
    """Threads for what waits for a disk."""
    print_line: Callable[[str], None] | None = None
    """Where a line per update goes; None: the agent does not run in a terminal."""


Open = Callable[[PublisherContext], Awaitable[Publisher | None]]
"""None: the settings do not ask for it. What cannot work at all raises, and the agent does not start."""


def found() -> list[Open]:
    """`open_publisher` of every module in `publishers`."""
    names = [name for _, name, _ in pkgutil.iter_modules(publishers.__path__)]
    modules = [importlib.import_module(f"{publishers.__name__}.{name}") for name in names]
    return [module.open_publisher for module in modules]


async def open_all(context: PublisherContext) -> list[Publisher]:
    """All that the settings ask for. When one cannot be opened, those before it are stopped again."""
    opened: list[Publisher] = []
    async with AsyncExitStack() as undo:
        for open_publisher in found():
            publisher = await open_publisher(context)
            if publisher is not None:
                opened.append(publisher)
                undo.push_async_callback(publisher.stop)
        undo.pop_all()
    return opened
