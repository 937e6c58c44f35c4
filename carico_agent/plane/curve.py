"""f(x): how many cores a component uses while it executes x requests at once.

Measured points, linear between them, constant beyond the last and before the first. Why a table and not a formula: the
mapping is neither linear nor monotone (*MerKury* section 4.3.2, figure 5): a 12-core API server used 1.4 cores with one
request, 6.6 with ten, 10.4 with a hundred and less again with 349.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_REQUESTS = 10_000_000
"""Largest x of a table. The arithmetic is linear in the seats: 10⁶ take 20 ms."""

NEAR = 1e-9
"""Relative; what differs by less is equal. 7 × 0.1 is not 0.7 in binary fractions."""


class BadTable(ValueError):
    """The table is no function of the concurrency; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x requests executing, f cores used), sorted by x.

    >>> curve = Curve.of([(0, 0.12), (1, 1.41), (5, 4.27)])
    >>> curve.cores(3), curve.cores(100), curve.peak()
    (2.84, 4.27, (5, 4.27))
    >>> curve.reach(2.84)
    3
    """

    x: NDArray[np.float64]
    f: NDArray[np.float64]
    whole: NDArray[np.float64]
    """1, and the whole numbers beside each corner: between two of them f is a straight line."""
    whole_f: NDArray[np.float64]

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> "Curve":
        """From points in any order; raises BadTable. The same point twice is one; two values for one x are refused:
        which of them is right cannot be known."""
        table: dict[float, float] = {}
        for x, f in points:
            _check(x, f)
            if table.setdefault(x, f) != f:
                raise BadTable(f"x = {x:g} has two values, f = {table[x]:g} and {f:g}")
        if not table:
            raise BadTable("the table is empty; it needs at least one line: requests executing, cores used")
        if not any(table.values()):
            raise BadTable("f is 0 everywhere: this component never uses a core")
        corners = np.array(sorted(table), dtype=np.float64)
        heights = np.array([table[x] for x in corners], dtype=np.float64)
        whole = np.unique(np.maximum(1.0, np.concatenate([[1.0], np.floor(corners), np.ceil(corners)])))
        return cls(corners, heights, whole, np.interp(whole, corners, heights))

    def cores(self, x: float) -> float:
        return float(np.interp(x, self.x, self.f))

    def upto(self, seats: int) -> NDArray[np.float64]:
        """f(1) … f(seats)."""
        return np.interp(np.arange(1, seats + 1), self.x, self.f)

    def peak(self) -> tuple[int, float]:
        """The smallest whole x ≥ 1 with the most cores, and those: more seats than this are of no use."""
        best = int(np.argmax(self.whole_f >= self.whole_f.max() * (1 - NEAR)))
        return int(self.whole[best]), float(self.whole_f[best])

    def reach(self, cores: float) -> int | None:
        """The smallest whole x ≥ 1 with f(x) ≥ cores; None when no x has that."""
        enough = cores * (1 - NEAR)
        reaches = self.whole_f >= enough
        at = int(np.argmax(reaches))
        if not reaches[at]:
            return None
        if at == 0:
            return 1
        low, high = int(self.whole[at - 1]), int(self.whole[at])
        slope = float(self.whole_f[at] - self.whole_f[at - 1]) / (high - low)
        found = min(high, max(low + 1, math.ceil(low + (enough - float(self.whole_f[at - 1])) / slope)))
        while found > low + 1 and self.cores(found - 1) >= enough:  # at most a rounding error away
            found -= 1
        while found < high and self.cores(found) < enough:
            found += 1
        return found


def _check(x: float, f: float) -> None:
    if not (math.isfinite(x) and math.isfinite(f)):
        raise BadTable(f"{x}, {f}: numbers are expected")
    if x < 0 or f < 0:
        raise BadTable(f"{x:g}, {f:g}: neither requests nor cores can be negative")
    if x > MAX_REQUESTS:
        raise BadTable(f"x = {x:g}: at most {MAX_REQUESTS} requests at once are supported")


LINEAR = Curve.of([(0, 0), (MAX_REQUESTS, MAX_REQUESTS)])
"""One core per request (M/M/c): for components that do not publish their concurrency."""


def parse_table(lines: Iterable[str]) -> Curve:
    """A curve from CSV: x, f per line, separated by commas, semicolons, tabs or spaces. A first line of words is a
    heading; empty lines and # comments are skipped. Where a semicolon or a tab separates, 0,12 is a number.

    >>> parse_table(["x,f", "0,0.12", "1,1.41"]).cores(1), parse_table(["0;0,12", "1;1,41"]).cores(1)
    (1.41, 1.41)
    """
    points: list[tuple[float, float]] = []
    headed = False
    for number, line in enumerate(lines, 1):
        cells = _cells(line)
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not points and not headed and not any(map(_is_number, cells)):
            headed = True
            continue
        try:
            points.append(_point(cells))
            _check(*points[-1])
        except ValueError as error:
            raise BadTable(f"line {number}: {error}") from error
    return Curve.of(points)


def _cells(line: str) -> list[str]:
    """The cells of one line, by the first separator of `;`, tab, comma and space that it has."""
    text = line.strip()
    mark = next((mark for mark in ";\t, " if mark in text), ",")
    cells = [cell.strip().strip('"') for cell in (text.split() if mark == " " else text.split(mark))]
    return [cell.replace(",", ".") for cell in cells] if mark in ";\t" else cells


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _point(cells: Sequence[str]) -> tuple[float, float]:
    if len(cells) != 2:
        raise BadTable(f"two columns are expected (requests executing, cores used), not {len(cells)}")
    x, f = cells
    if not (_is_number(x) and _is_number(f)):
        raise BadTable(f"{x!r}, {f!r}: numbers are expected")
    return float(x), float(f)
