"""How long Jobs will wait: first come, first served, on servers that become free at known times.

kube-scheduler's queue is nearly that for Pods of one priority. Durations come from the history of a Job's workload.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence


def starts(free_s: Iterable[float], jobs: Sequence[tuple[float, float]]) -> list[float]:
    """When each Job starts. `free_s`: when each place is free; `jobs`: (arrival, duration) in order of arrival [s].

    >>> starts([0.0, 5.0], [(0.0, 10.0), (0.0, 10.0), (1.0, 1.0)])
    [0.0, 5.0, 10.0]
    >>> starts([], [(0.0, 1.0)])
    [inf]
    """
    places = list(free_s)
    heapq.heapify(places)
    begun = []
    for arrival_s, duration_s in jobs:
        if not places:
            begun.append(float("inf"))
            continue
        begin_s = max(arrival_s, heapq.heappop(places))
        heapq.heappush(places, begin_s + duration_s)
        begun.append(begin_s)
    return begun


class JobDurations:
    """How long Jobs of each workload ran: the mean of the latest ones [s], weighted by 1/4. At most `workloads`
    workloads.

    >>> history = JobDurations(default_s=60.0)
    >>> history.finished("train", 200.0); history.finished("train", 240.0)
    >>> history.duration_s("train"), history.duration_s("never seen")
    (210.0, 60.0)
    """

    def __init__(self, default_s: float = 300.0, workloads: int = 1024) -> None:
        self._default_s, self._most = default_s, workloads
        self._mean_s: OrderedDict[str, float] = OrderedDict()

    def finished(self, workload: str, took_s: float) -> None:
        known_s = self._mean_s.pop(workload, took_s)
        self._mean_s[workload] = known_s + (took_s - known_s) / 4
        if len(self._mean_s) > self._most:
            self._mean_s.popitem(last=False)

    def duration_s(self, workload: str) -> float:
        return self._mean_s.get(workload, self._default_s)

    def left_s(self, workload: str, ran_s: float) -> float:
        """How much longer a Job that has run for `ran_s` will run; one that is overdue: as long as it is late.

        >>> JobDurations(60.0).left_s("a", 50.0), JobDurations(60.0).left_s("a", 90.0)
        (10.0, 30.0)
        """
        return abs(self.duration_s(workload) - ran_s)


class Arrivals:
    """When Jobs of each workload came, to say when the next ones will: the latest eight of at most `workloads`
    workloads.

    >>> arrivals = Arrivals()
    >>> for time_s in (0.0, 60.0, 120.0): arrivals.came("infer", time_s)
    >>> arrivals.expected(120.0, 150.0)
    [(60.0, 'infer'), (120.0, 'infer')]
    >>> arrivals.expected(400.0, 150.0)  # nothing for more than three intervals: the workload has ended
    []
    """

    def __init__(self, workloads: int = 1024) -> None:
        self._most = workloads
        self._times_s: OrderedDict[str, deque[float]] = OrderedDict()

    def came(self, workload: str, time_s: float) -> None:
        self._times_s.setdefault(workload, deque(maxlen=8)).append(time_s)
        self._times_s.move_to_end(workload)
        if len(self._times_s) > self._most:
            self._times_s.popitem(last=False)

    def expected(self, now_s: float, horizon_s: float) -> list[tuple[float, str]]:
        """(from now [s], workload) of the Jobs that will come within `horizon_s`, each workload at its own rate.

        A workload is believed from its third Job on: two that came together are no rate.
        """
        coming = []
        for workload, times_s in self._times_s.items():
            every_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1) if len(times_s) >= 3 else 0.0
            if every_s > 0 and now_s - times_s[-1] <= 3 * every_s:
                coming += [((k + 1) * every_s, workload) for k in range(min(1000, int(horizon_s / every_s)))]
        return sorted(coming)
