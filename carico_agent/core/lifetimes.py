"""How long the Pods of each workload live: median and 90th percentile of those that ended, and age of those that run.

A workload's own lifetime is the time for which a new Pod of it needs room: minutes for a Job, the day for a Deployment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

MAX_ENDED = 32
"""Ended Pods remembered per workload: the last ones."""

DAY_S = 86400.0
MIN_HORIZON_S = 60.0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Lifetime of a workload's Pods; NaN where none has ended."""

    median_s: float = nan
    p90_s: float = nan
    ended: int = 0
    running: int = 0
    oldest_s: float = 0.0
    """Age of the oldest that runs, or for how long it is known to run [s]."""

    @property
    def horizon_s(self) -> float:
        """For how long a new Pod needs room [s]: the day while none has ended, or those that run outlive the others."""
        if self.p90_s != self.p90_s:
            return DAY_S
        return min(max(self.p90_s, self.oldest_s, MIN_HORIZON_S), DAY_S)


class Lifetimes:
    """Takes who runs; remembers how long those lived that ended. Bounded by MAX_ENDED per workload."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float, bool]] = {}  # uid → workload, first seen [s], its start was seen
        self._ended: dict[str, list[float]] = {}
        self._t = -inf

    def observe(self, t: float, pods: Sequence[tuple[str, str]]) -> None:
        """All Pods that run at `t`: uid and workload."""
        shift_s = t - self._t if t < self._t else 0.0  # the clock was set back: ages stay what they were
        before, self._since = self._since, {}
        watching = self._t > -inf
        for uid, workload in pods:
            known = before.pop(uid, None)
            if known is None or known[0] != workload:
                self._since[uid] = (workload, t, watching)
            else:
                self._since[uid] = (workload, known[1] + shift_s, known[2])
        for workload, since_t, start_seen in before.values():
            if start_seen:
                ended = self._ended.setdefault(workload, [])
                ended.append(max(0.0, self._t - since_t))
                del ended[:-MAX_ENDED]
        self._t = t

    def pause(self) -> None:
        """The clock jumped or the agent was away: Pods gone since ended at an unknown time, and teach nothing."""
        self._since = {uid: (workload, since_t, False) for uid, (workload, since_t, _) in self._since.items()}

    def keep(self, names: Sequence[str]) -> None:
        """Forget workloads that are not among `names`."""
        kept = set(names)
        self._ended = {name: ages for name, ages in self._ended.items() if name in kept}

    def of(self, workload: str) -> Lifetime:
        ended = sorted(self._ended.get(workload, ()))
        ages = [self._t - since_t for name, since_t, _ in self._since.values() if name == workload]
        oldest_s = max(ages, default=0.0)
        if not ended:
            return Lifetime(running=len(ages), oldest_s=oldest_s)
        return Lifetime(_at(ended, 0.5), _at(ended, 0.9), len(ended), len(ages), oldest_s)

    def state(self) -> dict[str, Any]:
        since = [[uid, *known] for uid, known in self._since.items()]
        ended = {name: list(ages) for name, ages in self._ended.items()}
        return {"t": self._t if isfinite(self._t) else None, "since": since, "ended": ended}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Lifetimes":
        made = cls()
        made._t = -inf if state["t"] is None else float(state["t"])
        made._since = {str(uid): (str(name), float(t), bool(seen)) for uid, name, t, seen in state["since"]}
        made._ended = {str(name): [float(x) for x in ages][-MAX_ENDED:] for name, ages in state["ended"].items()}
        if not all(isfinite(x) for ages in made._ended.values() for x in ages):
            raise ValueError("damaged outlook: lifetimes")
        return made


def _at(ordered: Sequence[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
