"""What is worth a write to the Kubernetes API, and when.

A node's number changes ten times a second. That the agent is alive stands in the node's Lease, once a minute
(own_lease.py); the Node object is written only when the whole number, the mode or the workloads that matter have
changed: every write of a Node goes to all who watch nodes. What consumers need is `slots`, so mostly that decides: it
hardly moves when Pods come and go.

Three stages. `Lowest` keeps the low side of the last seconds: a rise counts once it has held, a fall at once. `steady`
turns the real number into a whole one that does not flap: 7.9, 8.1, 7.9 … stays what it was. The WriteThrottle then
says when.

A fall is written within a second or two, whatever was written before. Everything else needs credit, which grows by one
write per `pace_s` (pace.py: longer in a larger cluster). Falls take from the same credit, so they delay the next rise,
and without rises there is nothing to fall from: on the average a node writes once per pace, however its load wanders.
In the limit a large cluster publishes the low side of its numbers: too few places cost a little throughput, too many
hurt running Pods. For the same reason a fall counts from 0.1 of a Pod on and a rise from 0.3; the first place rises
from 0, or a node that fits one Pod would stay closed.

Why no relative threshold alone (koordinator, crane: 10 %): on a node with 8 slots one Pod is 12 %, on one with 100 it
is noise; so both, a step of at least one Pod and at least `min_ratio` of what was published.
"""

from collections import deque
from dataclasses import dataclass
from math import floor, inf, nan

WORK_RATIO = 0.25
"""Work left is written when it has moved by this part: a job that ends in ten minutes is worth some ten writes."""
MIN_WORK_S = 30.0
"""And by this much at least [CPU seconds]."""


