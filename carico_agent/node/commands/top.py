"""show a live view of this node: what fits, workloads, Pods, the last minutes

Keys: q quits; a, c, m and n sort by arrivals, cpu, memory and name. Without a terminal: one line per update.

examples:
  carico top
  carico top --once
  carico top | tee log
"""

import argparse
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain
from carico_agent.node.commands._screen import SORTS, PodRates, ScreenPod, ScreenView, printable, screen
from carico_agent.node.commands._terminal import Terminal
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.status import Status, from_json

HISTORY = 600
"""Updates kept for the line of the last minutes: ten minutes at one a second."""
ONCE_COLUMNS, ONCE_UPDATES = 120, 3


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--once", action="store_true", help="print one view and exit")


def run(given: argparse.Namespace) -> int:
    agent = ask(given)
    try:
        if given.once:
            return once(agent)
        return live(agent) if sys.stdout.isatty() else lines(agent)
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
    return 1


def once(agent: AgentClient) -> int:
    """One view, as soon as it is known what Pods use: that is what lies between two readings."""
    rates, shown = PodRates(), list[str]()
    columns = Terminal.size()[0] if sys.stdout.isatty() else ONCE_COLUMNS
    for body in islice(agent.watch(), ONCE_UPDATES):
        rows = rates.rows(agent.pods())
        *shown, _keys = screen(ScreenView(from_json(body), float(body["age_s"]), pods=rows), columns, rows=10_000)
        if all(row.cores is not None for row in rows):
            break
    print("\n".join(shown))
    return 0 if shown else 1


def lines(agent: AgentClient) -> int:
    for body in agent.watch():
        print(printable(human_line(from_json(body))), flush=True)
    complain("the agent stopped")
    return 1


@dataclass(frozen=True, slots=True)
class Update:
    status: Status
    age_s: float
    pods: Sequence[ScreenPod]


class Feed(threading.Thread):
    """Follows the agent beside the keyboard: puts updates, then the reason why there are no more, into `queue`."""

    def __init__(self, agent: AgentClient, terminal: Terminal) -> None:
        super().__init__(name="feed", daemon=True)
        self.queue: queue.SimpleQueue[Update | str] = queue.SimpleQueue()
        self._agent, self._terminal = agent, terminal

    def run(self) -> None:
        rates, ended = PodRates(), "the agent stopped"
        try:
            for body in self._agent.watch():
                self.queue.put(Update(from_json(body), float(body["age_s"]), rates.rows(self._agent.pods())))
                self._terminal.wake()
        except (AgentError, AgentUnavailable) as error:
            ended = str(error)
        self.queue.put(ended)
        self._terminal.wake()


def live(agent: AgentClient) -> int:
    agent.status()  # no agent answers: say so on the screen that stays
    with Terminal() as terminal:
        ended = follow(terminal, agent)
    if ended:
        complain(ended)
    return 1 if ended else 0


def follow(terminal: Terminal, agent: AgentClient) -> str:
    """Draw until q is pressed; or the reason why there is nothing more to show."""
    feed = Feed(agent, terminal)
    feed.start()
    history: deque[tuple[float, float]] = deque(maxlen=HISTORY)
    view: ScreenView | None = None
    sort = "a"
    while True:
        keys = terminal.wait()
        sort = next((key for key in reversed(keys) if key in SORTS), sort)
        if "q" in keys:
            return ""
        while not feed.queue.empty():
            update = feed.queue.get()
            if isinstance(update, str):
                return update
            history.append((time.monotonic(), update.status.pod_capacity or 0.0))
            view = ScreenView(update.status, update.age_s, pods=update.pods)
        if view is not None:
            values, span_s = [value for _, value in history], history[-1][0] - history[0][0]
            terminal.draw(screen(replace(view, sort=sort, history=values, span_s=span_s), *terminal.size()))
