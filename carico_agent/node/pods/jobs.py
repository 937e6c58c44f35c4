"""The work left of every Pod that runs: from its reports, or else from how long its workload runs.

Pods that do not report are estimated only if Pods of their workload have ended here, three at least, and if they are no
per-node Pods. Their CPU is read once in 10 s for the cores they get: time left × cores = work left.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan

from carico_agent.node.pods.peer_pod import Process
from carico_agent.node.pods.plain_processes import is_plain
from carico_agent.node.pods.pods import Pod
from carico_agent.progress.table import Job, ProgressTable, WorkSummary, summary
from carico_agent.progress.work_left import RunTimes, WorkLeft

CPU_PERIOD_S = 10.0
SHORTEST_RUN_S = 1.0
"""Pods that ended sooner have failed, most likely."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One Pod that reports, for readers."""

    pod: Pod
    left: WorkLeft
    job: Job
    stale: bool = False


class Jobs:
    """Reports, run times and CPU of the Pods of one node. For one thread."""

    def __init__(
        self,
        read_cpu_s: Callable[[Pod], float],
        wall: Callable[[], float],
        lives: Callable[[Process], bool] = lambda process: False,
    ) -> None:
        """`read_cpu_s`: CPU seconds of a Pod since its start, NaN unknown; `wall`: seconds since 1970; `lives`: whether
        this very process still runs."""
        self.table, self.run_times = ProgressTable(), RunTimes()
        self._read_cpu_s, self._wall, self._lives = read_cpu_s, wall, lives
        self._pods: Mapping[str, Pod] = {}
        self._seen: dict[str, tuple[Pod, float]] = {}
        self._cores: dict[str, float] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self._cpu_due_s = -inf

    def report(self, pod: Pod, now_s: float, done: float, total: float, process: Process | None = None) -> None:
        """`process`: the one that reports."""
        job = self.table.get(pod.key)
        if job is not None and done < job.done < job.total and self._is_ahead(job.reporter, process):
            return
        self.table.report(pod.key, now_s, done, total, self._read_cpu_s(pod), process)

    def ask(self, pod: Pod, next_s: float) -> None:
        """The next report of this Pod was asked for in `next_s`."""
        if (job := self.table.get(pod.key)) is not None:
            job.asked_s = next_s

    def _is_ahead(self, first: Hashable, other: Process | None) -> bool:
        """Whether `first`, which has reported more than `other`, is another process that still runs."""
        return isinstance(first, Process) and first != other and self._lives(first)

    def refresh(self, now_s: float, pods: Mapping[str, Pod]) -> None:
        """Once a second: who came, who ended, and what those use that do not report."""
        if pods is not self._pods:
            self._take(now_s, pods)
        elif now_s < self._cpu_due_s:
            return
        self._cpu_due_s = now_s + CPU_PERIOD_S / 5 - 0.1
        for key, pod in pods.items():
            if pod.per_node or self.table.get(key) is not None or not self.run_times.knows(pod.workload):
                continue
            then_s, used_s = self._used.get(key, (-CPU_PERIOD_S, nan))
            if now_s - then_s >= CPU_PERIOD_S:
                now_used_s = self._read_cpu_s(pod)
                self._cores[key] = (now_used_s - used_s) / (now_s - then_s)
                self._used[key] = (now_s, now_used_s)

    def _take(self, now_s: float, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        for key in [key for key in self._seen if key not in pods]:
            pod, seen_s = self._seen.pop(key)
            self._cores.pop(key, None)
            self._used.pop(key, None)
            ran_s = self._age_s(pod, now_s, seen_s)
            if not pod.per_node and ran_s >= SHORTEST_RUN_S:
                self.run_times.ended(pod.workload, ran_s)
        for key, pod in pods.items():
            self._seen[key] = (pod, self._seen[key][1] if key in self._seen else now_s)
        self.table.keep(pods.keys())

    def _age_s(self, pod: Pod, now_s: float, seen_s: float) -> float:
        return max(self._wall() - pod.started_s, 0.0) if pod.started_s else now_s - seen_s

    def views(self, now_s: float) -> list[JobView]:
        """Every Pod that reports, and whose job is not over. A process outside of Pods stays for a minute after its end
        (plain_processes.py)."""
        found = []
        for key, (pod, _) in self._seen.items():
            job = self.table.get(key)
            if job is not None and (is_plain(key) or not job.is_over(now_s)):
                found.append(JobView(pod, job.left(now_s), job, job.is_stale(now_s)))
        return found

    def _silent(self, now_s: float) -> list[WorkLeft]:
        """The work of Pods that do not report, where their workload has a history. They are no jobs for a reader: a
        service of which three Pods were replaced has a history, too. One that is older than all of them is left out."""
        found = (
            self._by_history(pod, self._age_s(pod, now_s, seen_s))
            for key, (pod, seen_s) in self._seen.items()
            if not pod.per_node and self.table.get(key) is None and self.run_times.knows(pod.workload)
        )
        return [left for left in found if isfinite(left.cpu_s)]

    def _by_history(self, pod: Pod, age_s: float) -> WorkLeft:
        left_s, cores = self.run_times.left_s(pod.workload, age_s), self._cores.get(pod.key, nan)
        if not (isfinite(left_s) and isfinite(cores)):
            return WorkLeft()
        return WorkLeft(left_s * cores, cores, left_s, uncertain=True, basis="history")

    def summary(self, now_s: float) -> WorkSummary:
        """Of the node's Pods; processes outside of them are no part of what the node publishes."""
        return self.summary_of(self.views_of_pods(now_s), now_s)

    def summary_of(self, views: Sequence[JobView], now_s: float) -> WorkSummary:
        """The same for views that were made already: 110 of them take a third of a millisecond."""
        return summary([*(view.left for view in views), *self._silent(now_s)])

    def views_of_pods(self, now_s: float) -> list[JobView]:
        """Without the processes outside of Pods."""
        return [view for view in self.views(now_s) if not is_plain(view.pod.key)]


def pace_s(jobs: int, reports_per_s: float) -> float:
    """How far apart the reports of one job should be [s], so that all together stay below `reports_per_s`.

    >>> pace_s(5, 10.0), pace_s(110, 10.0)
    (1.0, 11.0)
    """
    return max(1.0, jobs / reports_per_s)
