"""One line per update for whoever started the agent in a terminal."""

from collections.abc import Callable, Mapping

from carico_agent.node.publish.board import StatusBoard
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.publisher import PublisherContext


class TerminalPublisher:
    name = "terminal"
    condition = "published"
    counters: Mapping[str, int] = {}

    def __init__(self, board: StatusBoard, print_line: Callable[[str], None]) -> None:
        self._board, self._print_line = board, print_line

    async def run(self) -> None:
        async for status in self._board.updates():
            self._print_line(human_line(status))

    async def stop(self) -> None:
        return


async def open_publisher(context: PublisherContext) -> TerminalPublisher | None:
    """None when nobody looks (--quiet, a service)."""
    return TerminalPublisher(context.board, context.print_line) if context.print_line else None
