"""Seats and shares of API Priority and Fairness: how large a level must be that only holds seats back.

A level with s of Σs shares gets ⌈S·s/Σs⌉ of the server's S seats (S: --max-requests-inflight plus
--max-mutating-requests-inflight). 1.20 to 1.25 call them assured shares, 1.26 and later nominal shares; the arithmetic,
in doubles and rounded up per level, is the same, so that the levels together may have a few seats more than S.

From 1.26 on a level lends `lendablePercent` of its seats to others. What it needs it must have without those: with 18
seats in all, a greedy level of 6 borrowed up to 11, and others fell below what they needed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

RESERVE = "carico-reserve"
"""The level that holds seats back."""
MAX_SHARES = 2**31 - 1
DEFAULT_SERVER_SEATS = 600
"""400 + 200, the defaults of kube-apiserver's two limits."""


def seats_of(server: int, shares: Mapping[str, int], reserve: int = 0) -> dict[str, int]:
    """Seats of each level beside a reserve of so many shares.

    >>> seats_of(600, {"system": 30, "workload-low": 100, "rest": 75}), seats_of(600, {"a": 1, "b": 1}, reserve=98)
    ({'system': 88, 'workload-low': 293, 'rest': 220}, {'a': 6, 'b': 6})
    """
    whole = float(sum(shares.values()) + reserve)
    return {level: math.ceil(float(server) * float(own) / whole) if own else 0 for level, own in shares.items()}


def kept_of(seats: int, lendable_percent: int = 0) -> int:
    """Of a level's seats those that no other level may borrow, as kube-apiserver rounds it.

    >>> kept_of(10, 33), kept_of(6), kept_of(1, 90)
    (7, 6, 0)
    """
    return seats - math.floor(seats * lendable_percent / 100 + 0.5)


def max_width(seats: int, hands: int) -> int:
    """Seats that one request of a level takes at most, by the level's seats and its hand size, as kube-apiserver 1.36
    computes it: 15 % of them, and no more than each of a flow's queues could have.

    >>> max_width(245, 6), max_width(11, 6), max_width(88, 6)
    (37, 1, 14)
    """
    return max(1, min(math.ceil(seats * 0.15), seats // max(1, hands)))


def min_seats(shares: Mapping[str, int]) -> int:
    """What the levels have even beside an endless reserve: each that has shares keeps one seat."""
    return sum(1 for own in shares.values() if own)


def reserve_for(
    server: int,
    shares: Mapping[str, int],
    wanted: int,
    needs: Mapping[str, int] | None = None,
    lendable: Mapping[str, int] | None = None,
) -> int:
    """The largest reserve beside which all levels together still have `wanted` seats, or their minimum if that is more,
    and each level what it needs (or all it has without a reserve) without what others may borrow. `lendable`: per cent
    of a level's seats.

    0: no reserve is needed, they have no more than that anyway.

    >>> levels = {"system": 30, "workload-low": 100}
    >>> reserve = reserve_for(600, levels, 10)
    >>> reserve, seats_of(600, levels, reserve), sum(seats_of(600, levels, reserve + 1).values())
    (8869, {'system': 3, 'workload-low': 7}, 9)
    """
    floor = max(wanted, min_seats(shares))

    lends = lendable or {}
    alone = {level: kept_of(seats, lends.get(level, 0)) for level, seats in seats_of(server, shares).items()}
    least = {level: min(need, alone[level]) for level, need in (needs or {}).items() if level in alone}

    def enough(reserve: int) -> bool:
        left = seats_of(server, shares, reserve)
        kept = all(kept_of(left[level], lends.get(level, 0)) >= need for level, need in least.items())
        return kept and sum(left.values()) >= floor

    if not enough(1):
        return 0
    if enough(MAX_SHARES):
        return MAX_SHARES
    low, high = 1, MAX_SHARES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


@dataclass(slots=True)
class ServerSeats:
    """S, which no metric has: narrowed down by every look at the levels' seats, each of which is rounded up.

    >>> known = ServerSeats()
    >>> known.see({"system": 88, "workload-low": 293}, {"system": 30, "workload-low": 100, "rest": 75})
    >>> known.low, known.high, known.value
    (599, 600, 600)
    """

    low: int = 1
    high: int = MAX_SHARES

    def see(self, seats: Mapping[str, int], shares: Mapping[str, int]) -> None:
        """`shares`: of all levels, ours included. What contradicts all that was seen is a new server: begin anew."""
        whole = sum(shares.values())
        both = [(seats[name], own) for name, own in shares.items() if own and name in seats]
        lows = [(seen - 1) * whole // own + 1 for seen, own in both]
        highs = [seen * whole // own for seen, own in both]
        if not lows or max(lows) > min(highs):
            return  # the server has not applied these shares yet
        low, high = max(self.low, *lows), min(self.high, *highs)
        self.low, self.high = (low, high) if low <= high else (max(lows), min(highs))

    @property
    def known(self) -> bool:
        return self.high < MAX_SHARES

    @property
    def value(self) -> int:
        """The default if it may be that, else the smallest: with it no level gets fewer seats than computed."""
        return DEFAULT_SERVER_SEATS if self.low <= DEFAULT_SERVER_SEATS <= self.high else self.low
