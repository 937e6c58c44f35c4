"""The host's own usage: what the node uses and no Pod does.

Node and Pods are not read in the same instant, so one difference is noise: the median of the last readings is
believed. On the cpu there is a second trap. A Pod stopped by its own quota counts as waiting in the node's pressure,
and where all CPUs are busy that looks like contention: on two cores with two busy loops and a Pod throttled to a fifth
of a core the node reads .763, the Pods' sum is .55. A difference alone may be throttling or a busy host, its timing
decides. Where the node's reading moves again and again by more than the Pods that come and go use by their own
counters, or stays when they leave, Pods are throttled: there the host is the least difference seen lately, and the rest
is *excess*. (Where the caller says what the host uses, as the agent does, nothing of this is needed.)
"""

from collections.abc import Mapping, Sequence
from math import isfinite, nan, sqrt
from typing import Any

from carico_agent.core.pods import PodReadings

READINGS, UNSETTLED_READINGS = 5, 15
"""Differences whose median is the host's usage: the last ones, and more of them while Pods come and go. The node's
usage is smoothed and lags behind the Pods by a second, so a Pod that has just left looks like the host: where 7 Pods of
8 s come and go, three of five readings in a row did so now and then, and the host seemed to take a whole Pod."""

MAX_FIRST_HOST, FIRST_HOST = 0.12, 0.05
"""A first difference beyond the former, which throttling may explain, is taken for throttling: hosts use a few percent
of the cpu."""

MAX_WAITED = 8
"""Readings after which a jump is no longer attributed to newcomers that have still not shown themselves."""

MIN_JUMP, MIN_JUMP_RATIO = 0.05, 0.3
"""A jump is unexplained if it is off by this, and by this part of what came and went: readings are not simultaneous."""

MIN_GONE = 0.12
"""Pods that left must have used this much for a reading that stays to be no job of the host that began meanwhile."""

THROTTLING = 0.4
"""Pods are throttled where this part of the jumps is unexplained. Where jobs of the host happen to begin with a Pod it
is one in eight, with Pods that arrive every 12 s."""

FULL = 0.97
"""From here on a reading of the node is cut off: it says nothing about what is used beyond."""

RISE_PER_READING = 0.0001
"""How fast the least difference is forgotten: .07 in an hour of readings every 5 s."""


class Changes:
    """Pods that came and went, until their own counters say how much of a jump in the node's cpu was theirs."""

    def __init__(self, cpu: int | None) -> None:
        self._cpu = cpu
        self._clear()

    def _clear(self) -> None:
        self._came: set[str] = set()
        self._gone = 0.0
        self._jump = 0.0
        self._waited = 0

    def state(self) -> list[Any]:
        return [sorted(self._came), self._gone, self._jump if self._jump == self._jump else None, self._waited]

    def restore(self, state: Sequence[Any]) -> None:
        came, gone, jump, waited = state
        self._came, self._gone, self._waited = {str(uid) for uid in came}, float(gone), int(waited)
        self._jump = nan if jump is None else float(jump)

    def arrived(self, uid: str) -> None:
        self._came.add(uid)

    def left(self, uid: str, pod: PodReadings) -> None:
        if uid in self._came:
            self._came.discard(uid)
        elif self._cpu is not None and pod.now[self._cpu] == pod.now[self._cpu]:
            self._gone += pod.now[self._cpu]

    def beyond(self, pods: Mapping[str, PodReadings], node: float, jump: float, settled: bool) -> float:
        """By how much the node's cpu moved further than its Pods explain, once all newcomers have shown themselves.

        Or by how much less it fell than Pods have used that left: where quotas stop Pods the node reads as busy without
        them. NaN until then, where Pods came while others went, and where more came than shows: they ramp up.
        """
        self._jump += jump
        self._waited += 1
        if self._cpu is None or not settled or any(not pods[uid].shown for uid in self._came):
            if self._waited > MAX_WAITED:
                self._clear()
            return nan
        came, gone, jump = sum(pods[uid].now[self._cpu] for uid in self._came), self._gone, self._jump
        self._clear()
        if not (came > 0) ^ (gone > 0):
            return nan
        beyond = jump - came if came else -jump - gone
        if beyond > 0 or -beyond < max(MIN_JUMP, MIN_JUMP_RATIO * (came + gone)):
            return beyond
        return -beyond if gone > MIN_GONE and node - jump < FULL else nan


