"""cpu_burst: lets a throttled container save up unused quota for its next burst (cpu.max.burst).

Only containers that are throttled in bursts: they hit their quota in some periods and stay below it on average. For
them the quota was a matter of timing, not of amount. One that is at its quota all the time gains nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from carico_agent import plugin_api
from carico_agent.plugin_api import Change, ContainerView, Metric, PodView, Range, Refuse, View, Writer, read_usage

BURST = "cpu.max.burst"


@dataclass(frozen=True)
class CpuBurstSettings:
    """Sets cpu.max.burst of containers that their CPU limit throttles although they use less than it on average."""

    pods: tuple[str, ...] = ("*",)
    """Which Pods, by name or namespace/name; * and ? are wildcards."""

    burst_ratio: Annotated[float, Range(0.01, 1.0)] = 0.5
    """How much unused quota may be saved up, as a share of the quota. The kernel allows at most 1. While it stands, the
    kernel refuses a quota that is smaller than the burst, so a limit can be lowered by half at a time."""

    throttled_ratio: Annotated[float, Range(0.0, 1.0)] = 0.05
    """Being throttled in fewer than this share of the periods is nothing to worry about."""

    busy_ratio: Annotated[float, Range(0.0, 1.0)] = 0.9
    """A container that uses more than this share of its quota gets no burst: its limit is too low."""

    window_s: Annotated[float, Range(5.0, 3600.0)] = 30.0
    """The decision looks back this long [s]. A burst that was given stays for as long as the container lives."""


@dataclass(slots=True)
class _BurstyContainer:
    """One container by its cgroup's inode; counters at the begin of the window."""

    pod: str
    container: str
    since_s: float
    cpu_usec: int
    periods: int
    throttled: int
    note: str = "observing"
    burst_usec: int | None = None


class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "cpu_burst"
    Settings: ClassVar[type] = CpuBurstSettings
    period_s: ClassVar[float] = 5.0

    def __init__(self, settings: CpuBurstSettings) -> None:
        super().__init__(settings)
        self._watched: dict[int, _BurstyContainer] = {}

    def start(self, view: View) -> None:
        if "cpu" not in (view.read(view.node.cgroup_root, "cgroup.controllers") or "").split():
            raise Refuse("no cpu controller in cgroup v2: there is no cpu.max.burst to set")

    def tick(self, view: View, writer: Writer) -> None:
        live: dict[int, _BurstyContainer] = {}
        changes: list[Change] = []
        for pod in view.pods:
            if not any(fnmatchcase(pod.full_name if "/" in one else pod.name, one) for one in self.settings.pods):
                continue
            for member in pod.containers or (ContainerView(pod.uid, pod.name, pod.cgroup, pod.inode),):
                change = self._inspect(view, pod, member, live)
                changes += [change] if change else []
        self._watched = live
        for outcome in writer.write(changes):
            watched = live[outcome.change.inode]
            if outcome.state in ("written", "unchanged"):
                watched.burst_usec = int(outcome.change.value)
            else:
                watched.note = f"{BURST}: {outcome.state}: {outcome.detail}"

    def _inspect(
        self, view: View, pod: PodView, member: ContainerView, live: dict[int, _BurstyContainer]
    ) -> Change | None:
        """What this container should have, if it is time to decide."""
        quota = quota_of(view.read(member.cgroup, "cpu.max"))
        usage = read_usage(view.read, member.cgroup, view.now_s)
        if quota is None or usage.cpu_usage_usec is None or usage.nr_periods is None:
            return None
        fresh = _BurstyContainer(
            pod.full_name, member.name, view.now_s, usage.cpu_usage_usec, usage.nr_periods, usage.nr_throttled or 0
        )
        known = live[member.inode] = self._watched.get(member.inode) or fresh
        if known.burst_usec is not None:  # also after the quota was changed
            return self._change(member, quota[0], "given before")
        if view.now_s - known.since_s < self.settings.window_s:
            return None
        why, known.note = self._verdict(known, fresh, quota[0] / quota[1])
        live[member.inode] = fresh
        fresh.note = known.note
        return self._change(member, quota[0], why) if why else None

    def _verdict(self, then: _BurstyContainer, now: _BurstyContainer, cores: float) -> tuple[str, str]:
        """Why it gets a burst, or nothing; and what to report."""
        periods = now.periods - then.periods
        stopped = (now.throttled - then.throttled) / periods if periods > 0 else 0.0
        used = (now.cpu_usec - then.cpu_usec) / 1e6 / (now.since_s - then.since_s) / cores
        seen = f"throttled in {stopped:.0%} of its periods, uses {used:.0%} of its limit"
        if stopped < self.settings.throttled_ratio:
            return "", f"no burst: {seen}"
        if used > self.settings.busy_ratio:
            return "", f"no burst: {seen}; its limit is too low (`carico recommend`)"
        return seen, seen

    def _change(self, member: ContainerView, quota_usec: int, why: str) -> Change:
        value = str(int(quota_usec * self.settings.burst_ratio))
        return Change(member.cgroup, member.inode, BURST, value, why)

    def report(self) -> dict[str, Any]:
        return {
            "containers": [
                {"pod": one.pod, "container": one.container, "burst_ms": _ms(one.burst_usec), "says": one.note}
                for one in self._watched.values()
            ]
        }

    def metrics(self) -> Iterable[Metric]:
        given = sum(one.burst_usec is not None for one in self._watched.values())
        yield Metric("cpu_burst_containers", given, {}, "Containers with a cpu.max.burst of ours.")


def quota_of(text: str | None) -> tuple[int, int] | None:
    """Quota and period [µs] of cpu.max; None: no quota.

    >>> quota_of("50000 100000"), quota_of("max 100000"), quota_of(None)
    ((50000, 100000), None, None)
    """
    first, _, period = (text or "max").partition(" ")
    return None if first == "max" else (int(first), int(period or 100_000))


def _ms(usec: int | None) -> float | None:
    return None if usec is None else usec / 1000
