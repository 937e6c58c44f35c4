"""cpu_pinning: CPUs of their own for chosen containers, a shared pool for all others, reserved CPUs for none.

Only leaf groups are written: narrowing a parent makes containers fail to start. Isolation ends where Pods end:
processes outside Pods still run on every CPU (*Analyse von Verfahren zur Optimierung des Container-Schedulings in
Kubernetes*, section 5.4).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from carico_agent import plugin_api
from carico_agent.plugin_api import (
    Change,
    ContainerView,
    Metric,
    PodView,
    Refuse,
    View,
    Writer,
    format_cpus,
    parse_cpus,
)

from .allocate import shape, take

ASKED = "carico.dev/cpus"


@dataclass(frozen=True)
class CpuPinningSettings:
    """Gives chosen Pods CPUs that no other Pod uses."""

    reserved: str = "0"
    """CPUs that are never given away, like "0-1"; the node's own work runs there, and Pods of the shared pool."""

    guaranteed: bool = True
    """Pin containers of Guaranteed Pods with a whole number of CPUs, as the kubelet's static CPU manager would."""

    pods: dict[str, int] = field(default_factory=dict)
    """How many CPUs each container of a Pod gets, by Pod name or pattern: { "db-*" = 2 }."""

    max_asked: int = 0
    """CPUs that Pods may take by asking for them (annotation or label carico.dev/cpus), all together. 0: none, for
    a user who may create a Pod may write that annotation."""

    whole_cores: bool = False
    """Give out whole cores only, so that no two Pods share one (full-pcpus-only)."""


@dataclass(slots=True)
class _Member:
    """One leaf group and what it is to have."""

    pod: PodView
    container: ContainerView
    wanted: int = 0
    why: str = ""
    asked: bool = False
    """It asks for itself; no rule and no limit gives it these CPUs."""
    own: frozenset[int] = frozenset()
    """The CPUs it had been confined to before us; empty = no such confinement."""


@dataclass(slots=True)
class _Decision:
    name: str
    cpus: str
    why: str
    state: str = ""


