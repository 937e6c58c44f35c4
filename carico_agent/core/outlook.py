"""Outlook: what the Pods that run now will use together at most in the next hours, learned on the node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from carico_agent.core.forecast import forecast, parts_of
from carico_agent.core.history import DAY_SLOTS, SLOT_S, SLOTS, Array, Singles, UsageHistory
from carico_agent.core.lifetimes import Lifetime, Lifetimes
from carico_agent.core.pods import PodSample
from carico_agent.core.profile import Profile, profile_of

STATE_VERSION = 1

MAX_JUMP_S = 86400.0
"""When the clock jumps ahead by more than this [s], the history before it is kept for CONFIRMATIONS observations: a
clock that was wrong for a moment must not cost a week of memory."""
CONFIRMATIONS = 5

MAX_PAUSE_S = 900.0
"""After a longer pause [s] Pods that are gone have ended at an unknown time."""

RISE_PODS = (0.0, 1.0, 4.0, 16.0, 64.0)
RISE_QUANTILES = (0.5, 0.95, 0.99)
MAX_RISES = 64
"""Answers kept until the next observation."""

MODES = ("unknown", "first day", "known")


@dataclass(frozen=True, slots=True)
class Band:
    """What the Pods that run now will use together in one step of the coming hours, per resource."""

    t: float
    """Start of the step [unix s]."""
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]


class Rises:
    """By how much what runs now will rise, per quantile and resource, with each of RISE_PODS more (NaN: unknown)."""

    def __init__(self, rises: Array, known: float) -> None:
        """`rises`: number of Pods × quantile × resource; `known`: share of the added Pods whose past is in them."""
        self.known = known
        self._rises = np.transpose(np.maximum(rises, 0.0), (1, 2, 0)).tolist()

    def first(self, quantile: int) -> list[float]:
        """Per resource, without a Pod more."""
        return [row[0] for row in self._rises[quantile]]

    def fits(self, resource: int, quantile: int, room: float, flat: float) -> float:
        """How many Pods more until the rise, and `flat` for each of them, fills the room; inf if nothing is known.

        Between the tabled numbers of Pods a straight line, which is never too little: peaks add up convexly.
        """
        rises = self._rises[quantile][resource]
        if rises[0] != rises[0] or room != room:
            return inf
        if rises[0] > room:
            return 0.0
        needed = [rise + n * flat for rise, n in zip(rises, RISE_PODS, strict=True)]
        last = len(needed) - 1
        at = next((k for k in range(1, last) if needed[k] > room), last)
        slope = (needed[at] - needed[at - 1]) / (RISE_PODS[at] - RISE_PODS[at - 1])
        return RISE_PODS[at - 1] + (room - needed[at - 1]) / slope if slope > 1e-9 else inf


class Outlook:
    """Believes that the coming hours resemble the same hours of the last days, for the Pods that run now.

    `observe` takes all Pods that run, once a minute or less often, by the wall clock [unix s]. `peak` answers per
    resource, in the unit of the Pods' usage:

    >>> o = Outlook(resources=("cpu",))
    >>> o.peak(86400.0)
    (nan,)
    >>> for slot in range(3 * 288):                            # three days; busy from 12:00 to 13:00
    ...     busy = slot % 288 in range(144, 156)
    ...     o.observe(slot * 300.0, [PodSample("a", "shop/web", (0.5 if busy else 0.1,))])
    >>> [round(o.peak(hours * 3600.0)[0], 1) for hours in (1, 24)]
    [0.2, 0.5]
    >>> o.mode, o.peak_time(86400.0) % 86400.0 / 3600.0
    ('known', 12.0)

    Memory: half a megabyte with 64 workloads and 2 resources. Source of the comparison: lab/traces.
    """

    def __init__(self, resources: Sequence[str] = ("cpu", "memory")) -> None:
        self.resources = tuple(resources)
        if not self.resources or len(set(self.resources)) != len(self.resources):
            raise ValueError(f"resources must be distinct names, at least one; got {self.resources}")
        self._m = len(self.resources)
        self._history = UsageHistory(self._m)
        self._lifetimes = Lifetimes()
        self._t = nan
        self._aside: tuple[float, int, UsageHistory] | None = None  # time, observations since, history before a jump
        self._running: dict[int, float] = {}  # row of the history → Pods now
        self._elsewhere: dict[str, Profile] = {}  # what other nodes know
        self._made: tuple[Singles, Array] | None = None  # series and parts, made when asked for
        self._peaks: dict[tuple[float, int], float] = {}
        self._rises: dict[tuple[float, str], Rises] = {}

    # ---- in

    def observe(self, t: float, pods: Sequence[PodSample]) -> None:
        """Take what each Pod that runs now uses, at `t` by the wall clock [unix s]."""
        if not isfinite(t) or t < 0:
            raise ValueError(f"time {t} is not a time of the wall clock")
        for pod in pods:
            pod.check(self._m)
        self._follow_clock(t)
        self._forget_answers()
        self._history.advance(int(t // SLOT_S))
        keep = {pod.workload for pod in pods}
        rows = [self._history.row(pod.workload, keep) for pod in pods]
        self._running = {}
        for row in rows:
            self._running[row] = self._running.get(row, 0.0) + 1.0
        usage = np.array([pod.usage for pod in pods], float).reshape(len(pods), self._m)
        self._history.take(rows, np.maximum(usage, 0.0))
        self._lifetimes.observe(t, [(pod.uid, pod.workload) for pod in pods])
        self._lifetimes.keep(self._history.names)
        self._t = t

    def _follow_clock(self, t: float) -> None:
        """Keep what was known before the clock jumped far ahead, until it is clear that it did; or take it back."""
        if self._t != self._t:
            return
        if self._aside is not None:
            before_t, count, history = self._aside
            if 0 <= t - before_t <= MAX_JUMP_S:  # the clock was wrong, and is right again
                self._history, self._aside, self._t = history, None, before_t
            else:
                self._aside = (before_t, count + 1, history) if count + 1 < CONFIRMATIONS else None
        elif t - self._t > MAX_JUMP_S:
            self._aside = (self._t, 1, self._history.copy())
        if not 0 <= t - self._t <= MAX_PAUSE_S:
            self._lifetimes.pause()

    def learn_elsewhere(self, profiles: Mapping[str, Profile]) -> None:
        """What other nodes know of workloads, replacing what they knew before: used where this node knows nothing."""
        for profile in profiles.values():
            profile.check(self._m)
        self._elsewhere = dict(profiles)
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._made = None
        self._rises.clear()
        self._peaks.clear()

    # ---- out

    @property
    def mode(self) -> str:
        """unknown, first day (until a day was seen: the forecast is wide), or known."""
        slots = self._history.known_slots
        return MODES[0] if not slots else MODES[1] if slots < DAY_SLOTS else MODES[2]

    @property
    def known_s(self) -> float:
        """How much of the last week was observed [s]."""
        return self._history.known_slots * SLOT_S

    def peak(
        self, horizon_s: float, quantile: float = 0.95, added: Mapping[str, float] | None = None
    ) -> tuple[float, ...]:
        """Per resource: what those that run now will use together at most within the horizon [s], by that quantile.

        `added` asks the same with so many more Pods of these workloads. NaN until anything was observed.
        """
        return self.peaks(horizon_s, (quantile,), added)[0]

    def peaks(
        self, horizon_s: float, quantiles: Sequence[float], added: Mapping[str, float] | None = None
    ) -> list[tuple[float, ...]]:
        """The same for several quantiles, at the price of little more than one."""
        if not all(0 < q < 1 for q in quantiles) or not horizon_s >= 0:
            raise ValueError(f"horizon {horizon_s} s and quantiles {quantiles}: at least 0, and between 0 and 1")
        if not self._history.known_slots:
            return [(nan,) * self._m for _ in quantiles]
        series, parts = self.together()
        if added:
            more, more_parts = self._sum_of(added)
            series, parts = series + more, parts + more_parts
        return [tuple(row) for row in forecast(series, parts, horizon_s / SLOT_S, quantiles).tolist()]

    def rises(self, horizon_s: float, one: Mapping[str, float], name: str = "") -> "Rises":
        """How far usage rises within the horizon [s] with 0 to 64 more Pods, one of which is this mixture of workloads.

        Kept under `name` until the next observation: the question is asked every second, the answer changes once a
        minute, and a mixture hardly moves meanwhile.
        """
        key = (horizon_s, name)
        if key not in self._rises:
            if len(self._rises) >= MAX_RISES:
                self._rises.clear()
            self._rises[key] = self._find_rises(horizon_s, one)
        return self._rises[key]

    def _find_rises(self, horizon_s: float, one: Mapping[str, float]) -> "Rises":
        if not self._history.known_slots:
            return Rises(np.full((len(RISE_PODS), len(RISE_QUANTILES), self._m), np.nan), 0.0)
        series, parts = self.together()
        more, more_parts = self._sum_of(one)
        now = np.array(self.now)
        found = [
            forecast(series + np.float32(n) * more, parts + n * more_parts, horizon_s / SLOT_S, RISE_QUANTILES) - now
            for n in RISE_PODS
        ]
        return Rises(np.array(found), sum(share for name, share in one.items() if self.knows(name)))

    @property
    def now(self) -> tuple[float, ...]:
        """What those that run now use together; NaN until anything was observed."""
        if not self._history.known_slots:
            return (nan,) * self._m
        return tuple(self.together()[0][:, -1].tolist())

    def peak_time(self, horizon_s: float, resource: str | None = None) -> float:
        """When the highest step of the coming hours begins [unix s]: ten minutes of a resource, of the first one if
        this is none. NaN until a day was seen."""
        if self.mode != "known":
            return nan
        at = self.resources.index(resource) if resource in self.resources else 0
        key = (horizon_s, at)
        if key not in self._peaks:
            bands = self.band(max(SLOT_S, min(horizon_s, DAY_SLOTS * SLOT_S)), 2 * SLOT_S)
            best = max(bands, key=lambda band: band.middle[at] if band.middle[at] >= 0 else -1.0)
            self._peaks = {key: best.t}
        return self._peaks[key]

    def band(self, horizon_s: float = 86400.0, step_s: float = 1800.0) -> list[Band]:
        """The coming hours in steps: lowest, mean and highest of the same times on the days before; [] on day one."""
        if self.mode != "known":
            return []
        series, width = self.together()[0], max(1, round(step_s / SLOT_S))
        days = series.reshape(self._m, -1, DAY_SLOTS)  # the last slot of each row is this time of the day
        known = ~np.isnan(days)
        low = np.where(known, days, np.inf).min(1)
        high = np.where(known, days, -np.inf).max(1)
        middle = np.where(known, days, 0.0).sum(1) / np.maximum(known.sum(1), 1)
        start = (self._history.slot + 1) * SLOT_S
        bands = []
        for first in range(0, min(int(horizon_s / SLOT_S), DAY_SLOTS), width):
            hours = slice(first, first + width)
            values = low[:, hours].min(1), middle[:, hours].max(1), high[:, hours].max(1)
            sides = [tuple(x if isfinite(x) else nan for x in side.tolist()) for side in values]
            bands.append(Band(start + first * SLOT_S, sides[0], sides[1], sides[2]))
        return bands

    def past(self, span_s: float = 86400.0, step_s: float = 1800.0) -> list[Band]:
        """The same for the hours that have passed: what the Pods that run now would have used then."""
        if not self._history.known_slots:
            return []
        width = max(1, round(step_s / SLOT_S))
        steps = min(int(span_s / SLOT_S), SLOTS) // width
        series = self.together()[0][:, SLOTS - steps * width :].reshape(self._m, steps, width)
        known = ~np.isnan(series)
        low, high = np.where(known, series, np.inf).min(2), np.where(known, series, -np.inf).max(2)
        middle = np.where(known, series, 0.0).sum(2) / np.maximum(known.sum(2), 1)
        start = (self._history.slot + 1) * SLOT_S - steps * width * SLOT_S
        sides = [np.where(np.isfinite(high), side, np.nan).T.tolist() for side in (low, middle, high)]
        rows = zip(*sides, strict=True)
        return [Band(start + k * width * SLOT_S, *map(tuple, row)) for k, row in enumerate(rows)]

    def lifetime(self, workload: str) -> Lifetime:
        """As seen here; as other nodes know it if no Pod of it has ended here."""
        own = self._lifetimes.of(workload)
        theirs = self._elsewhere.get(workload)
        if own.ended or theirs is None:
            return own
        return Lifetime(theirs.median_s, theirs.p90_s, theirs.ended, own.running, own.oldest_s)

    def profile(self, workload: str) -> Profile | None:
        """Its day and its lifetimes by this node's own evidence, for others; None if it never ran here."""
        row = self._history.find(workload)
        if row is None or not self._history.ran(workload):
            return None
        return profile_of(self._history.day_of(row), self._lifetimes.of(workload))

    def knows(self, workload: str) -> bool:
        """How much its Pods use over the day is known, from here or from elsewhere."""
        return workload in self._elsewhere or self._history.ran(workload)

    def together(self) -> tuple[Singles, Array]:
        """What those that run now would have used in each slot of the last week, and their `parts`."""
        if self._made is None:
            self._made = self._together(list(self._running), np.array(list(self._running.values()), float))
        return self._made

    def _together(self, rows: list[int], pods: Array) -> tuple[Singles, Array]:
        if not rows:
            empty = self._history.in_order(np.where(self._history.observed, np.float32(0.0), np.float32(np.nan)))
            return np.tile(empty, (self._m, 1)), np.zeros(self._m)
        names = self._history.names
        elsewhere = {row: self._elsewhere[names[row]].slots for row in rows if names[row] in self._elsewhere}
        per_pod = self._history.per_pod(rows, elsewhere)
        unknown = np.isnan(per_pod).all(axis=2, keepdims=True)  # a resource that is not measured in this workload
        known_somewhere = ~unknown.all(axis=0)
        total = np.einsum("w,wms->ms", pods.astype(np.float32), np.where(unknown, np.float32(0.0), per_pod))
        series = np.where(known_somewhere, total, np.float32(np.nan)) * self._history.peak_ratio()
        return self._history.in_order(series.astype(np.float32)), parts_of(self._history.last_day(rows, per_pod), pods)

    def _sum_of(self, pods: Mapping[str, float]) -> tuple[Singles, Array]:
        """The same for Pods that do not run yet; workloads that are known nowhere add nothing."""
        rows, counts = [], []
        series, parts = np.zeros((self._m, SLOTS), np.float32), np.zeros(self._m)
        for name, n in pods.items():
            row = self._history.find(name)
            if row is not None and self._history.ran(name):
                rows.append(row)
                counts.append(n)
            elif (theirs := self._elsewhere.get(name)) is not None:
                first = (self._history.slot + 1) % DAY_SLOTS
                day = np.nan_to_num(np.roll(theirs.slots, -first, axis=1)).astype(np.float32)
                series += np.float32(n) * np.tile(day, (1, SLOTS // DAY_SLOTS))
                parts += n * np.quantile(day, 0.99, axis=1)
        if rows:
            own, own_parts = self._together(rows, np.array(counts, float))
            series = series + np.nan_to_num(own)
            parts = parts + np.nan_to_num(own_parts)
        return series, parts

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        """Everything of this node's own, JSON-able: a restored Outlook gives the same answers to the same Pods."""
        return {
            "version": STATE_VERSION,
            "resources": list(self.resources),
            "t": self._t if self._t == self._t else None,
            "history": self._history.state(),
            "lifetimes": self._lifetimes.state(),
            "running": [[self._history.names[row], n] for row, n in self._running.items()],
            "aside": None if self._aside is None else [*self._aside[:2], self._aside[2].state()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Outlook":
        """Raises ValueError on a state that is damaged or of another version."""
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise ValueError(f"not an outlook of version {STATE_VERSION}")
        try:
            made = cls(tuple(state["resources"]))
            made._t = nan if state["t"] is None else float(state["t"])
            made._history = UsageHistory.from_state(state["history"], made._m)
            made._lifetimes = Lifetimes.from_state(state["lifetimes"])
            if state["aside"] is not None:
                t, count, history = state["aside"]
                made._aside = (float(t), int(count), UsageHistory.from_state(history, made._m))
            for name, n in state["running"]:
                row = made._history.find(str(name))
                if row is None:
                    raise ValueError(f"damaged outlook: {name!r} runs and is not known")
                made._running[row] = float(n)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"damaged outlook: {error!r}") from error
        return made
