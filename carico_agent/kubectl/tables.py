"""Rows and columns: sorted by any of them, limited by thresholds, as text, JSON or YAML. Pure."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carico_agent.kubectl.cells import Cell
from carico_agent.plugin_api.formats import parse_quantity

ALIASES = {"cpu": "cpu-use", "memory": "memory-use"}
"""What `--above cpu=80%` means."""


@dataclass(frozen=True, slots=True)
class Column:
    """Its key is also its title, in capitals, and its name in JSON, with underscores."""

    key: str
    wide: bool = False
    """Shown with -o wide only (and always in JSON and YAML)."""
    label: bool = False
    """A label of the object: its name stays as it is."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells by key; `below` are parts of it (the containers of a Pod), which stay with it."""

    cells: Mapping[str, Cell]
    below: tuple["TableRow", ...] = ()

    def cell(self, key: str) -> Cell:
        return self.cells.get(key) or Cell()


@dataclass(frozen=True, slots=True)
class Table:
    """`name` is that of the list in JSON, `parts` that of the rows below."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    total: TableRow | None = None
    parts: str = ""

    def keyed(self, text: str) -> str:
        """The key of the column that a user names; raises ValueError."""
        keys = [column.key for column in self.columns]
        if text in keys:
            return text
        if ALIASES.get(text) in keys:
            return ALIASES[text]
        close = difflib.get_close_matches(text, keys, n=1)
        hint = f", did you mean {close[0]}?" if close else "."
        raise ValueError(f"no column {text!r}{hint} There are {', '.join(keys)}")


def _title(column: Column) -> str:
    """As kubectl shows a label: without its domain.

    >>> _title(Column("topology.kubernetes.io/zone", label=True)), _title(Column("cpu-use"))
    ('ZONE', 'CPU-USE')
    """
    return (column.key.rpartition("/")[2] if column.label else column.key).upper()


def label_columns(labels: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(label, label=True) for label in labels)


def sort(table: Table, by: str, reverse: bool = False) -> tuple[TableRow, ...]:
    """Numbers from high to low, texts from a to z, what is unknown last; `by` ends in % to sort by per cent."""
    key, by_percent = table.keyed(by.removesuffix("%")), by.endswith("%")

    def value(row: TableRow) -> float | str | None:
        cell = row.cell(key)
        return cell.percent if by_percent else cell.value

    known = [(found, row) for row in table.rows if (found := value(row)) not in (None, "")]
    descending = reverse != (not any(isinstance(found, str) for found, _ in known))
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return (*(row for _, row in known), *(row for row in table.rows if value(row) in (None, "")))


@dataclass(frozen=True, slots=True)
class Threshold:
    """`--above cpu=80%`: only rows that are above it; with `below`, only those that are below."""

    column: str
    amount: float
    percent: bool
    below: bool = False

    def holds(self, row: TableRow, key: str) -> bool:
        """What is unknown is neither above nor below."""
        cell = row.cell(key)
        value = cell.percent if self.percent else cell.value
        if not isinstance(value, float | int):
            return False
        return value < self.amount if self.below else value > self.amount


def threshold(text: str, below: bool = False) -> Threshold:
    """Raises ValueError.

    >>> threshold("cpu=80%"), threshold("memory=2Gi", below=True).amount
    (Threshold(column='cpu', amount=80.0, percent=True, below=False), 2147483648.0)
    """
    column, _, amount = text.partition("=")
    try:
        return Threshold(column, parse_quantity(amount.removesuffix("%")), amount.endswith("%"), below)
    except ValueError as error:
        raise ValueError(f"{text!r}: a threshold such as cpu=80%, cpu=2 or memory=10Gi is expected") from error


def limited(table: Table, thresholds: Iterable[Threshold]) -> tuple[TableRow, ...]:
    """The rows for which all of them hold; raises ValueError for an unknown column."""
    rows = table.rows
    for one in thresholds:
        key = table.keyed(one.column)
        rows = tuple(row for row in rows if one.holds(row, key))
    return rows


# ---- output


def as_text(table: Table, wide: bool) -> str:
    columns = [column for column in table.columns if wide or not column.wide]
    lines = [[_title(column) for column in columns]]
    for row in (*([table.total] if table.total else []), *table.rows):
        lines += [[one.cell(column.key).text() for column in columns] for one in (row, *row.below)]
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """
    >>> print(aligned([["A", "B"], ["long", "x"]]))
    A      B
    long   x
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def as_object(table: Table) -> dict[str, Any]:
    """Whole numbers, not rounded for reading: cores, bytes, Pods, seconds; `KEY_percent` where there is a whole."""
    body: dict[str, Any] = {table.name: [_row(table, row) for row in table.rows]}
    return body | ({"total": _row(table, table.total)} if table.total else {})


def _row(table: Table, row: TableRow) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for column in table.columns:
        if (cell := row.cells.get(column.key)) is None:
            continue
        if column.label:
            body.setdefault("labels", {})[column.key] = cell.value or None
            continue
        name = column.key.replace("-", "_")
        body[name] = cell.value
        if cell.whole is not None:
            body[f"{name}_percent"] = None if cell.percent is None else round(cell.percent, 1)
    if table.parts:
        body[table.parts] = [_row(Table("", table.columns, ()), part) for part in row.below]
    return body


def dump(body: Any, form: str) -> str:
    """`form`: json or yaml."""
    if form == "json":
        return json.dumps(body, indent=2)
    import yaml

    return str(yaml.safe_dump(body, sort_keys=False, allow_unicode=True)).rstrip()
