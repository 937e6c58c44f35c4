"""What the user of `carico top` has chosen with keys: one immutable value, and one function that changes it."""

from dataclasses import dataclass, replace

TABLES = ("workloads", "Pods")
SORTS = {"a": "arrivals", "c": "cpu", "m": "memory", "n": "name", "f": "fits", "p": "Pods"}
"""Key → what the rows are sorted by. Pods have neither arrivals, fits nor Pods: they are then sorted by cpu."""
MAX_FILTER = 63

SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[Z": "tab",
}
"""What terminals send for keys without a character: in the normal and in the application mode of the cursor keys."""
SINGLE = {
    "k": "up",
    "j": "down",
    "g": "home",
    "G": "end",
    " ": "page down",
    "b": "page up",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
}

HELP = (
    ("up down, k j", "one row"),
    ("page up, page down, b space", "one page"),
    ("home end, g G", "the first and the last row"),
    ("tab", "workloads or Pods"),
    ("enter", "the Pods of the selected workload"),
    ("/", "filter by a part of the name; enter keeps it"),
    ("escape", "clears the filter, or goes back to the workloads"),
    ("a c m n f p", "sort by arrivals, cpu, memory, name, more fit, Pods"),
    ("r", "reverse the order"),
    ("q", "quit"),
    ("", ""),
    ("more fit", "how many more Pods of this workload this node has room for; the interval is a 90 % interval"),
    ("learning", "no Pod of this workload has been busy yet"),
    ("one takes", "what one Pod of it uses where no neighbour crowds it"),
    ("next", "the chance that the next Pod to arrive is of this workload"),
)
"""Keys, then words, and what they mean."""


@dataclass(frozen=True, slots=True)
class Choice:
    table: str = "workloads"
    sort: str = "a"
    reverse: bool = False
    row: int = 0
    """The selected row of the table, from 0."""
    filter: str = ""
    typing: bool = False
    """Keys go into the filter."""
    workload: str | None = None
    """Only the Pods of this workload are shown."""
    help: bool = False


def keys_of(text: str) -> list[str]:
    """What was typed, key by key.

    >>> keys_of("/web\\r"), keys_of("\\x1b[B\\x1b[6~"), keys_of("\\x1b"), keys_of("\\x1b[99;5u")
    (['/', 'w', 'e', 'b', '\\r'], ['down', 'page down'], ['\\x1b'], [])
    """
    keys = []
    while text:
        found = next((sequence for sequence in SEQUENCES if text.startswith(sequence)), None)
        if found is not None:
            keys.append(SEQUENCES[found])
            text = text[len(found) :]
        elif text.startswith("\x1b["):  # a key that means nothing here: up to its last character
            ends = next((at for at, c in enumerate(text[2:], 2) if "@" <= c <= "~"), len(text) - 1)
            text = text[ends + 1 :]
        else:
            keys.append(text[0])
            text = text[1:]
    return keys


def press(choice: Choice, key: str, names: list[str], page: int) -> Choice:
    """The choice after one key. `names`: of the rows shown now, in their order; `page`: rows that fit the screen."""
    if choice.typing:
        return _typed(choice, key)
    meant = SINGLE.get(key, key)
    if choice.help or meant in ("?", "h"):
        return replace(choice, help=not choice.help)
    last = max(0, len(names) - 1)
    row = min(choice.row, last)
    steps = {"up": row - 1, "down": row + 1, "page up": row - page, "page down": row + page, "home": 0, "end": last}
    if meant in steps:
        return replace(choice, row=min(last, max(0, steps[meant])))
    if meant == "tab":
        return replace(choice, table=TABLES[choice.table == TABLES[0]], row=0, workload=None)
    if meant == "enter" and choice.table == "workloads" and names:
        return replace(choice, table="Pods", row=0, filter="", workload=names[row])
    if meant == "escape":
        return _back(choice)
    if meant == "/":
        return replace(choice, typing=True, row=0)
    if meant == "r":
        return replace(choice, reverse=not choice.reverse)
    return replace(choice, sort=meant, row=0) if meant in SORTS else choice


def _typed(choice: Choice, key: str) -> Choice:
    """A key while the filter is written."""
    meant = SINGLE.get(key, key) if not key.isprintable() else key
    if meant == "enter":
        return replace(choice, typing=False)
    if meant == "escape":
        return replace(choice, typing=False, filter="")
    if key in ("\x7f", "\b"):
        return replace(choice, filter=choice.filter[:-1], row=0)
    if len(key) == 1 and key.isprintable():
        return replace(choice, filter=(choice.filter + key)[:MAX_FILTER], row=0)
    return choice


def _back(choice: Choice) -> Choice:
    if choice.filter:
        return replace(choice, filter="", row=0)
    return replace(choice, table="workloads", row=0, workload=None) if choice.workload is not None else choice
