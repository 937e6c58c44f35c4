"""show a live view of this node: what fits, workloads, Pods, the last minutes

Keys: ? shows them all; q quits, tab changes between workloads and Pods, / filters, enter shows the Pods of a workload,
a, c, m, n, f and p sort. NO_COLOR=1 switches colours off. Without a terminal, or with TERM=dumb: one line per update.

examples:
  carico top
  carico top --once
  carico top | tee log
"""

import argparse
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from carico_agent.command import add_config, add_socket, ask_configured, complain
from carico_agent.node.commands._choice import Choice, keys_of, press
from carico_agent.node.commands._pods import PodRates, ScreenPod
from carico_agent.node.commands._screen import Past, ScreenView, page_rows, screen, table_of, whole
from carico_agent.node.commands._style import colours_wanted, paint, printable
from carico_agent.node.commands._terminal import END, Terminal
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.status import Status, from_json

HISTORY = 900
"""Updates kept for the lines of the last minutes: as many as the agent keeps."""
ONCE_COLUMNS, ONCE_UPDATES = 120, 3


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_socket(parser)
    parser.add_argument("--once", action="store_true", help="print one view and exit")


def run(given: argparse.Namespace) -> int:
    agent = ask_configured(given)
    if agent is None:
        return 2
    try:
        if given.once:
            return once(agent)
        return live(agent) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else lines(agent)
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
    return 1


def once(agent: AgentClient) -> int:
    """One view, as soon as it is known what Pods use: that is what lies between two readings."""
    rates, view = PodRates(), None
    columns = Terminal.size()[0] if sys.stdout.isatty() else ONCE_COLUMNS
    for body in islice(agent.watch(), ONCE_UPDATES):
        rows = rates.rows(agent.pods())
        view = ScreenView(from_json(body), float(body["age_s"]), pods=rows)
        if all(row.cores is not None for row in rows):
            break
    if view is None:
        return 1
    coloured = sys.stdout.isatty() and colours_wanted(os.environ)
    print("\n".join(paint(line, columns - 1, coloured).rstrip() for line in whole(view, columns)))
    return 0


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


class LastMinutes:
    """Begins with what the agent remembers, and grows by one value per update."""

    def __init__(self, agent: AgentClient) -> None:
        body = agent.request("GET", "/v1/history")
        rows = zip(body["time_s"], body["pod_capacity"], body["usage"].get("cpu", ()), strict=False)
        self._rows = deque(((t, fits or 0.0, cpu or 0.0) for t, fits, cpu in rows), maxlen=HISTORY)

    def add(self, status: Status) -> None:
        self._rows.append((time.time(), status.pod_capacity or 0.0, status.usage.get("cpu") or 0.0))

    def past(self) -> Past:
        if not self._rows:
            return Past()
        times_s, fits, cpu = zip(*self._rows, strict=True)
        return Past(fits, cpu, max(0.0, times_s[-1] - times_s[0]))


def live(agent: AgentClient) -> int:
    minutes = LastMinutes(agent)  # no agent answers: say so on the screen that stays
    with Terminal() as terminal:
        ended = follow(terminal, agent, minutes)
    if ended:
        complain(ended)
    return 1 if ended else 0


def follow(terminal: Terminal, agent: AgentClient, minutes: LastMinutes) -> str:
    """Draw until q is pressed; or the reason why there is nothing more to show."""
    feed, coloured = Feed(agent, terminal), colours_wanted(os.environ)
    feed.start()
    view: ScreenView | None = None
    choice = Choice()
    while True:
        for key in keys_of(terminal.wait()):
            if key == END or (key == "q" and not choice.typing):
                return ""
            if view is not None:
                choice = _pressed(view, choice, key, terminal)
        while not feed.queue.empty():
            update = feed.queue.get()
            if isinstance(update, str):
                return update
            minutes.add(update.status)
            view = ScreenView(update.status, update.age_s, minutes.past(), update.pods)
        if view is not None:
            columns, rows = terminal.size()
            shown = screen(replace(view, choice=choice), columns, rows)
            terminal.draw([paint(line, columns - 1, coloured) for line in shown])


def _pressed(view: ScreenView, choice: Choice, key: str, terminal: Terminal) -> Choice:
    view = replace(view, choice=choice)
    return press(choice, key, table_of(view).names, page_rows(view, *terminal.size()))