class HostShare:
    """Usage that is no Pod's, per resource, and the excess of the node's cpu reading that has no owner."""

    def __init__(self, m: int, cpu: int | None, cores: int) -> None:
        self.cpu = cpu
        self._power = sqrt(2.0 * (cores + 1))
        self.usage = [nan] * m
        self.excess = 0.0
        self.throttled = False  # quotas stop Pods, so that the node's cpu reading says at most what is used
        self.told = False  # the caller says so; otherwise it is guessed from how usage moves
        self._throttling = 0.5 * THROTTLING  # part of the jumps that is unexplained: two in a row are believed
        self._least = nan  # the least cpu difference seen lately
        self._recent: list[list[float]] = [[] for _ in range(m)]
        self._settled = True

    def learn(self, node: Sequence[float], pods: Sequence[float], beyond: float, settled: bool = True) -> None:
        """Take a reading of the `node` and the sum of its `pods`, NaN where unknown.

        `beyond` is by how much the cpu moved further than Pods explain that came or went; NaN if none did. `settled`:
        none has just come or gone.
        """
        self._settled, self.told = settled, False
        for i, (whole, part) in enumerate(zip(node, pods, strict=True)):
            difference = whole - part
            if difference != difference:
                continue
            if i == self.cpu:
                self._find_excess(max(0.0, difference), part, beyond)
                difference -= self.excess
            self._take(i, difference)

    def known(self, usage: Sequence[float], node: Sequence[float], pods: Sequence[float]) -> None:
        """The caller has measured the host by itself: what the cpu shows beyond it and the Pods is excess.

        Where it has not (NaN), the host is what the node uses and no Pod does.
        """
        self._settled = self.told = True
        for i, x in enumerate(usage):
            derived = node[i] - pods[i]
            if x == x or derived == derived:
                self._take(i, x if x == x else derived)
        self.throttled = self.cpu is not None and usage[self.cpu] == usage[self.cpu]
        if self.cpu is not None and self.usage[self.cpu] == self.usage[self.cpu]:
            host, part = self.usage[self.cpu], pods[self.cpu]
            beyond = min(node[self.cpu] - part - host, self._max_excess(part + host))
            self.excess = beyond if beyond > MIN_JUMP else 0.0

    def excess_of(self, i: int) -> float:
        return self.excess if i == self.cpu else 0.0

    def _take(self, i: int, x: float) -> None:
        recent = self._recent[i]
        recent.append(max(0.0, x))
        del recent[:-UNSETTLED_READINGS]
        self.usage[i] = self._median(recent)

    def _median(self, recent: list[float]) -> float:
        counted = sorted(recent[-READINGS:] if self._settled else recent)
        return counted[len(counted) // 2] if counted else nan

    def _find_excess(self, difference: float, pods: float, beyond: float) -> None:
        if self._least != self._least:  # the first reading of all
            self._least = difference
            if difference > MAX_FIRST_HOST and difference - FIRST_HOST < self._max_excess(pods + FIRST_HOST):
                self._least, self._throttling = FIRST_HOST, 0.5
        self._least = min(self._least + RISE_PER_READING, difference)
        if beyond <= MIN_JUMP:
            self._throttling -= 0.15 * self._throttling
        elif beyond - MIN_JUMP < self._max_excess(pods + self._least):  # more than that was the host
            self._throttling += 0.25 * (1 - self._throttling)
        self.throttled = self._throttling > THROTTLING
        self.excess = 0.0
        if self.throttled:
            self.excess = min(difference - self._least, self._max_excess(pods + self._least))

    def _max_excess(self, busy: float) -> float:
        """How much throttled Pods can add to the cpu reading of a node whose true usage is `busy`.

        The reading is (utilisation + contention)/2, and contention is bounded by utilisation^√(2(cores + 1)), the
        share of time in which a thread waits in a queue with that many servers.
        """
        utilisation = min(1.0, max(0.0, 2 * busy))
        waiting: float = utilisation**self._power
        return max(0.0, (utilisation + waiting) / 2 - busy)

    def state(self) -> dict[str, Any]:
        least = self._least if self._least == self._least else None
        recent = [list(values) for values in self._recent]
        found = {"recent": recent, "excess": self.excess, "throttling": self._throttling, "least": least}
        return found | {"settled": self._settled, "throttled": self.throttled, "told": self.told}

    def restore(self, state: Mapping[str, Any]) -> None:
        recent = [[float(x) for x in values] for values in state["recent"]]
        if len(recent) != len(self._recent) or not all(isfinite(x) for values in recent for x in values):
            raise ValueError("damaged model state: the host's usage")
        self._recent = [values[-UNSETTLED_READINGS:] for values in recent]
        self._settled = bool(state.get("settled", True))  # missing in states saved before it was remembered
        self.usage = [self._median(values) for values in self._recent]
        self.excess, self._throttling = float(state["excess"]), float(state["throttling"])
        self._least = nan if state["least"] is None else float(state["least"])
        self.told = bool(state.get("told", False))  # missing in older states, as the next
        self.throttled = bool(state.get("throttled", self._throttling > THROTTLING))  # missing in older states
