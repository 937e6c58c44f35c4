"""Profiles on the wire and over all nodes: a byte per half hour, and merged so that no single node decides.

A profile of two resources has 104 bytes: per resource the scale of its day, and 48 steps of it. Merged per half hour it
is the mean of the middle half of the reports, as costs are (cluster_workloads.py): one liar among 100 moves it by at
most 5 %.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from carico_agent.core.profile import BINS, MAX_LIFE_S, Profile
from carico_agent.core.subspace import Vector
from carico_agent.federation.contribution import SIZES, Rejected
from carico_agent.federation.moments import spread
from carico_agent.federation.workloads import SentProfile

STEPS, UNKNOWN = 254, 255
"""Values of a byte: 0 to 254 of the scale, and unknown."""
BYTES = 4 + BINS
MAX_MERGED = 256
"""Profiles of one workload that are merged, over all nodes: more of them cost time and change little."""


def encoded(day: Vector) -> bytes:
    """A day in absolute units (cores, bytes), per resource.

    >>> float(decoded(encoded(np.full((1, BINS), 0.5)), 1)[0, 0])
    0.5
    """
    parts = []
    for row in np.asarray(day, np.float64):
        known = ~np.isnan(row)
        scale = np.float32(row[known].max()) if known.any() else np.float32(0.0)
        steps = np.rint(np.where(known, row, 0.0) / scale * STEPS) if scale > 0 else np.zeros(BINS)
        parts.append(scale.tobytes() + np.where(known, steps, UNKNOWN).astype(np.uint8).tobytes())
    return b"".join(parts)


def decoded(raw: bytes, m: int) -> Vector:
    """The day in it; raises Rejected."""
    if len(raw) != m * BYTES:
        raise Rejected("profile", f"{len(raw)} bytes for {m} resources")
    rows = np.frombuffer(raw, np.uint8).reshape(m, BYTES)
    scale = np.frombuffer(rows[:, :4].tobytes(), "<f4").astype(np.float64)
    if not ((scale >= 0) & (scale <= SIZES[1])).all():
        raise Rejected("profile", f"a peak of {scale.max():.3g}")
    steps = rows[:, 4:].astype(np.float64)
    return np.where(steps == UNKNOWN, np.nan, steps / STEPS * scale[:, None])


def read_profile(sent: SentProfile, m: int) -> Profile:
    return Profile(decoded(sent.day, m), sent.median_s, sent.p90_s, sent.ended)


def check_life(seconds: float) -> float:
    """A lifetime [s]; 0 on the wire is unknown."""
    if not 0 <= seconds <= MAX_LIFE_S:
        raise Rejected("profile", f"a lifetime of {seconds:.3g} s")
    return seconds if seconds > 0 else math.nan


def in_units(given: Profile, sizes: Sequence[float] | Vector, to_shares: bool = False) -> Profile:
    """Shares of a node as absolute units, or the other way round."""
    units = np.asarray(sizes, np.float64) if len(sizes) else np.ones(len(given.day))
    day = given.day / units[:, None] if to_shares else given.day * units[:, None]
    return Profile(day.astype(np.float64), given.median_s, given.p90_s, given.ended)


def placed(given: Profile, have: Sequence[str], want: Sequence[str]) -> Profile:
    """Resources named `have` in the order of `want`; NaN where there is none."""
    if tuple(have) == tuple(want):
        return given
    day = spread(given.day.T.astype(np.float64), have, want).T.copy()
    day[[name not in have for name in want]] = np.nan
    return Profile(day, given.median_s, given.p90_s, given.ended)


def merged(reports: Sequence[Profile], mean: Callable[[Vector, Vector], float]) -> Profile | None:
    """One profile of many, per half hour and for lifetimes; None of none. What fewer than half of them know is unknown.

    `mean(values, weights)` is the mean of the middle half.
    """
    if not reports:
        return None
    few = reports[:: -(-len(reports) // MAX_MERGED)]
    days = np.stack([one.day.astype(np.float64) for one in few])
    lives = np.array([[one.median_s, one.p90_s] for one in few])
    flat = np.concatenate([days.reshape(len(few), -1), lives], axis=1)
    found = np.full(flat.shape[1], np.nan)
    for column, values in enumerate(flat.T):
        known = values[~np.isnan(values)]
        needed = 1 if column >= flat.shape[1] - 2 else (len(few) + 1) // 2  # where Pods run for weeks, few have ended
        if len(known) >= max(1, needed):
            found[column] = mean(known, np.ones(len(known)))
    ended = int(np.median([one.ended for one in few]))
    median_s, p90_s = float(found[-2]), float(found[-1])
    if p90_s != p90_s or np.isnan(lives[:, 1]).sum() * 2 > len(few):  # most nodes have seen none end
        median_s, p90_s, ended = math.nan, math.nan, 0
    return Profile(found[:-2].reshape(days.shape[1:]), median_s, p90_s, ended)
