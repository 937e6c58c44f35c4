"""The host's own usage: what the node uses and no Pod does.

Node and Pods are not read in the same instant, so one difference is noise: the median of the last readings is
believed. On the cpu there is a second trap. A Pod stopped by its own quota counts as waiting in the node's pressure,
and where all CPUs are busy nobody can tell that from contention: on two cores with two busy loops and one Pod throttled
to a fifth of a core the node reads .763, the Pods' sum is .55. What appears in the node's reading together with new
Pods, is not theirs by their own counters, and is no more than throttling can explain, is *excess* and not the host.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, nan, sqrt
from typing import Any

READINGS = 5
"""Differences whose median is the host's usage."""

FIRST_HOST = 0.12
"""A host that was never seen without contention is believed to use at most this share of the cpu."""

LEAST_EXCESS = 0.05
"""A difference below this is noise of readings that are not simultaneous."""

MOST_PENDING = 6
"""Readings after which an undecided change is the host's, on a node that always has young Pods."""


class Host:
    """Usage that is no Pod's, per resource, and the excess of the node's cpu reading that is nobody's."""

    def __init__(self, m: int, cpu: int | None, cores: int) -> None:
        self._cpu = cpu
        self._power = sqrt(2.0 * (cores + 1))
        self.usage = [nan] * m
        self.excess = 0.0
        self._recent: list[list[float]] = [[] for _ in range(m)]
        self._before = nan  # the cpu difference before Pods came
        self._pending = 0  # readings since then

    def learn(self, node: Sequence[float], pods: Sequence[float], arrived: bool, young: bool) -> None:
        """Take a reading of the `node` and the sum of its `pods`, NaN where unknown."""
        for i, (whole, part) in enumerate(zip(node, pods, strict=True)):
            difference = whole - part
            if difference != difference:
                continue
            if i == self._cpu:
                self._find_excess(difference, part, arrived, young)
                if self._pending:
                    continue
                difference -= self.excess
            self._take(i, difference)

    def known(self, usage: Sequence[float]) -> None:
        """The caller has measured the host by itself."""
        for i, x in enumerate(usage):
            if x == x:
                self._take(i, x)

    def excess_of(self, i: int) -> float:
        return self.excess if i == self._cpu else 0.0

    def _take(self, i: int, x: float) -> None:
        recent = self._recent[i]
        recent.append(max(0.0, x))
        del recent[:-READINGS]
        self.usage[i] = sorted(recent)[len(recent) // 2]

    def _most_excess(self, busy: float) -> float:
        """How much throttled Pods can add to the cpu reading of a node whose true usage is `busy`.

        The reading is (utilisation + contention)/2, and contention is bounded by utilisation^√(2(cores + 1)), the
        share of time in which somebody waits in a queue with that many servers.
        """
        utilisation = min(1.0, max(0.0, 2 * busy))
        waiting: float = utilisation**self._power
        return max(0.0, (utilisation + waiting) / 2 - busy)

    def _find_excess(self, difference: float, pods: float, arrived: bool, young: bool) -> None:
        host = self.usage[self._cpu or 0]
        if host != host:  # the first reading of all
            host = min(max(0.0, difference), FIRST_HOST)
            self.excess = min(max(0.0, difference - host), self._most_excess(pods + host))
            return
        most = self._most_excess(pods + host)
        if arrived and not self._pending:
            self._pending, self._before = 1, host + self.excess
        if self._pending and young and self._pending < MOST_PENDING:
            self._pending += 1
            return
        if self._pending and not young and difference - self._before > LEAST_EXCESS:
            self.excess += difference - self._before
        self._pending = 0
        self.excess = min(self.excess, most, max(0.0, difference - host))

    def state(self) -> dict[str, Any]:
        before = self._before if self._before == self._before else None
        recent = [list(values) for values in self._recent]
        return {"recent": recent, "excess": self.excess, "before": before, "pending": self._pending}

    def restore(self, state: Mapping[str, Any]) -> None:
        recent = [[float(x) for x in values] for values in state["recent"]]
        if len(recent) != len(self._recent) or not all(isfinite(x) for values in recent for x in values):
            raise ValueError("damaged model state: the host's usage")
        self._recent = [values[-READINGS:] for values in recent]
        self.usage = [sorted(values)[len(values) // 2] if values else nan for values in self._recent]
        self.excess, self._pending = float(state["excess"]), int(state["pending"])
        self._before = nan if state["before"] is None else float(state["before"])
