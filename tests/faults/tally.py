"""How far a long test is: a line every ten seconds, which `pytest -s` shows (`make fuzz`), and the sums at the end."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

Case = TypeVar("Case")
EVERY_S = 10.0
tried = Counter[str]()
"""How many there were in this process, by what they are."""


class Progress:
    """Counts, and prints where it is from time to time."""

    def __init__(self, what: str, of: int) -> None:
        self._what, self._of, self._done = what, of, 0
        self._began_s = self._shown_s = time.monotonic()

    def one(self) -> None:
        tried[self._what] += 1
        self._done += 1
        now_s = time.monotonic()
        if now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
            print(
                f"{test}: {self._done:,} of {self._of:,} {self._what} after {now_s - self._began_s:.0f} s", flush=True
            )


def counted(cases: Iterable[Case], of: int, what: str = "cases") -> Iterator[Case]:
    """The same cases; each counts once the next one is asked for, when it was survived."""
    progress = Progress(what, of)
    for case in cases:
        yield case
        progress.one()
