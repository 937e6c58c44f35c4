"""Whose turn it is: each of many is due once in a period, and no tick takes more than its share. No clock.

A tick's allowance is its share of the period, half as much again to catch up, and one: what is late waits for the next
tick. Time missed in a pause longer than the longest tick stays missed; there is no burst afterwards. A tick with less
to do than its share takes some a little early: so those that began together spread over the period by and by.
"""

import heapq
from collections.abc import Collection, Iterator
from math import inf

CATCH_UP = 1.5
EARLY = 0.1
"""Part of the period by which a turn may come early."""
LONGEST_TICK_S = 1.0
FIRST_STEP_S = 0.1


class Stagger:
    """Keys with due times. `period_s`: usual time between two turns of one key; `longest_tick_s`: between two ticks.

    >>> turns = Stagger(10.0)
    >>> turns.keep({"a"}, 0.0)
    frozenset()
    >>> [(t, *turns.take(t)) for t in (0.0, 1.0)]
    [(0.0, 'a'), (1.0,)]
    """

    def __init__(self, period_s: float, longest_tick_s: float = LONGEST_TICK_S) -> None:
        self.period_s, self._longest_tick_s = period_s, longest_tick_s
        self.at_start: frozenset[str] = frozenset()
        """Keys that were there at the first look."""
        self._next_s: dict[str, float] = {}
        self._due: list[tuple[float, str, float]] = []
        """Due, who, and since when a tick that has less to do may take it [s]."""
        self._began = False
        self._allowance = 0.0
        self._last_s = -inf

    def keep(self, keys: Collection[str], now_s: float) -> frozenset[str]:
        """From now on these; new ones are due at once, at the first look one after the other. Returns who has gone."""
        wanted = frozenset(keys)
        gone = frozenset(self._next_s.keys() - wanted)
        for key in gone:
            del self._next_s[key]
        step_s = 0.0 if self._began or not wanted else min(self.period_s / len(wanted), FIRST_STEP_S)
        if self._began:
            self.at_start -= gone
        else:
            self.at_start, self._last_s, self._began = wanted, now_s, True
        for number, key in enumerate(sorted(wanted - self._next_s.keys())):
            self.line_up(key, now_s + number * step_s)
        return gone

    def take(self, now_s: float) -> Iterator[str]:
        """Those whose turn it is; each is due again a period later unless `line_up` says otherwise."""
        share = len(self._next_s) * min(now_s - self._last_s, self._longest_tick_s) / self.period_s
        self._allowance, self._last_s = 1.0 + CATCH_UP * share, now_s
        while self._due and self._allowance > 0:
            due_s, key, earliest_s = self._due[0]
            if due_s > now_s and (share < 1 or earliest_s > now_s):
                return
            heapq.heappop(self._due)
            if self._next_s.get(key) != due_s:  # it has gone, and perhaps come back; or was lined up anew
                continue
            self._allowance -= 1
            share -= 1
            self._line_up(key, now_s + self.period_s, now_s + (1 - EARLY) * self.period_s)
            yield key

    def is_behind(self, now_s: float) -> bool:
        """Some are due and had no turn yet."""
        return bool(self._due) and self._due[0][0] <= now_s

    def spend(self, turns: float) -> None:
        """This one's turn took as long as so many more."""
        self._allowance -= turns

    def line_up(self, key: str, due_s: float) -> None:
        """Not before `due_s`."""
        self._line_up(key, due_s, due_s)

    def _line_up(self, key: str, due_s: float, earliest_s: float) -> None:
        self._next_s[key] = due_s
        heapq.heappush(self._due, (due_s, key, earliest_s))
        if len(self._due) > 64 + 4 * len(self._next_s):  # turns that were changed or have gone
            self._due = [turn for turn in self._due if self._next_s.get(turn[1]) == turn[0]]
            heapq.heapify(self._due)
