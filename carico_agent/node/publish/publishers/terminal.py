"""One line per update for the user who started the agent in a terminal."""

from collections.abc import Callable, Mapping

from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.publisher import PublisherContext


class TerminalPublisher:
    name = "terminal"
    condition = "published"
    counters: Mapping[str, int] = {}

    def __init__(self, latest: LatestStatus, print_line: Callable[[str], None]) -> None:
        self._latest, self._print_line = latest, print_line

    async def run(self) -> None:
        async for status in self._latest.updates():
            self._print_line(human_line(status))

    async def stop(self) -> None:
        return


async def open_publisher(context: PublisherContext) -> TerminalPublisher | None:
    """None with --quiet and in a service."""
    return TerminalPublisher(context.latest, context.print_line) if context.print_line else None