class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "cpu_pinning"
    Settings: ClassVar[type] = CpuPinningSettings
    period_s: ClassVar[float] = 2.0

    def __init__(self, settings: CpuPinningSettings) -> None:
        super().__init__(settings)
        try:
            self._reserved = parse_cpus(settings.reserved)
        except ValueError as error:
            raise Refuse(f"reserved: {settings.reserved!r} is not a list of CPUs like 0-1,4") from error
        self._given: dict[int, frozenset[int]] = {}
        self._asked: set[int] = set()
        self._spurned: dict[int, str] = {}
        self._decisions: list[_Decision] = []
        self._shared: frozenset[int] = frozenset()

    def start(self, view: View) -> None:
        if "cpuset" not in (view.read(view.node.cgroup_root, "cgroup.controllers") or "").split():
            raise Refuse("no cpuset controller in cgroup v2: CPUs cannot be given to Pods")
        everything = frozenset(cpu.cpu for cpu in view.node.topology)
        if not self._reserved & everything:
            raise Refuse(
                f"reserved = {self.settings.reserved!r} names none of the CPUs {format_cpus(everything)}: "
                "the shared pool could become empty"
            )
        if not everything - self._reserved:
            raise Refuse("all CPUs are reserved: there is none to give")

    def tick(self, view: View, writer: Writer) -> None:
        self._decisions = []
        members = list(self._members(view, writer))
        self._assign(view, [m for m in members if m.wanted], {m.container.inode for m in members})
        given = frozenset().union(*self._given.values())
        self._shared = frozenset(cpu.cpu for cpu in view.node.topology) - given
        self._write(
            [m for m in members if m.container.inode in self._given],
            [m for m in members if m.container.inode not in self._given],
            writer,
        )

    # -- who -----------------------------------------------------------------------------------------------------------

    def _members(self, view: View, writer: Writer) -> Iterator[_Member]:
        """Every leaf group of every Pod, with the CPUs it is to have for itself (0 = the shared pool)."""
        for pod in view.pods:
            for container in pod.containers or (ContainerView(pod.uid, pod.name, pod.cgroup, pod.inode),):
                if "cpuset" in (view.read(container.cgroup, "cgroup.subtree_control") or ""):
                    self._say(pod, container, "", "left alone: it has groups of its own below it")
                    continue
                wanted, why, asked = self._wanted(view, pod, container)
                original = writer.original(container.cgroup, container.inode, "cpuset.cpus")
                own = view.read(container.cgroup, "cpuset.cpus") if original is None else original
                yield _Member(pod, container, wanted, why, asked, parse_cpus(own or ""))

    def _wanted(self, view: View, pod: PodView, container: ContainerView) -> tuple[int, str, bool]:
        """How many CPUs, why, and whether the Pod itself asks for them."""
        if container.inode in self._spurned:
            return 0, self._spurned[container.inode], False
        for pattern, count in self.settings.pods.items():
            if fnmatchcase(pod.full_name if "/" in pattern else pod.name, pattern):
                return max(count, 0), f"rule {pattern!r}", False
        asked = pod.annotations.get(ASKED, pod.labels.get(ASKED, ""))
        if asked.isdigit() and self.settings.max_asked:
            return int(asked), f"asks for it ({ASKED})", True
        quota, _, period = (view.read(container.cgroup, "cpu.max") or "max 0").partition(" ")
        if self.settings.guaranteed and pod.qos == "guaranteed" and quota != "max" and int(quota) % int(period) == 0:
            return int(quota) // int(period), "Guaranteed with a whole number of CPUs", False
        return 0, f"shared pool: {ASKED} counts for nothing (max_asked)" if asked else "shared pool", False

    # -- which CPUs ----------------------------------------------------------------------------------------------------

    def _assign(self, view: View, wishing: list[_Member], alive: set[int]) -> None:
        """Keep what was given as long as it is wanted; give to newcomers what is free."""
        wanted = {member.container.inode: member.wanted for member in wishing}
        self._given = {
            inode: cpus for inode, cpus in self._given.items() if inode in alive and wanted.get(inode) == len(cpus)
        }
        self._asked &= self._given.keys()
        self._spurned = {inode: why for inode, why in self._spurned.items() if inode in alive}
        for member in wishing:
            if member.container.inode not in self._given:
                self._give(view, member)

    def _give(self, view: View, member: _Member) -> None:
        asked = sum(len(self._given[inode]) for inode in self._asked)
        if member.asked and asked + member.wanted > self.settings.max_asked:
            member.why += f", but all that ask may have {self.settings.max_asked} (max_asked): shared"
            return
        taken = frozenset().union(*self._given.values())
        allowed = parse_cpus(view.read(os.path.dirname(member.container.cgroup), "cpuset.cpus.effective") or "")
        everything = frozenset(cpu.cpu for cpu in view.node.topology)
        free = ((allowed & everything) if allowed else everything) - self._reserved - taken
        free = free & member.own if member.own else free
        cpus = take(view.node.topology, free, member.wanted, self.settings.whole_cores)
        if cpus is None:
            member.why = (
                f"wants {member.wanted} CPUs ({member.why}), but only {format_cpus(free) or 'none'} "
                "can be given: shared"
            )
            return
        self._given[member.container.inode] = cpus
        if member.asked:
            self._asked.add(member.container.inode)
        member.why += f": {shape(view.node.topology, cpus)}"

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self, pinned: list[_Member], rest: list[_Member], writer: Writer) -> None:
        """Both kinds in one batch: the writer grows first and shrinks afterwards."""
        changes = [(m, format_cpus(self._given[m.container.inode])) for m in pinned]
        changes += list(self._pool(rest)) if pinned else []
        outcomes = writer.write(
            [Change(m.container.cgroup, m.container.inode, "cpuset.cpus", cpus, m.why) for m, cpus in changes]
        )
        for (member, cpus), outcome in zip(changes, outcomes, strict=True):
            if outcome.state == "refused" and member.container.inode in self._given:  # the next tick frees its CPUs
                del self._given[member.container.inode]
                self._spurned[member.container.inode] = f"could not be pinned: {outcome.detail}"
            self._say(
                member.pod,
                member.container,
                cpus,
                member.why,
                f"{outcome.state}{': ' + outcome.detail if outcome.state in ('refused', 'failed') else ''}",
            )
        for member in [] if pinned else rest:  # no container is pinned any more: everything as it was
            if writer.original(member.container.cgroup, member.container.inode, "cpuset.cpus") is not None:
                undone = writer.undo(
                    member.container.cgroup, member.container.inode, "cpuset.cpus", "no container is pinned"
                )
                self._say(member.pod, member.container, "", "no container is pinned", undone.state)

    def _pool(self, rest: list[_Member]) -> Iterator[tuple[_Member, str]]:
        """The shared pool for each of the rest, but never a CPU that it did not have before."""
        for member in rest:
            cpus = self._shared & member.own if member.own else self._shared
            if cpus:
                yield member, format_cpus(cpus)
            else:
                self._say(member.pod, member.container, format_cpus(member.own), "left alone: it was confined to these")

    def _say(self, pod: PodView, container: ContainerView, cpus: str, why: str, state: str = "") -> None:
        self._decisions.append(_Decision(f"{pod.full_name}/{container.name}", cpus, why, state))

    # -- reporting -----------------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        return {
            "reserved": format_cpus(self._reserved),
            "shared": format_cpus(self._shared),
            "containers": [
                {"container": d.name, "cpus": d.cpus, "why": d.why, "state": d.state} for d in self._decisions
            ],
        }

    def metrics(self) -> Iterable[Metric]:
        yield Metric("pinned_cpus", sum(map(len, self._given.values())), {}, "CPUs given to one container alone.")
        yield Metric("pinned_containers", len(self._given), {}, "Containers with CPUs of their own.")
        yield Metric("shared_cpus", len(self._shared), {}, "CPUs left to all others.")
