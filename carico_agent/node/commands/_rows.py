"""The tables of `carico top`: workloads and Pods as rows, and which columns a narrow terminal shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carico_agent.node.commands._choice import SORTS, Choice
from carico_agent.node.commands._pods import ScreenPod
from carico_agent.node.commands._style import Line, by_fits
from carico_agent.node.commands.status import per_node_workloads
from carico_agent.node.publish.status import Status, WorkloadStatus
from carico_agent.node.publish.words import in_bytes, interval, next_workloads

MIN_NAME = 14
"""Columns are left out until names have this width."""
EXTRA = 4
"""Columns of this rank and above are left out until names are whole."""
GAP = 2


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """Texts below each other; the one with the highest rank is left out first, and rank 0 never."""

    title: str
    cells: Sequence[str]
    rank: int
    sort: str = ""
    """The key that sorts by it."""
    left: bool = False
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        return max([len(self.title) + 1, *(len(cell) for cell in self.cells)])


@dataclass(frozen=True, slots=True)
class ScreenTable:
    names: list[str]
    columns: Sequence[ScreenColumn]
    """The first one has the names."""

    def lines(self, width: int, choice: Choice | None = None) -> list[Line]:
        """A heading, then the rows. With a choice the heading marks the order, and the selected row is marked."""
        shown, wide = _fitting(self.columns, width - 2)
        widths = [wide, *(column.width for column in shown[1:])]
        heading = [_cell(_title(column, choice), size, column.left) for column, size in zip(shown, widths, strict=True)]
        lines: list[Line] = [[("  ", ""), (_joined(heading), "heading")]]
        for row in range(len(self.names)):
            cells = [
                (_cell(column.cells[row], size, column.left), column.styles[row] if column.styles else "")
                for column, size in zip(shown, widths, strict=True)
            ]
            lines.append(_row(cells, choice is not None and row == min(choice.row, len(self.names) - 1)))
        return lines


def _fitting(columns: Sequence[ScreenColumn], width: int) -> tuple[list[ScreenColumn], int]:
    """The columns for which there is room, and the width of the first."""
    shown = list(columns)
    while True:
        left = width - sum(column.width + GAP for column in shown[1:])
        first, last = columns[0].width, max(shown, key=lambda column: column.rank)
        if left >= (first if last.rank >= EXTRA else min(first, MIN_NAME)) or last.rank == 0:
            return shown, max(1, min(first, left))
        shown.remove(last)


def _title(column: ScreenColumn, choice: Choice | None) -> str:
    if choice is None or column.sort != choice.sort or not column.sort:
        return column.title
    return column.title + ("▲" if choice.reverse else "▼")


def _cell(text: str, width: int, left: bool) -> str:
    """As wide as its column; of a long name both ends are kept, because the names of Pods differ at the end.

    >>> _cell("shop/web-7d9f8-x2x4z", 12, True), _cell("3", 3, False)
    ('shop/…-x2x4z', '  3')
    """
    if len(text) > width:
        tail = width // 2
        text = f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
    return f"{text:<{width}}" if left else f"{text:>{width}}"


def _joined(cells: Sequence[str]) -> str:
    return (" " * GAP).join(cells)


def _row(cells: Sequence[tuple[str, str]], selected: bool) -> Line:
    if selected:  # in one style, so that the bar is whole
        return [(f"> {_joined([text for text, _ in cells])}", "selected")]
    parts = [("  ", "")]
    for at, cell in enumerate(cells):
        parts += [(" " * GAP, ""), cell] if at else [cell]
    return parts


def workload_table(status: Status, choice: Choice) -> ScreenTable:
    rows = [one for one in sorted_workloads(status, choice.sort) if choice.filter.lower() in one.workload.lower()]
    rows = rows[::-1] if choice.reverse else rows
    sizes, styles = status.sizes, [by_fits(one.fits, one.trusted) for one in rows]
    ranges = [interval(one.fits, one.low, one.high) if one.trusted else "learning" for one in rows]
    columns = [
        ScreenColumn("workload", [one.workload for one in rows], 0, "n", left=True),
        ScreenColumn("Pods", [str(one.pods) for one in rows], 1, "p"),
        ScreenColumn("more fit", [_fits(one) for one in rows], 0, "f", styles=styles),
        ScreenColumn("interval", [text.partition(" ")[2] for text in ranges], 4, left=True, styles=styles),
        ScreenColumn("one takes", [_cores(one.cost.get("cpu"), sizes.get("cpu")) for one in rows], 2, "c"),
        ScreenColumn("memory", [_memory(one.cost.get("memory"), sizes.get("memory")) for one in rows], 3, "m"),
        ScreenColumn("next", ["per node" if one.per_node else f"{one.arrivals:.0%}" for one in rows], 5, "a"),
        ScreenColumn("limited by", [one.limiting or "" if one.trusted else "" for one in rows], 6, left=True),
    ]
    return ScreenTable([one.workload for one in rows], columns)


def pod_table(pods: Sequence[ScreenPod], choice: Choice) -> ScreenTable:
    """By cpu unless another order was asked for."""
    wanted = choice.filter.lower()
    rows = [
        pod
        for pod in sorted(pods, key=POD_ORDER.get(choice.sort, _by_cores))
        if (choice.workload is None or pod.workload == choice.workload)
        and (wanted in pod.name.lower() or wanted in pod.workload.lower())
    ]
    rows = rows[::-1] if choice.reverse else rows
    sort_by_cores = choice.sort if choice.sort not in POD_ORDER else "c"
    columns = [
        ScreenColumn("Pod", [pod.name for pod in rows], 0, "n", left=True),
        ScreenColumn("cores", ["?" if pod.cores is None else f"{pod.cores:.2f}" for pod in rows], 0, sort_by_cores),
        ScreenColumn(
            "memory", ["?" if pod.memory_bytes is None else in_bytes(pod.memory_bytes) for pod in rows], 1, "m"
        ),
        ScreenColumn("workload", [pod.workload for pod in rows], 2, left=True),
    ]
    return ScreenTable([pod.name for pod in rows], columns)


def _fits(one: WorkloadStatus) -> str:
    if not one.trusted:
        return "learning"
    return "unknown" if one.fits is None else f"{one.fits:.1f}"


def _cores(share: float | None, size: float | None) -> str:
    if share is None:
        return "?"
    return f"{share * size:.2f} cores" if size else f"{share:.1%}"


def _memory(share: float | None, size: float | None) -> str:
    if share is None:
        return "?"
    return in_bytes(share * size) if size else f"{share:.1%}"


def sorted_workloads(status: Status, sort: str) -> list[WorkloadStatus]:
    workloads = next_workloads(status) + per_node_workloads(status)
    if sort == "a":
        return workloads
    return sorted(workloads, key=WORKLOAD_ORDER[sort])


def _largest_first(resource: str) -> Callable[[WorkloadStatus], Any]:
    """What all Pods of the workload take together."""
    return lambda one: -(one.cost.get(resource) or 0.0) * one.pods


WORKLOAD_ORDER: Mapping[str, Callable[[WorkloadStatus], Any]] = {
    "c": _largest_first(SORTS["c"]),
    "m": _largest_first(SORTS["m"]),
    "n": lambda one: one.workload,
    "f": lambda one: (not one.trusted, one.fits if one.fits is not None else float("inf")),
    "p": lambda one: (-one.pods, one.workload),
}


def _by_cores(pod: ScreenPod) -> Any:
    return -(pod.cores or 0.0), pod.name


POD_ORDER: Mapping[str, Callable[[ScreenPod], Any]] = {
    "c": _by_cores,
    "m": lambda pod: (-(pod.memory_bytes or 0.0), pod.name),
    "n": lambda pod: pod.name,
}
