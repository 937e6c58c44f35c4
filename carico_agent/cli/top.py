"""live view of this node: usage, Pods, Pod-Capacity

Press Ctrl-C to leave.

examples:
  carico top
  carico top --once
"""

import argparse
import shutil
import sys
from collections import deque
from collections.abc import Iterable

from carico_agent.cli._common import add_socket, ask, complain
from carico_agent.cli.status import headline, number
from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.publish.status import Status, from_json

SPARKS = " ▁▂▃▄▅▆▇█"
CLEAR, HOME, ERASE_LINE, HIDE, SHOW = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[?25l", "\x1b[?25h"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--once", action="store_true", help="print one view and leave")


def run(given: argparse.Namespace) -> int:
    history: deque[float] = deque(maxlen=240)
    live = sys.stdout.isatty() and not given.once
    try:
        if live:
            sys.stdout.write(CLEAR + HIDE)
        for body in ask(given).watch():
            status = from_json(body)
            history.append(status.pod_capacity or 0.0)
            lines = view(status, float(body["age_s"]), history, shutil.get_terminal_size().columns)
            print(HOME + "\n".join(line + ERASE_LINE for line in lines) if live else "\n".join(lines), flush=True)
            if given.once:
                return 0
        complain("the agent stopped")
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
    finally:
        if live:
            sys.stdout.write(SHOW)
    return 1


def view(status: Status, age_s: float, history: Iterable[float], columns: int) -> list[str]:
    """The screen as lines."""
    width = max(10, min(60, columns - 30))
    lines = [f"carico  {status.node}  {status.time}  #{status.sequence}", ""]
    for name, value in status.usage.items():
        mark = " ◄ limits" if status.limiting == name else ""
        lines.append(f"{name:>10} {bar(value, width)} {'   ?' if value is None else f'{value:6.1%}'}{mark}")
    lines += ["", f"      Pods {status.pods}   slots {number(status.slots)}   {status.runtime}", ""]
    recent = list(history)[-width:]
    lines += [f"           {spark(recent)}", f"           {headline(status, age_s)}", ""]
    return [line[: columns - 1] for line in lines]


def bar(value: float | None, width: int) -> str:
    """
    >>> bar(0.5, 4)
    '██░░'
    """
    full = round((value or 0.0) * width)
    return "█" * full + "░" * (width - full)


def spark(values: list[float]) -> str:
    """Recent values as a line of blocks, from 0 to the largest.

    >>> spark([0.0, 4.0, 8.0])
    ' ▄█'
    """
    most = max(values, default=0.0) or 1.0
    return "".join(SPARKS[round(value / most * (len(SPARKS) - 1))] for value in values)
