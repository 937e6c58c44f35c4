"""A week of what each workload's Pods use, in slots of five minutes of the wall clock, in bounded memory.

Why per workload and not only the sum: Pods come and go, so last Tuesday's sum is another node's. What *those that run
now* would have used then is Σ over workloads of (Pods now × what one Pod used then), which keeps that workloads peak
together or apart. Summing each workload's own peak instead (RC-like) is too much at 1 h and too little at 24 h.

A week is 7 × 288 slots, so the position in the ring is the time of the day and of the week. A slot in which nothing
was observed is a gap; a slot in which a workload did not run is filled by what the workload uses at that time of day.
"""

import base64
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Singles = NDArray[np.float32]

SLOT_S = 300.0
DAY_SLOTS, DAYS = 288, 7
SLOTS = DAYS * DAY_SLOTS

MAX_WORKLOADS = 64
"""Workloads remembered on one node: 2 resources × 2 bytes × 2016 slots × 64 are half a megabyte."""

OTHER = "other"

RECENT_RATIO = 0.8
"""Each day counts this much of the next one where a workload's time of day stands in for a slot it did not run in."""


class UsageHistory:
    """Per workload and resource the mean of one Pod in each slot; per resource how far the sum's peak in a slot lay
    above its mean. `slot` is the newest (unix seconds / 300), −1 before anything was observed."""

    def __init__(self, m: int) -> None:
        self.m = m
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._usage = np.full((0, m, SLOTS), np.nan, np.float16)
        self._peak_ratio = np.ones((m, SLOTS), np.float16)
        self.observed = np.zeros(SLOTS, bool)
        self.slot = -1
        self._total = np.zeros((0, m))  # of the newest slot
        self._counted = np.zeros((0, m))
        self._last_slot = np.zeros(0, np.int64)  # in which each workload last ran
        self._sums = [0.0] * m
        self._sum_most = [0.0] * m
        self._sum_count = 0

    # ---- in

    def advance(self, slot: int) -> None:
        """Time passes until `slot`: what lies between is a gap, and what is older than a week is forgotten."""
        if slot == self.slot:
            return
        if slot < self.slot:
            self._clear(slot + 1, min(self.slot, slot + SLOTS))  # the clock was set back: the future is not known yet
        elif self.slot >= 0:
            self._clear(self.slot + 1, min(slot, self.slot + SLOTS))
        if slot >= self.slot or not self.observed[slot % SLOTS]:
            self._clear(slot, slot)
        self.slot = slot
        self._total[:], self._counted[:] = 0.0, 0.0
        self._sums, self._sum_most, self._sum_count = [0.0] * self.m, [0.0] * self.m, 0

    def _clear(self, first: int, last: int) -> None:
        where = np.arange(first, last + 1) % SLOTS
        self._usage[:, :, where] = np.nan
        self._peak_ratio[:, where] = 1.0
        self.observed[where] = False

    def take(self, rows: Sequence[int], usage: Array) -> None:
        """One observation of the newest slot: the workload and usage of each Pod that runs."""
        at, known = np.asarray(rows, np.int64), ~np.isnan(usage)
        for i in range(self.m):
            ok, row = known[:, i], at[known[:, i]]
            count = np.bincount(row, minlength=len(self.names)).astype(float)
            total = np.bincount(row, usage[ok, i], minlength=len(self.names))
            ran = count > 0
            self._total[ran, i] += total[ran] / count[ran]
            self._counted[ran, i] += 1.0
            together = float(usage[ok, i].sum())
            self._sums[i] += together
            self._sum_most[i] = max(self._sum_most[i], together)
        self._sum_count += 1
        self._last_slot[at] = self.slot
        self._write()

    def _write(self) -> None:
        where = self.slot % SLOTS
        with np.errstate(invalid="ignore", divide="ignore"):
            self._usage[:, :, where] = self._total / self._counted
        self.observed[where] = True
        for i, (total, most) in enumerate(zip(self._sums, self._sum_most, strict=True)):
            mean = total / self._sum_count
            self._peak_ratio[i, where] = most / mean if mean > 0 else 1.0

    def row(self, name: str, keep: set[str]) -> int:
        """The row of a workload, made if it is new; for want of room the one not seen for longest goes, unless all are
        in `keep`: then the row of OTHER."""
        found = self._rows.get(name)
        if found is not None:
            return found
        if len(self.names) < MAX_WORKLOADS - 1 or (name == OTHER and len(self.names) < MAX_WORKLOADS):
            return self._add(name)
        idle = [i for i, known in enumerate(self.names) if known not in keep and known != OTHER]
        if not idle:
            return self._rows[OTHER] if OTHER in self._rows else self._add(OTHER)
        row = min(idle, key=lambda i: (self._last_slot[i], self.names[i]))
        del self._rows[self.names[row]]
        self.names[row] = name
        self._rows[name] = row
        self._usage[row], self._total[row], self._counted[row] = np.nan, 0.0, 0.0
        self._last_slot[row] = self.slot
        return row

    def _add(self, name: str) -> int:
        self._rows[name] = len(self.names)
        self.names.append(name)
        self._usage = np.concatenate([self._usage, np.full((1, self.m, SLOTS), np.nan, np.float16)])
        self._total = np.concatenate([self._total, np.zeros((1, self.m))])
        self._counted = np.concatenate([self._counted, np.zeros((1, self.m))])
        self._last_slot = np.append(self._last_slot, self.slot)
        return self._rows[name]

    # ---- out

    def find(self, name: str) -> int | None:
        return self._rows.get(name)

    def ran(self, name: str) -> bool:
        """Some slot knows what this workload uses."""
        row = self._rows.get(name)
        return row is not None and not bool(np.isnan(self._usage[row]).all())

    def per_pod(self, rows: Sequence[int], elsewhere: Mapping[int, Singles]) -> Singles:
        """What one Pod of each of `rows` used in each observed slot, in the order of the ring; gaps are NaN.

        `elsewhere` has the day of workloads as other nodes know it, per resource and slot of the day: it stands in
        where a workload has not run here at that time of day.
        """
        usage = self._usage[np.asarray(rows, np.int64)].astype(np.float32)
        missing = np.isnan(usage) & self.observed  # an unobserved slot is NaN in every row
        for k in np.flatnonzero(missing.any(axis=(1, 2))).tolist():
            day = self._day(usage[k])
            theirs = elsewhere.get(rows[k])
            if theirs is not None:
                day = np.where(np.isnan(day), theirs, day)
            mean = _mean(usage[k])
            day = np.where(np.isnan(day), mean[:, None], day)
            usage[k] = np.where(missing[k], np.tile(day, (1, DAYS)), usage[k])
        return usage

    def in_order(self, ring: Singles) -> Singles:
        """Slots of the ring, its last axis, oldest first."""
        return np.roll(ring, -(self.slot % SLOTS) - 1, axis=-1)

    def last_day(self, rows: Sequence[int], filled: Singles) -> Singles:
        """What one Pod used in the last 24 hours, oldest first: as seen, and only where nothing was, as `filled`.

        Why as seen: a workload that started an hour ago has 23 hours of means, which hide its percentiles.
        """
        at = (self.slot + 1 - DAY_SLOTS + np.arange(DAY_SLOTS)) % SLOTS
        seen = self._usage[np.asarray(rows, np.int64)[:, None], :, at].transpose(0, 2, 1).astype(np.float32)
        return np.where(np.isnan(seen).all(axis=2, keepdims=True), filled[..., at], seen)

    def _day(self, usage: Singles) -> Singles:
        """Mean over the days, recent ones more, per resource and slot of the day; NaN where none is known."""
        age_days = ((self.slot - np.arange(SLOTS)) % SLOTS) // DAY_SLOTS
        known = ~np.isnan(usage)
        weight = np.where(known, np.power(np.float32(RECENT_RATIO), age_days.astype(np.float32)), np.float32(0.0))
        shape = (self.m, DAYS, DAY_SLOTS)
        total = (np.where(known, usage, np.float32(0.0)) * weight).reshape(shape).sum(1)
        weights = weight.reshape(shape).sum(1)
        return np.where(weights > 0, total / np.maximum(weights, np.float32(1e-9)), np.float32(np.nan))

    def day_of(self, row: int) -> Singles:
        """A workload's day: what one Pod uses, per resource and slot of the day (UTC); NaN where unknown."""
        return self._day(self._usage[row].astype(np.float32))

    def peak_ratio(self) -> Singles:
        """How far the sum's peak lay above its mean within each slot, in the order of the ring."""
        return self._peak_ratio.astype(np.float32)

    @property
    def known_slots(self) -> int:
        return int(self.observed.sum())

    def copy(self) -> "UsageHistory":
        return UsageHistory.from_state(self.state(), self.m)

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "slot": self.slot,
            "usage": _packed(self._usage),
            "peak_ratio": _packed(self._peak_ratio),
            "observed": _packed(np.packbits(self.observed)),
            "total": self._total.tolist(),
            "counted": self._counted.tolist(),
            "last_slot": self._last_slot.tolist(),
            "sums": [self._sums, self._sum_most, self._sum_count],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], m: int) -> "UsageHistory":
        made = cls(m)
        made.names = [str(name) for name in state["names"]]
        n = len(made.names)
        if n > MAX_WORKLOADS or len(set(made.names)) != n:
            raise ValueError(f"damaged outlook: {n} workloads")
        made._rows = {name: i for i, name in enumerate(made.names)}
        made.slot = int(state["slot"])
        made._usage = _unpacked(state["usage"], np.float16, (n, m, SLOTS))
        made._peak_ratio = _unpacked(state["peak_ratio"], np.float16, (m, SLOTS))
        made.observed = np.unpackbits(_unpacked(state["observed"], np.uint8, (SLOTS // 8,))).astype(bool)
        made._total = np.array(state["total"], float).reshape(n, m)
        made._counted = np.array(state["counted"], float).reshape(n, m)
        made._last_slot = np.array(state["last_slot"], np.int64).reshape(n)
        sums, most, count = state["sums"]
        made._sums, made._sum_most, made._sum_count = [float(x) for x in sums], [float(x) for x in most], int(count)
        if len(made._sums) != m or len(made._sum_most) != m or not all(map(isfinite, made._sums)):
            raise ValueError("damaged outlook: sums")
        return made


def _mean(usage: Singles) -> Singles:
    """Per resource; NaN where nothing is known."""
    known = ~np.isnan(usage)
    count = known.sum(1)
    total = np.where(known, usage, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def _packed(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _unpacked(text: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    packed = base64.b64decode(text, validate=True)
    if len(packed) != int(np.prod(shape)) * np.dtype(dtype).itemsize:
        raise ValueError(f"damaged outlook: {len(packed)} bytes for {shape}")
    return np.frombuffer(packed, dtype).reshape(shape).copy()
