"""What to do with the reserve in one period: all transitions in one place, pure.

off, recommend: nothing of ours may stand there. write: as computed, while metrics are fresh and no other client has
taken over the object. The reserve goes again

- at once when requests wait or are rejected while the CPU has room: what they wait for is seats;
- after three periods without a recommendation, whatever the reason (calm, no requests, no metrics, counters reset).

Why at once: a reserve that outlived its peak left `workload-low` 11 of 245 seats. An admission webhook that took 2 s
filled them, and the server answered 429 at 10 % of its CPU.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from carico_agent.plane.recommend import SeatRecommendation
from carico_agent.plane.seats import Levels
from carico_agent.plane.shares import max_width, reserve_for, seats_of

Mode = Literal["off", "recommend", "write"]
MAX_MISSED = 3
MAX_CALM = 3
"""Periods in a row without a recommendation; at the last of them the seats are given back."""
COOLING = 5
"""Periods without a new reserve after one that made requests wait: the curve it was computed from was wrong."""
MIN_WIDTH = 1.5
"""Seats per request of a level, from which on its LISTs count."""
STEP_RATIO = 0.1
"""A reserve that leaves so nearly the right number of seats is not written again."""


@dataclass(frozen=True, slots=True)
class Step:
    """`write` with shares, `remove`, `hold` (leave as it is) or `yield` (another client's from now on)."""

    action: Literal["write", "remove", "hold", "yield"]
    shares: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class ServerState:
    """All that a decision depends on."""

    mode: Mode
    levels: Levels
    server: int
    """Seats of the API server."""
    found: SeatRecommendation | str
    """A recommendation, or why there is none."""
    missed: int = 0
    """Periods without metrics."""
    leading: bool = True
    held: int = 0
    """Shares that we have written."""
    yielded: str = ""
    """Why the object belongs to another client since an earlier period."""
    calm: int = 0
    """Periods in a row without a recommendation, this one included."""
    held_up: str = ""
    """Which level waits or rejects while the CPU has room; empty: none."""
    cooling: int = 0
    """Periods left in which no reserve is written, because the last one made requests wait."""
    widths: Mapping[str, float] = field(default_factory=dict)
    """Seats per executing request by level: more than 1 where LISTs are wide."""


def decide(now: ServerState) -> Step:
    ours = now.levels.ours
    if ours is not None and ours.edited:
        return Step("yield", why=f"{ours.edited}; left to them")
    if now.yielded:
        return Step("yield", why=now.yielded)
    if now.held and ours is None and now.leading:
        return Step("yield", why="another client deleted it: carico does not create it again until its next start")
    if not now.leading:
        return Step("hold", why="another instance holds the Lease")
    if now.mode != "write":
        why = f"seats = {now.mode!r}: a reserve of an earlier run is taken back"
        return Step("remove", why=why) if ours else Step("hold")
    if why := _reason_to_release(now):
        return Step("remove" if ours else "hold", why=why)
    if now.missed or isinstance(now.found, str):
        return Step("hold", why=now.found if isinstance(now.found, str) else f"no metrics for {now.missed} periods")
    return _sized(now, now.found)


def _reason_to_release(now: ServerState) -> str:
    if now.held_up:
        return f"the CPU has room, but {now.held_up}: seats are given back"
    if now.missed >= MAX_MISSED:
        return f"no metrics for {now.missed} periods: seats are given back"
    if now.calm >= MAX_CALM and isinstance(now.found, str):
        return f"{now.calm} periods without a recommendation ({now.found}): seats are given back"
    if now.cooling:
        return f"the last reserve made requests wait: none for {now.cooling} more periods"
    return ""


def _sized(now: ServerState, found: SeatRecommendation) -> Step:
    levels, ours = now.levels, now.levels.ours
    shares = reserve_for(now.server, levels.shares, found.seats, found.needs, levels.lendable)
    width, note = _width_beside(now, shares)
    wanted = math.ceil(found.seats * width)
    if wanted > found.seats:
        shares = reserve_for(now.server, levels.shares, wanted, found.needs, levels.lendable)
    if shares == 0:
        return Step("remove", why="the levels have no more seats than that") if ours else Step("hold")
    if ours is not None and _near(levels, now.server, ours.shares, shares):
        return Step("hold")
    return Step("write", shares, f"{wanted} seats use {found.cores:.2f} cores{note}")


def _width_beside(now: ServerState, shares: int) -> tuple[float, str]:
    """Seats per request of the widest level beside a reserve of so many shares, and a word about it.

    The recommendation counts requests. kube-apiserver counts a LIST as up to 15 % of its level's seats: with 245 seats
    a LIST may be as wide as 37 GETs, with 11 it is one."""
    before, after = (seats_of(now.server, now.levels.shares, reserve) for reserve in (0, shares))
    widest, note = 1.0, ""
    for level, width in now.widths.items():
        if level not in after or width < MIN_WIDTH:
            continue
        hands = now.levels.hands.get(level, 1)
        left = min(width, max_width(after[level], hands))
        widest = max(widest, left)
        if left < min(width, max_width(before[level], hands)):
            note = f"; LISTs in level {level} count as {left:.0f} of its seats, and not as {width:.0f} any more"
    return widest, note


def _near(levels: Levels, server: int, old: int, new: int) -> bool:
    before, after = (sum(seats_of(server, levels.shares, reserve).values()) for reserve in (old, new))
    return abs(after - before) <= STEP_RATIO * after
