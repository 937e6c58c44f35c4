"""One node through a trace: carico's real Outlook in the loop, the baselines beside it, the truth after it.

The truth at an instant is the most that those running then use together within the horizon; one that ends uses nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from carico_agent.core import Outlook, PodSample
from lab.traces.baselines import BASELINES, n_sigma, rc_like
from lab.traces.data import DAY_SLOTS, Array, TraceSet

HORIZONS = {"1 h": 12, "6 h": 72, "24 h": 288}
QUANTILES = (0.9, 0.95, 0.99)
CURVE_QUANTILES = (0.5, 0.8, 0.9, 0.95, 0.99)
CURVE_N = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0)
CURVE_PERCENTILES = (50.0, 80.0, 90.0, 95.0, 99.0, 100.0)
SLOT_S = 300.0
HISTORY = 7 * DAY_SLOTS


@dataclass(frozen=True)
class TraceCase:
    """One prediction problem: all values as a share of the node (Σ limits)."""

    node: int
    slot: int
    horizon: str
    truth: float
    predicted: dict[str, float]


@dataclass(frozen=True)
class TracedNode:
    """A node at one slot, with its Outlook up to it."""

    slot: int
    outlook: Outlook
    usage: Array
    """Of those that run now, from the beginning to the end of the trace, as shares of the node."""
    limit: Array

    def truth(self, horizon: int) -> float:
        return float(np.nansum(self.usage[:, self.slot : self.slot + horizon + 1], axis=0).max())


def moments(traces: TraceSet, rows: Array, every: int, first: int = 6) -> Iterator[TracedNode]:
    """The node's life, stopped every so many slots, while a whole day follows."""
    node = float(traces.limit[rows].sum())
    usage = np.asarray(traces.usage[rows], float) / node
    limit = traces.limit[rows] / node
    outlook, names = Outlook(("cpu",)), [f"vm-{row}" for row in rows]
    slots = usage.shape[1]
    for slot in range(slots - DAY_SLOTS):
        now = usage[:, slot]
        running = np.flatnonzero(~np.isnan(now))
        outlook.observe(
            traces.start_t + slot * SLOT_S, [PodSample(names[i], names[i], (float(now[i]),)) for i in running]
        )
        if slot >= first and (slot - first) % every == 0 and len(running) >= 3:
            yield TracedNode(slot, outlook, usage[running], limit[running])


def cases(traces: TraceSet, number: int, rows: Array, every: int) -> list[TraceCase]:
    """Every question of one node, with all answers."""
    found = []
    for moment in moments(traces, rows, every):
        known = moment.usage[:, max(0, moment.slot + 1 - HISTORY) : moment.slot + 1]
        once = {f"n {n:g}": n_sigma(n)(known, moment.limit, 0) for n in CURVE_N}
        once |= {f"p {p:g}": rc_like(p)(known, moment.limit, 0) for p in CURVE_PERCENTILES}
        for name, horizon in HORIZONS.items():
            said = {
                base: predict(known, moment.limit, horizon)
                for base, predict in BASELINES.items()
                if base in ("now", "persistence")
            }
            said |= {"N-sigma": once["n 5"], "RC-like": once["p 99"], "max of both": max(once["n 5"], once["p 99"])}
            peaks = moment.outlook.peaks(horizon * SLOT_S, CURVE_QUANTILES)
            said |= {f"carico {q:g}": peak[0] for q, peak in zip(CURVE_QUANTILES, peaks, strict=True)}
            found.append(TraceCase(number, moment.slot, name, moment.truth(horizon), said | once))
    return found


def pinball(truth: Array, predicted: Array, quantile: float) -> Array:
    """q·(y − p) where the prediction was short, (1 − q)·(p − y) where it was more than enough."""
    return np.where(truth > predicted, quantile * (truth - predicted), (1 - quantile) * (predicted - truth))
