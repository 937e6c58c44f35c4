"""What each container used, once a minute: CPU, working set, OOM kills, throttled periods. The reading side only.

Containers take turns over the minute (`stagger.py`), and their files are opened anew each time: 330 containers would
keep 1,600 descriptors, and with five or six of them in a second opening stays within the budget, 0.1 % of a core
(`python -m lab.bench.pods history`). A container is its id; a restarted one is another, and its workload's history goes
on under the same workload and name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from typing import NamedTuple

from carico_agent.node.pods.cgroup import (
    CPU_STAT,
    MEMORY_CURRENT,
    MEMORY_STAT,
    Cgroup,
    parse_cpu_stat,
    parse_inactive_file,
)
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.demand import working_set
from carico_agent.node.pods.log_names import container_names
from carico_agent.node.pods.pods import Member, Pod
from carico_agent.node.pods.run_delay import groups
from carico_agent.node.pods.stagger import Stagger
from carico_agent.node.pods.tree import CONTAINER

PERIOD_S = 60.0
LOOK_S = 15.0
"""28 containers in 15 s, 110 once a minute, cost less than two in every second: the first of a look finds cold caches,
and each look wakes a thread."""
MAX_CONTAINERS = 2000


class MinuteData(NamedTuple):
    """One minute of one container; the arguments of `recommend.history.Sample`, in its order. NaN: unknown."""

    t_s: float
    """Time of day [s since 1970]."""
    cpu_cores: float
    memory_bytes: float
    oom_kills: int
    periods: int
    """Periods of its CPU quota that passed; 0 without one."""
    throttled: int
    """Of them, in how many it used up its quota."""


@dataclass(slots=True)
class ContainerTotals:
    """Counters since the container's start, and its working set."""

    t: float
    cpu_usec: int | None
    memory_bytes: float
    """NaN: unknown."""
    oom_kills: int
    periods: int
    throttled: int
    limit_cores: float | None = None
    """Its CPU quota; None: none."""
    limit_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerMinute:
    """What one container did, and whose it is."""

    pod: str
    workload: str
    container: str
    """Its name in the Pod's template; its id where only that is known."""
    container_id: str
    data: MinuteData
    totals: ContainerTotals


@dataclass(slots=True)
class _Known:
    pod: Pod
    member: Member
    group: Cgroup
    last: ContainerTotals | None = None


class ContainerReader:
    """Reads the containers of all Pods; for one thread. `failed` counts readings that could not be understood."""

    def __init__(self, locator: Locator, period_s: float = PERIOD_S) -> None:
        """Names of containers in the cgroup tree come from the links in /var/log/containers."""
        self.failed = 0
        self.left_out = 0
        """Containers beyond the `MAX_CONTAINERS` that are read."""
        self._locator, self._turns = locator, Stagger(period_s, LOOK_S + 1.0)
        self._pods: Mapping[str, Pod] = {}
        self._wanted: dict[str, tuple[Pod, Member]] = {}
        self._known: dict[str, _Known] = {}
        self._listed: dict[str, tuple[Pod, float, tuple[Member, ...]]] = {}

    def tick(self, now_s: float, wall_s: float, pods: Mapping[str, Pod]) -> list[ContainerMinute]:
        """This tick's share; a container's second turn is its first minute. Call it every LOOK_S or more often."""
        if pods is not self._pods:
            self._take(pods, now_s)
        found = []
        for key in self._turns.take(now_s):
            try:
                minute = self._read(key, now_s, wall_s)
            except FileNotFoundError:  # it has ended; the Pod's next state will say so
                self._known.pop(key, None)
                continue
            except (OSError, ValueError):
                self.failed += 1
                continue
            if minute:
                found.append(minute)
        return found

    def _take(self, pods: Mapping[str, Pod], now_s: float) -> None:
        self._pods = pods
        self._listed = {key: listed for key, listed in self._listed.items() if key in pods}
        every = [(pod, member) for pod in pods.values() for member in self._members(pod, now_s) if not member.sandbox]
        self.left_out = max(len(every) - MAX_CONTAINERS, 0)
        self._wanted = {f"{pod.key}/{member.id}": (pod, member) for pod, member in every[:MAX_CONTAINERS]}
        for key in self._turns.keep(self._wanted.keys(), now_s):
            self._known.pop(key, None)

    def _members(self, pod: Pod, now_s: float) -> tuple[Member, ...]:
        """As the runtime lists them. In the cgroup tree they are looked for once a minute: each scan is a new table."""
        if pod.containers:
            return pod.containers
        known, due_s, members = self._listed.get(pod.key, (None, 0.0, ()))
        if known is not pod or now_s >= due_s:
            members = tuple(self._find_members(pod))
            self._listed[pod.key] = (pod, now_s + self._turns.period_s, members)
        return members

    def _find_members(self, pod: Pod) -> Iterator[Member]:
        """The groups below the Pod's that bear a container's id; without any, the Pod's own group."""
        group = self._locator.at(pod.cgroup)
        top = next(iter(group.controllers.values()), group.unified) if group else ""
        below = [path.rpartition("/")[2] for path in groups(top, 1) if path != top] if pod.uid and top else []
        ids = [found[1] for name in below if (found := CONTAINER.match(name))]
        names = container_names(self._locator.root, frozenset(ids))
        yield from (Member(one, names.get(one, one[:12]), 0) for one in ids or [pod.name])

    def _read(self, key: str, now_s: float, wall_s: float) -> ContainerMinute | None:
        known = self._known.get(key)
        if known is None:
            pod, member = self._wanted[key]
            group = self._locator.container(pod, member)
            if group is None:
                return None
            known = self._known[key] = _Known(pod, member, Cgroup(group))
        last = known.last
        now = known.last = _totals(known.group, now_s, last)
        if last is None or now.t <= last.t:
            return None
        data = MinuteData(
            wall_s,
            _cores(last, now),
            now.memory_bytes,
            max(now.oom_kills - last.oom_kills, 0),
            max(now.periods - last.periods, 0),
            max(now.throttled - last.throttled, 0),
        )
        pod, member = known.pod, known.member
        return ContainerMinute(pod.key, pod.workload, member.name, member.id, data, now)


def _cores(last: ContainerTotals, now: ContainerTotals) -> float:
    if last.cpu_usec is None or now.cpu_usec is None or now.cpu_usec < last.cpu_usec:
        return nan
    return (now.cpu_usec - last.cpu_usec) / 1e6 / (now.t - last.t)


def _totals(group: Cgroup, now_s: float, last: ContainerTotals | None) -> ContainerTotals:
    """A container that did not run since `last` is as it was then, but for memory that the kernel took back."""
    usage_usec = group.cpu_usec()
    if last is not None and usage_usec == last.cpu_usec is not None:
        return replace(last, t=now_s)
    stat, quota_cores, limit_bytes = (
        parse_cpu_stat(group.read(CPU_STAT)),
        group.quota_cores(),
        group.memory_limit_bytes(),
    )
    return ContainerTotals(
        now_s,
        usage_usec,
        _working_set(group),
        group.oom_kills(),
        stat.nr_periods or 0,
        stat.nr_throttled or 0,
        None if quota_cores == inf else quota_cores,
        None if limit_bytes == inf else limit_bytes,
    )


def _working_set(group: Cgroup) -> float:
    current, stat = group.read_or_nothing(MEMORY_CURRENT), group.read_or_nothing(MEMORY_STAT)
    return working_set(int(current), parse_inactive_file(stat)) if current and stat else nan
