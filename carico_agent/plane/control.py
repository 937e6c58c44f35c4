"""What to do with the reserve in one period: all transitions in one place, pure.

off, recommend: nothing of ours may stand there. write: as computed, while metrics are fresh and nobody else has taken
over the object. Old metrics: hold for two periods, give back at the third.
"""

from dataclasses import dataclass
from typing import Literal

from carico_agent.plane.recommend import SeatRecommendation
from carico_agent.plane.seats import Levels
from carico_agent.plane.shares import reserve_for, seats_of

Mode = Literal["off", "recommend", "write"]
MAX_MISSED = 3
STEP_RATIO = 0.1
"""A reserve that leaves so nearly the right number of seats is not written again."""


@dataclass(frozen=True, slots=True)
class Step:
    """`write` with shares, `remove`, `hold` (leave as it is) or `yield` (somebody else's from now on)."""

    action: Literal["write", "remove", "hold", "yield"]
    shares: int = 0
    why: str = ""


def decide(
    mode: Mode,
    missed: int,
    levels: Levels,
    server: int,
    found: SeatRecommendation | str,
    leading: bool = True,
    held: int = 0,
    yielded: str = "",
) -> Step:
    """`missed`: periods without metrics; `found`: a recommendation, or why there is none; `held`: the shares we have
    written; `yielded`: why the object is somebody else's since an earlier period."""
    ours = levels.ours
    if ours is not None and ours.edited:
        return Step("yield", why=f"{ours.edited}; left to them")
    if yielded:
        return Step("yield", why=yielded)
    if held and ours is None and leading:
        return Step("yield", why="another client deleted it: carico does not create it again until its next start")
    if not leading:
        return Step("hold", why="another instance holds the Lease")
    if mode != "write":
        return (
            Step("remove", why=f"seats = {mode!r}: a reserve of an earlier run is taken back") if ours else Step("hold")
        )
    if missed >= MAX_MISSED:
        why = f"no metrics for {missed} periods: seats are given back"
        return Step("remove", why=why) if ours else Step("hold", why=why)
    if missed or isinstance(found, str):
        return Step("hold", why=found if isinstance(found, str) else f"no metrics for {missed} periods: held")
    shares = reserve_for(server, levels.shares, found.seats, found.needs, levels.lendable)
    if shares == 0:
        return Step("remove", why="the levels have no more seats than that") if ours else Step("hold")
    if ours is not None and _near(levels, server, ours.shares, shares):
        return Step("hold")
    return Step("write", shares, f"{found.seats} seats use {found.cores:.2f} cores")


def _near(levels: Levels, server: int, old: int, new: int) -> bool:
    before, after = (sum(seats_of(server, levels.shares, reserve).values()) for reserve in (old, new))
    return abs(after - before) <= STEP_RATIO * after
