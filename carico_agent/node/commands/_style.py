"""Colour in a terminal: a line is a sequence of parts, each a text with a style.

A style names a meaning (`full`, `host`). The colours are the sixteen of the user's own theme, so that a light and a
dark terminal are both legible. NO_COLOR (no-color.org) and TERM=dumb are honoured; no meaning is carried by
colour alone.
"""

from collections.abc import Mapping, Sequence

Line = Sequence[tuple[str, str]]
"""Texts with their styles."""

CODES = {
    "": "",
    "title": "1",
    "dim": "2",
    "free": "32",
    "tight": "33",
    "full": "31",
    "host": "34",
    "history": "36",
    "heading": "1;4",
    "selected": "7",
}
RESET = "\x1b[0m"
TIGHT_RATIO = 0.8
"""From this share of the limit on a resource is tight."""


def colours_wanted(environment: Mapping[str, str]) -> bool:
    """
    >>> colours_wanted({"TERM": "xterm"}), colours_wanted({"TERM": "xterm", "NO_COLOR": "1"}), colours_wanted({})
    (True, False, False)
    """
    return not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"


def plain(text: str, style: str = "") -> Line:
    return [(text, style)]


def length(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def paint(line: Line, columns: int, coloured: bool) -> str:
    """The line as characters, at most `columns` of them beside the colours.

    >>> paint([("used ", ""), ("97 %", "full")], 7, coloured=True)
    'used \\x1b[31m97\\x1b[0m'
    >>> paint([("used ", ""), ("97 %", "full")], 7, coloured=False)
    'used 97'
    """
    parts, left = [], columns
    for text, style in line:
        shown = printable(text)[: max(0, left)]
        left -= len(shown)
        if shown:
            parts.append(f"\x1b[{CODES[style]}m{shown}{RESET}" if coloured and style else shown)
    return "".join(parts)


def printable(line: str) -> str:
    """Names are not ours: what would move the cursor or colour the screen is shown as `?`.

    >>> printable("web\\x1b[2J")
    'web?[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in line)


def by_share(used: float | None, limit: float | None) -> str:
    """The style of a resource of which this share is used.

    >>> by_share(0.5, 1.0), by_share(0.9, 1.0), by_share(0.9, 0.85), by_share(None, 1.0)
    ('free', 'tight', 'full', 'dim')
    """
    if used is None:
        return "dim"
    limit = limit or 1.0
    return "full" if used >= limit else "tight" if used >= TIGHT_RATIO * limit else "free"


def by_fits(fits: float | None, trusted: bool) -> str:
    """The style of a workload of which so many more fit.

    >>> by_fits(5.0, True), by_fits(1.2, True), by_fits(0.4, True), by_fits(5.0, False)
    ('free', 'tight', 'full', 'dim')
    """
    if fits is None or not trusted:
        return "dim"
    return "full" if fits < 1.0 else "tight" if fits < 2.0 else "free"
