"""A workload's day and lifetime, as nodes tell each other: what one Pod uses per half hour, and how long Pods live."""

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico_agent.core.history import DAY_SLOTS, Singles
from carico_agent.core.lifetimes import Lifetime

BINS = 48
SLOTS_PER_BIN = DAY_SLOTS // BINS
MAX_LIFE_S = 1e9
MOVED_RATIO = 0.2
"""A half hour is another one when it is off by this part of the day's peak, a lifetime by this part of itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """`day` per resource and half hour (UTC): the highest five minutes of one Pod; NaN: unknown."""

    day: NDArray[np.floating[Any]]
    median_s: float = nan
    """Of the Pods that ended; NaN: none has."""
    p90_s: float = nan
    ended: int = 0

    @property
    def slots(self) -> Singles:
        """The day in slots of five minutes."""
        return np.repeat(self.day.astype(np.float32), SLOTS_PER_BIN, axis=1)

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime(self.median_s, self.p90_s, self.ended)

    def check(self, m: int) -> None:
        """Raise ValueError unless this is a day of `m` resources."""
        if self.day.shape != (m, BINS):
            raise ValueError(f"a day of {self.day.shape} values; {m} resources of {BINS} half hours are needed")
        if (self.day < 0).any() or np.isinf(self.day).any():
            raise ValueError("a day has values that are no usage")
        if not all(x != x or 0 <= x <= MAX_LIFE_S for x in (self.median_s, self.p90_s)) or self.ended < 0:
            raise ValueError(f"lifetimes {self.median_s} s and {self.p90_s} s of {self.ended} Pods")


def moved(old: Profile | None, new: Profile | None) -> bool:
    """Whether other nodes should know of the difference."""
    if old is None or new is None:
        return old is not new
    if old.day.shape != new.day.shape or (np.isnan(old.day) != np.isnan(new.day)).mean() > MOVED_RATIO:
        return True
    both = ~np.isnan(old.day) & ~np.isnan(new.day)
    peak = np.nan_to_num(new.day).max(axis=1, keepdims=True)
    far = np.abs(np.nan_to_num(new.day) - np.nan_to_num(old.day)) > MOVED_RATIO * peak + 1e-4
    return bool((far & both).any()) or not _near(old.p90_s, new.p90_s)


def _near(old: float, new: float) -> bool:
    if old != old or new != new:
        return (old != old) == (new != new)
    return abs(new - old) <= MOVED_RATIO * max(old, new)


def profile_of(slots: Singles, life: Lifetime) -> Profile:
    """From a day in slots of five minutes and the lifetimes seen."""
    bins = slots.reshape(len(slots), BINS, SLOTS_PER_BIN)
    most = np.where(np.isnan(bins), np.float32(-1.0), bins).max(axis=2)
    return Profile(np.where(most >= 0, most, np.float32(np.nan)), life.median_s, life.p90_s, life.ended)
