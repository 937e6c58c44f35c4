"""What `carico top` shows, as lines: pure functions of a status, Pods, the user's choice and the terminal's size."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import ceil

from carico_agent.node.commands._choice import HELP, TABLES, Choice
from carico_agent.node.commands._pods import ScreenPod
from carico_agent.node.commands._rows import ScreenTable, pod_table, workload_table
from carico_agent.node.commands._style import Line, by_share, length, plain
from carico_agent.node.commands.status import headline, number, reserved_sentence
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.words import takes, unit_sentence

SPARKS = " ▁▂▃▄▅▆▇█"
TABLE_ROWS = 6
"""Lines that the table has at least, where the terminal has so many: the lines above it make room."""


@dataclass(frozen=True, slots=True)
class Past:
    """The last minutes, oldest first."""

    fits: Sequence[float] = ()
    """Pod-Capacity."""
    cpu: Sequence[float] = ()
    """Share of the CPU that is wanted."""
    span_s: float = 0.0
    """The time that they cover [s]."""


@dataclass(frozen=True, slots=True)
class ScreenView:
    status: Status
    age_s: float
    past: Past = field(default_factory=Past)
    pods: Sequence[ScreenPod] = ()
    choice: Choice = field(default_factory=Choice)


def table_of(view: ScreenView) -> ScreenTable:
    """The rows that the user has chosen to see."""
    if view.choice.table == "Pods":
        return pod_table(view.pods, view.choice)
    return workload_table(view.status, view.choice)


def page_rows(view: ScreenView, columns: int, rows: int) -> int:
    """Rows of the table that a terminal of this size shows."""
    return max(1, rows - len(_above(view, columns, rows)) - 3)


def screen(view: ScreenView, columns: int, rows: int) -> list[Line]:
    """The lines of a terminal of this size. The table scrolls; in a small terminal there is less above it."""
    if view.choice.help:
        return [*_help(columns)[: rows - 1], plain("any key: back", "dim")]
    table, page = table_of(view), page_rows(view, columns, rows)
    heading, *body = table.lines(columns - 1, view.choice)
    first = _first(view.choice.row, len(body), page)
    tabs = _tabs(view, len(body), first, page)
    shown = body[first : first + page] or [plain(f"  {_nothing(view)}", "dim")]
    lines = [*_above(view, columns, rows), tabs, heading, *shown]
    lines += [plain("")] * (rows - 1 - len(lines))
    return [*lines[: rows - 1], _keys(view.choice, columns)]


def whole(view: ScreenView, columns: int) -> list[Line]:
    """All of it below each other, for `--once`: both tables, nothing selected."""
    lines: list[Line] = [*_top(view, columns), *_bars(view, columns), *_summary(view.status)]
    for table in (workload_table(view.status, view.choice), pod_table(view.pods, view.choice)):
        if table.names:
            lines += [plain(""), *table.lines(columns - 1)]
    return lines


def _above(view: ScreenView, columns: int, rows: int) -> list[Line]:
    """What stands above the table: what matters most, as far as the terminal has lines for it."""
    lines = _top(view, columns)
    for more in (_bars(view, columns), _summary(view.status), [plain("")]):
        if len(lines) + len(more) + 3 + TABLE_ROWS > rows:
            break
        lines += more
    return lines[: max(1, rows - 4)]


def _top(view: ScreenView, columns: int) -> list[Line]:
    status = view.status
    title: list[Line] = [[("carico ", "title"), (f" {status.node}  {status.time[:19]}  #{status.sequence}", "dim")]]
    said = textwrap.wrap(headline(status, view.age_s), max(20, columns - 1), break_on_hyphens=False)
    style = "full" if view.age_s > status.ttl_s else "title"
    return title + [plain(line, style) for line in said]


def _bars(view: ScreenView, columns: int) -> list[Line]:
    status, width = view.status, max(8, min(60, columns - 32))
    lines: list[Line] = []
    for name, value in status.usage.items():
        mark = " ◄ limits" if status.limiting == name else ""
        amount = "   ?" if value is None else f"{value:6.1%}"
        host, pods, free = bar(value, width, status.host.get(name))
        style = by_share(value, status.limits.get(name))
        lines.append([(f"{name:>8} ", ""), (host, "host"), (pods, style), (free, "dim"), (f" {amount}{mark}", style)])
    if host := takes(status.host, status.sizes):
        lines.append([(f"{'':8} ", ""), ("▓", "host"), (f" host {host}   █ Pods   ░ free", "dim")])
    if unit := unit_sentence(status):
        lines.append([(f"{'':8} {unit}", "dim")])
    return lines + _past(view.past, width)


def _past(past: Past, width: int) -> list[Line]:
    if not past.fits:
        return []
    ago = f"{past.span_s / 60:.0f} min" if past.span_s >= 90 else f"{past.span_s:.0f} s"
    most = max(past.fits)
    cpu, fits = spark(shrink(past.cpu, width), 1.0), spark(shrink(past.fits, width), most)
    return [
        [(f"{'cpu':>8} ", ""), (f"{cpu:{width}}", "history"), (f" last {ago}", "dim")],
        [(f"{'fits':>8} ", ""), (f"{fits:{width}}", "history"), (f" 0 to {most:.1f}, last {ago}", "dim")],
    ]


def _summary(status: Status) -> list[Line]:
    """Pods, reservations, and what jobs still need where any reports."""
    lines = [f"{status.pods} Pods, slots {number(status.slots)}   {status.runtime}"]
    if reserved := reserved_sentence(status):
        lines.append(f"reserved: {reserved}")
    work = status.work
    if work.jobs:
        unknown = f", {work.unknown} more without an estimate" if work.unknown else ""
        lines.append(
            f"work left: {work.total_s:.0f} s of CPU in {work.jobs} jobs, longest {work.longest_s:.0f} s{unknown}"
        )
    return [plain(line) for line in lines]


def _tabs(view: ScreenView, found: int, first: int, page: int) -> Line:
    """Both tables, the one that is shown in brackets; then what is chosen, and where in the table the screen is."""
    choice, parts = view.choice, list[tuple[str, str]]()
    for name in TABLES:
        shown = name == choice.table
        parts += [(f"[{name}]" if shown else f" {name} ", "title" if shown else "dim"), (" ", "")]
    if choice.workload is not None:
        parts.append((f"of {choice.workload} ", "title"))
    if choice.filter or choice.typing:
        parts.append((f"/{choice.filter} ", "title"))
    if found > page:
        parts.append((f"{first + 1}–{min(found, first + page)} of {found}", "dim"))
    return parts


def _nothing(view: ScreenView) -> str:
    if view.choice.filter:
        return f"nothing matches {view.choice.filter}; escape clears the filter"
    return "no Pods run here" if view.choice.table == "Pods" else "no workload is known yet"


def _keys(choice: Choice, columns: int) -> Line:
    if choice.typing:
        return plain(f"filter: {choice.filter}_   enter keep, escape clear")
    other = TABLES[choice.table == TABLES[0]]
    back = "  esc back" if choice.filter or choice.workload is not None else ""
    short: Line = [(f"q quit  ? help  / filter  tab {other}{back}", "dim")]
    long: Line = [
        *short,
        ("  enter Pods of it" if choice.table == "workloads" else "", "dim"),
        ("  acmnfp sort  r reverse", "dim"),
    ]
    return long if length(long) < columns else short


def _help(columns: int) -> list[Line]:
    wide = min(columns // 3, max(len(word) for word, _ in HELP))
    lines: list[Line] = []
    for word, meaning in HELP:
        words, meanings = (
            textwrap.wrap(text, size) or [""] for text, size in ((word, wide), (meaning, columns - wide - 4))
        )
        for left, right in zip_longest(words, meanings, fillvalue=""):
            lines.append([(f" {left:{wide}}  ", "title"), (right, "")])
    return lines


def _first(row: int, found: int, page: int) -> int:
    """The first row on the screen: pages do not move while the selection moves within one.

    >>> _first(3, 20, 10), _first(12, 20, 10), _first(17, 18, 10), _first(99, 5, 10)
    (0, 10, 8, 0)
    """
    return max(0, min(min(row, found - 1) // page * page, found - page))


def bar(value: float | None, width: int, host: float | None = None) -> tuple[str, str, str]:
    """Used by the host, used by Pods, free.

    >>> "".join(bar(0.5, 4)), "".join(bar(0.75, 4, host=0.25))
    ('██░░', '▓██░')
    """
    full = max(0, min(width, round((value or 0.0) * width)))
    own = max(0, min(full, round((host or 0.0) * width)))
    return "▓" * own, "█" * (full - own), "░" * (width - full)


def shrink(values: Sequence[float], most: int) -> list[float]:
    """At most so many values: means of as many neighbours as needed, the newest last and whole.

    >>> shrink([1.0, 2.0, 4.0, 6.0, 8.0], 3)
    [1.0, 3.0, 7.0]
    """
    step = max(1, ceil(len(values) / most))
    ends = range(len(values), 0, -step)
    groups = [values[max(0, end - step) : end] for end in ends]
    return [sum(group) / len(group) for group in reversed(groups)]


def spark(values: Sequence[float], most: float) -> str:
    """Recent values as a line of blocks, from 0 to `most`.

    >>> spark([0.0, 4.0, 8.0], 8.0)
    ' ▄█'
    """
    top = len(SPARKS) - 1
    return "".join(SPARKS[max(0, min(top, round(value / (most or 1.0) * top)))] for value in values)
