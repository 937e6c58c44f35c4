"""One value of a table: a text, or a number in its unit that may be a part of a whole."""

from dataclasses import dataclass
from math import isfinite

UNKNOWN = "-"
_BYTES = (("Ti", 2.0**40), ("Gi", 2.0**30), ("Mi", 2.0**20), ("Ki", 2.0**10))
_TIMES = (("d", 86_400.0), ("h", 3600.0), ("m", 60.0))


@dataclass(frozen=True, slots=True)
class Cell:
    """`value` None: unknown. Units: text, cores, bytes, pods, seconds.

    >>> [Cell(2.1, "cores", 4.0).text(), Cell(3 * 2**30, "bytes").text(), Cell(95, "seconds").text(), Cell().text()]
    ['2.1 (52%)', '3.0Gi', '2m', '-']
    """

    value: float | str | None = None
    unit: str = "text"
    whole: float | None = None

    @property
    def percent(self) -> float | None:
        """None: unknown, or there is no whole."""
        if isinstance(self.value, float | int) and self.whole:
            return 100.0 * self.value / self.whole
        return None

    def text(self) -> str:
        if self.value is None or self.value == "":
            return UNKNOWN
        shown = printable(self.value) if isinstance(self.value, str) else _FORMATS[self.unit](self.value)
        return shown if self.percent is None else f"{shown} ({self.percent:.0f}%)"


def printable(text: str) -> str:
    """Without control characters: a user who may write an object could move the cursor of a user who reads it.

    >>> printable("a\\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(one if one.isprintable() else "?" for one in text)


def number(value: float | None, unit: str, whole: float | None = None) -> Cell:
    """NaN and infinite are unknown."""
    known = value is not None and isfinite(value)
    return Cell(value if known else None, unit, whole if whole is not None and isfinite(whole) else None)


def _bytes(value: float) -> str:
    for suffix, size in _BYTES:
        if abs(value) >= size:
            digits = 1 if abs(value) < 100 * size else 0
            return f"{value / size:.{digits}f}{suffix}"
    return f"{value:.0f}"


def _seconds(value: float) -> str:
    for suffix, size in _TIMES:
        if value >= size:
            return f"{value / size:.0f}{suffix}"
    return f"{value:.0f}s"


def _short(value: float) -> str:
    """
    >>> _short(2.0), _short(2.04), _short(0.012), _short(0.5)
    ('2', '2.0', '0.01', '0.5')
    """
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 0.1 else f"{value:.1f}"


_FORMATS = {"cores": _short, "pods": _short, "bytes": _bytes, "seconds": _seconds}