@dataclass(frozen=True, slots=True)
class ThrottleConfig:
    """When to write. The defaults keep a quiet node at one write of its Lease a minute."""

    min_interval_s: float = 5.0
    """Least time between two writes of the Node that are no falls [s], and the shortest pace."""
    fall_interval_s: float = 1.0
    """Least time between any two writes of the Node [s]."""
    heartbeat_s: float = 60.0
    """Renew the Lease after this long without another write of it [s]; without a Lease, write the Node again."""
    refresh_s: float = 600.0
    """Write the Node again after this long without a change [s]: what stands beside the whole number grows old."""
    ttl_s: float = 150.0
    """How long consumers may believe a heartbeat [s]: one may get lost."""
    rise: float = 0.3
    """Places appear when the number is this far above the next whole one [Pods]."""
    fall: float = 0.1
    """Places vanish when the number is this far below what was published [Pods]."""
    min_ratio: float = 0.03
    """Changes smaller than this share of what was published are not worth a write."""
    hold_s: float = 3.0
    """Places of the extended resource appear when the higher number has held for this long [s]."""

    def problems(self) -> list[str]:
        found = []
        if not 0 < self.min_interval_s <= self.heartbeat_s:
            found.append(f"min_interval_s: {self.min_interval_s} must be positive and at most heartbeat_s")
        if not 0 < self.fall_interval_s <= self.min_interval_s:
            found.append(f"fall_interval_s: {self.fall_interval_s} must be positive and at most min_interval_s")
        if not 2 * self.heartbeat_s <= self.ttl_s:
            found.append(f"ttl_s: {self.ttl_s} must be at least twice heartbeat_s, or one lost write closes the node")
        if not (0 <= self.rise < 1 and 0 <= self.fall < 1):
            found.append(f"rise, fall: {self.rise}, {self.fall} must be in [0, 1)")
        if not self.hold_s >= 0:
            found.append(f"hold_s: {self.hold_s} must not be negative")
        return found


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole number of places and the mode that a node publishes; `slots` None means unknown."""

    slots: int | None
    mode: str = ""
    work_s: float = 0.0
    """Work left, as last published unless it has moved by a quarter [CPU seconds]."""
    pod_capacity: int | None = None
    """Its whole part, with the method carico: the policy capacity counts with it, and it moves with every Pod."""


def steady(slots: float, published: int | None, config: ThrottleConfig) -> int | None:
    """The whole number of places to publish, given what was `published` last: the floor, with hysteresis around it.

    >>> c = ThrottleConfig()
    >>> steady(7.9, None, c), steady(8.1, 7, c), steady(8.4, 7, c), steady(7.95, 8, c), steady(7.8, 8, c)
    (7, 7, 8, 8, 7)

    The first place needs no more than itself: a node without Pods whose number stands at 1.12 would offer none until
    something else changes it, and without Pods nothing does.

    >>> steady(1.12, 0, c), steady(0.95, 1, c), steady(0.85, 1, c), steady(0.95, 0, c)
    (1, 1, 0, 0)
    """
    if slots != slots:
        return None
    whole = floor(min(max(slots, 0.0), 1e6))
    if published is None:
        return whole
    if published < whole:
        return max(published, 1, floor(slots - config.rise)) if whole < 1e6 else whole
    return min(published, max(whole, floor(slots + config.fall)))


class Lowest:
    """The lowest number of the last `hold_s` seconds, NaN when there is none. Unknown (NaN) forgets all before it.

    >>> lowest, seen = Lowest(hold_s=3.0), []
    >>> for now_s, slots in ((0, 8), (1, 5), (2, 9), (3, 7), (4, 9), (5, 9), (6, 9), (7, 9)):
    ...     lowest.add(now_s, slots)
    ...     seen.append(lowest.value)
    >>> seen
    [8, 5, 5, 5, 7, 7, 9, 9]
    """

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self._kept: deque[tuple[float, float]] = deque()  # both rise: when, what

    def add(self, now_s: float, slots: float) -> None:
        if slots != slots:
            self._kept.clear()
            return
        while self._kept and self._kept[-1][1] >= slots:
            self._kept.pop()
        self._kept.append((now_s, slots))
        while self._kept[0][0] <= now_s - self.hold_s and len(self._kept) > 1:
            self._kept.popleft()

    @property
    def value(self) -> float:
        return self._kept[0][1] if self._kept else nan


MAX_CREDIT, MAX_DEBT = 2.0, 4.0
"""Writes that a quiet node may save up, and those that falls may take in advance: then the next rise waits for five
paces at most."""


class WriteThrottle:
    """Decides whether to write now. Time is an argument; only `wrote` changes it, so a failed write is offered again.

    >>> throttle = WriteThrottle()
    >>> throttle.reason(0.0, first := throttle.summary(7.9, "measured")), throttle.wrote(0.0, first)
    ('first', None)
    >>> [throttle.reason(now_s, throttle.summary(6.2, "measured")) for now_s in (0.5, 1.0)]
    [None, 'slots 7 -> 6']
    >>> [throttle.reason(now_s, throttle.summary(8.9, "measured")) for now_s in (4.0, 5.0)]
    [None, 'slots 7 -> 8']
    >>> [throttle.reason(now_s, throttle.summary(7.8, "measured")) for now_s in (59.0, 60.0)]
    [None, 'heartbeat']
    """

    def __init__(self, config: ThrottleConfig | None = None) -> None:
        self.config = config or ThrottleConfig()
        if problems := self.config.problems():
            raise ValueError("; ".join(problems))
        self.pace_s = self.config.min_interval_s
        """Time in which one more write is allowed [s]."""
        self.repeat_s = self.config.heartbeat_s
        """Write again after this long without a change [s]: `heartbeat_s`, or `refresh_s` where a Lease has those."""
        self._published: Summary | None = None
        self._published_s = -inf
        self._credit, self._credit_s = MAX_CREDIT, -inf

    def summary(self, slots: float, mode: str, work_s: float = 0.0, pod_capacity: float = nan) -> Summary:
        """What would be published of this estimate: slots made whole and steady, and the work left. `pod_capacity`:
        with the method carico only."""
        published = self._published.slots if self._published else None
        whole = steady(slots, published, self.config)
        if whole and published and abs(whole - published) < self.config.min_ratio * published:
            whole = published
        before_s = self._published.work_s if self._published else 0.0
        moved = abs(work_s - before_s) >= max(MIN_WORK_S, WORK_RATIO * max(work_s, before_s))
        begins_or_ends = (work_s > 0) != (before_s > 0)  # else a node that is done would look as if some were left
        capacity = None if pod_capacity != pod_capacity else floor(min(pod_capacity, 1e6))
        return Summary(whole, mode, work_s if moved or begins_or_ends else before_s, capacity)

    def reason(self, now_s: float, summary: Summary) -> str | None:
        """Why `summary` should be written now; None to hold it back."""
        before, since_s = self._published, now_s - self._published_s
        if before is None:
            return "first"
        if since_s < self.config.fall_interval_s:
            return None
        changed = f"slots {_text(before.slots)} -> {_text(summary.slots)}" if summary.slots != before.slots else None
        if changed and before.slots is not None and (summary.slots is None or summary.slots < before.slots):
            return changed
        if summary.pod_capacity != before.pod_capacity:  # once a second, as in *CARICO* (4.2)
            return f"Pod-Capacity {_text(before.pod_capacity)} -> {_text(summary.pod_capacity)}"
        if since_s >= self.repeat_s:
            return "heartbeat" if self.repeat_s == self.config.heartbeat_s else "refresh"
        if not self.may_write(now_s):
            return None
        if changed:
            return changed
        if (summary.mode == "learning") != (before.mode == "learning"):
            return f"mode {before.mode} -> {summary.mode}"
        if summary.work_s != before.work_s:
            return f"work left {before.work_s:.0f} s -> {summary.work_s:.0f} s"
        return None

    def may_write(self, now_s: float) -> bool:
        """Whether there is credit for a write that can wait."""
        return now_s - self._published_s >= self.config.min_interval_s and self._credit_at(now_s) >= 1

    def wrote(self, now_s: float, summary: Summary) -> None:
        """`summary` has reached the other side."""
        self._credit, self._credit_s = max(-MAX_DEBT, self._credit_at(now_s) - 1), now_s
        self._published, self._published_s = summary, now_s

    def forget(self) -> None:
        """Another client changed what we wrote: write it again at once."""
        self._published, self._published_s = None, -inf

    def _credit_at(self, now_s: float) -> float:
        return min(MAX_CREDIT, self._credit + (now_s - self._credit_s) / self.pace_s)


def _text(slots: int | None) -> str:
    return "unknown" if slots is None else str(slots)
