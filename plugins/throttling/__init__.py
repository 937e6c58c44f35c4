"""throttling: says for each Pod whether a CPU limit slows it down, whose, and the one thing to do about it.

Writes nothing. Needs cgroup v2 with the cpu controller.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from carico_agent import plugin_api
from carico_agent.plugin_api import (
    CgroupUsage,
    ContainerView,
    Metric,
    PodView,
    Range,
    Refuse,
    View,
    Writer,
    parse_cpus,
    parse_flat,
    parse_stall,
)

from . import threads
from .diagnosis import GroupThrottling, Quota, ThrottledPod, ThrottlingDiagnosis, diagnose, parse_quota
from .latency import response_ms, serial_ms
from .window import ThrottleWindow, WindowUsage

KEPT_COUNTS = 24
MAX_SHOWN = 8
"""Requests whose times are listed one by one."""


@dataclass(frozen=True)
class ThrottlingSettings:
    """Finds Pods slowed down by a CPU limit and names one remedy."""

    window_s: Annotated[float, Range(10, 3600)] = 60.0
    """The diagnosis looks back this long [s]. Shorter and longer windows (a sixth, five times) are shown beside it."""

    tolerable_ratio: Annotated[float, Range(0.0, 1.0)] = 0.05
    """Being throttled in fewer than this share of the periods is nothing to worry about."""

    contention_ratio: Annotated[float, Range(0.0, 1.0)] = 0.2
    """Waiting for a CPU more than this share of the time without any quota in the way means that the node is full."""

    request_ms: Annotated[float, Range(0.0, 3_600_000.0)] = 0.0
    """CPU time of a typical request [ms], for the latency model and for sizing the limit. 0 = not known."""


@dataclass(slots=True)
class _PodHistory:
    """What is remembered about one Pod; the container with most throttling speaks for it."""

    pod: PodView
    container: str
    groups: list[GroupThrottling]
    case: ThrottledPod
    diagnosis: ThrottlingDiagnosis
    windows: dict[str, WindowUsage]
    counted: threads.Threads | None


class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "throttling"
    Settings: ClassVar[type] = ThrottlingSettings
    period_s: ClassVar[float] = 5.0

    def __init__(
        self, settings: ThrottlingSettings, count: Callable[[View, str], threads.Threads | None] = threads.count
    ) -> None:
        super().__init__(settings)
        self._count = count
        self._windows_s = (settings.window_s / 6, settings.window_s, settings.window_s * 5)
        self._histories: dict[tuple[str, int], ThrottleWindow] = {}
        self._counts: dict[int, deque[threads.Threads]] = {}
        self._watched: dict[str, _PodHistory] = {}

    def start(self, view: View) -> None:
        if view.read(view.node.cgroup_root, "cgroup.controllers") is None:
            raise Refuse("no cgroup v2 at the root: cpu.stat cannot be read (systemd.unified_cgroup_hierarchy=1)")

    # -- looking -----------------------------------------------------------------------------------------------------

    def tick(self, view: View, writer: Writer) -> None:
        seen: set[tuple[str, int]] = set()
        parents: dict[str, GroupThrottling | None] = {}
        self._watched = {}
        for pod in view.pods:
            if (watched := self._inspect(view, pod, seen, parents)) is not None:
                self._watched[pod.key] = watched
        self._histories = {key: value for key, value in self._histories.items() if key in seen}
        self._counts = {inode: counts for inode, counts in self._counts.items() if any(inode == i for _, i in seen)}

    def _inspect(
        self, view: View, pod: PodView, seen: set[tuple[str, int]], parents: dict[str, GroupThrottling | None]
    ) -> _PodHistory | None:
        members = pod.containers or (ContainerView(pod.uid, pod.name, pod.cgroup, pod.inode, usage=pod.usage),)
        groups = [
            (member, group)
            for member in members
            if (group := self._group(view, member.cgroup, member.inode, _counters(view, member), seen))
        ]
        if not groups:
            return None
        member, own = max(groups, key=lambda pair: (pair[1].spent.throttled_ratio, pair[1].spent.waiting_ratio))
        above = self._parents(view, member.cgroup, seen, parents)
        counted = self._threads(view, member, own, above)
        case = self._case(view, pod, member, own, above)
        history = self._histories[member.cgroup, member.inode]
        windows = {f"{window_s:g}s": spent for window_s in self._windows_s if (spent := history.over(window_s))}
        return _PodHistory(pod, member.name, [own, *above], case, diagnose(case), windows, counted)

    def _group(
        self, view: View, cgroup: str, inode: int, usage: CgroupUsage, seen: set[tuple[str, int]]
    ) -> GroupThrottling | None:
        key = (cgroup, inode)
        seen.add(key)
        history = self._histories.setdefault(key, ThrottleWindow(self._windows_s[-1]))
        history.add(view.now_s, usage)
        spent = history.over(self.settings.window_s)
        quota = parse_quota(view.read(cgroup, "cpu.max"))
        return None if spent is None else GroupThrottling(os.path.basename(cgroup), spent, quota)

    def _parents(
        self, view: View, cgroup: str, seen: set[tuple[str, int]], known: dict[str, GroupThrottling | None]
    ) -> tuple[GroupThrottling, ...]:
        """The groups above, up to the root; each is read once per tick however many Pods it holds."""
        found, root = [], view.node.cgroup_root.rstrip("/")
        parent = os.path.dirname(cgroup)
        while parent.startswith(root + "/"):
            if parent not in known:
                stat = parse_flat(view.read(parent, "cpu.stat"))
                usage = CgroupUsage(
                    stat.get("usage_usec"), stat.get("nr_periods"), stat.get("nr_throttled"), stat.get("throttled_usec")
                )
                known[parent] = self._group(view, parent, 0, usage, seen)
            if (group := known[parent]) is not None:
                found.append(group)
            parent = os.path.dirname(parent)
        return tuple(found)

    def _threads(
        self, view: View, member: ContainerView, own: GroupThrottling, above: tuple[GroupThrottling, ...]
    ) -> threads.Threads | None:
        """Threads are looked at only where something is throttled: it costs a file per thread."""
        if not any(group.spent.throttled for group in (own, *above)):
            return None
        counts = self._counts.setdefault(member.inode, deque(maxlen=KEPT_COUNTS))
        if (counted := self._count(view, member.cgroup)) is not None:
            counts.append(counted)
        return counted

    def _case(
        self,
        view: View,
        pod: PodView,
        member: ContainerView,
        own: GroupThrottling,
        above: tuple[GroupThrottling, ...],
        request_ms: float | None = None,
    ) -> ThrottledPod:
        cpus = len(parse_cpus(view.read(member.cgroup, "cpuset.cpus.effective") or "")) or view.node.cores
        whole = own.quota is not None and own.quota.cores >= 1 and own.quota.cores % 1 == 0
        return ThrottledPod(
            own,
            above,
            self._parallel(member.inode),
            cpus,
            pod.qos == "guaranteed" and whole,
            request_ms or self.settings.request_ms or None,
            self.settings.tolerable_ratio,
            self.settings.contention_ratio,
        )

    def _parallel(self, inode: int) -> int | None:
        """Runnable threads at the instants when any was: the mean, rounded up. Idle instants say nothing."""
        busy = [counted.runnable for counted in self._counts.get(inode, ()) if counted.runnable]
        return math.ceil(sum(busy) / len(busy) - 1e-9) if busy else None

    # -- reporting ---------------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        return self.answer({})

    def answer(self, ask: Mapping[str, str]) -> dict[str, Any]:
        """Asks: `pod` (name, namespace/name or pattern), `request_ms` (CPU time of one request)."""
        request_ms = float(ask.get("request_ms", 0) or self.settings.request_ms) or None
        wanted = ask.get("pod", "*")
        shown = [self._row(watched, request_ms) for watched in self._watched.values() if _matches(watched.pod, wanted)]
        return {"pods": sorted(shown, key=lambda row: -row["throttled_ratio"]), "window_s": self.settings.window_s}

    def _row(self, watched: _PodHistory, request_ms: float | None) -> dict[str, Any]:
        case = watched.case
        if request_ms != case.request_ms:
            fields = {name: getattr(case, name) for name in ThrottledPod.__dataclass_fields__}
            case = ThrottledPod(**{**fields, "request_ms": request_ms})
        verdict, quota, spent = diagnose(case), case.own.quota, case.own.spent
        return {
            "pod": watched.pod.full_name,
            "container": watched.container,
            "cause": verdict.cause,
            "remedy": verdict.remedy,
            "text": verdict.text,
            "raise_to_cores": verdict.cores,
            "reduce_to_threads": verdict.threads,
            "limit_cores": quota.cores if quota else None,
            "nr_periods": spent.periods,
            "nr_throttled": spent.throttled,
            "throttled_s": round(spent.throttled_s, 3),
            "throttled_ratio": round(spent.throttled_ratio, 4),
            "used_cores": round(spent.used_cores, 3),
            "waiting_ratio": round(spent.waiting_ratio, 4),
            "parallel": case.parallel,
            "threads": watched.counted.total if watched.counted else None,
            "windows": {name: round(w.throttled_ratio, 4) for name, w in watched.windows.items()},
            "latency": _latency(request_ms, quota, case.parallel or 1),
        }

    def metrics(self) -> Iterable[Metric]:
        for watched in self._watched.values():
            labels = {"namespace": watched.pod.namespace, "pod": watched.pod.name}
            spent = watched.case.own.spent
            yield Metric("throttled_ratio", spent.throttled_ratio, labels, "Share of periods in which it was stopped.")
            yield Metric("cpu_used_cores", spent.used_cores, labels, "CPUs used over the window.")
            yield Metric(
                "diagnosis",
                1.0,
                {**labels, "cause": watched.diagnosis.cause, "remedy": watched.diagnosis.remedy},
                "Why it waits for CPU; always 1.",
            )


def _counters(view: View, member: ContainerView) -> CgroupUsage:
    """What the view knows, or else the two files that matter here."""
    if member.usage.cpu_usage_usec is not None:
        return member.usage
    stat = parse_flat(view.read(member.cgroup, "cpu.stat"))
    stall = parse_stall(view.read(member.cgroup, "cpu.pressure"))
    return CgroupUsage(
        stat.get("usage_usec"),
        stat.get("nr_periods"),
        stat.get("nr_throttled"),
        stat.get("throttled_usec"),
        pressure={"cpu": stall} if stall else {},
        read_s=view.now_s,
    )


def _matches(pod: PodView, wanted: str) -> bool:
    return wanted in (pod.key, pod.uid) or fnmatchcase(pod.full_name if "/" in wanted else pod.name, wanted)


def _latency(request_ms: float | None, quota: Quota | None, parallel: int) -> dict[str, Any] | None:
    """(1.19) alone, (1.20) with as many others as run now, and figure 5.15: the same ones, one after the other."""
    if request_ms is None:
        return None
    quota_ms, period_ms = (quota.quota_ms, quota.period_ms) if quota else (None, 100.0)
    return {
        "request_ms": request_ms,
        "alone_ms": round(response_ms(request_ms, quota_ms, period_ms), 3),
        "parallel_ms": round(response_ms(request_ms, quota_ms, period_ms, parallel), 3),
        "serial_ms": [
            round(value, 3) for value in serial_ms(request_ms, quota_ms, period_ms, min(parallel, MAX_SHOWN))
        ],
    }
