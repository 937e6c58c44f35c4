"""Rows of the table that `make bench` prints."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One thing measured. `value` and `budget` are in `unit`; without a budget the row only informs."""

    what: str
    value: float | None
    unit: str
    budget: float | None = None
    least: bool = False
    """The budget is a lower bound."""
    note: str = ""
    failed: bool = False
    """It could not be measured; `note` says why."""

    @property
    def verdict(self) -> str:
        if self.failed:
            return "not measured"
        if self.budget is None or self.value is None:
            return ""
        return "ok" if (self.value >= self.budget if self.least else self.value <= self.budget) else "over"

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def missing(what: str, why: str, failed: bool = True) -> Row:
    return Row(what, None, "", note=why, failed=failed)


def number(value: float) -> str:
    """Three digits that matter.

    >>> number(0.4321), number(54.321), number(6543.2), number(0.0)
    ('0.432', '54.3', '6543', '0')
    """
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(title: str, rows: Iterable[Row]) -> list[str]:
    """A section of the table."""
    out = ["", f"{title:54}{'measured':>16}  {'budget':>14}  verdict"]
    for row in rows:
        measured = f"{number(row.value)} {row.unit}" if row.value is not None else "-"
        sign = "≥" if row.least else "≤"
        budget = f"{sign} {number(row.budget)} {row.unit}" if row.budget is not None else ""
        note = f"  ({row.note})" if row.note else ""
        out.append(f"  {row.what:52}{measured:>16}  {budget:>14}  {row.verdict}{note}".rstrip())
    return out
