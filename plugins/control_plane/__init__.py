"""control_plane: cpu.weight for the components of a control plane, more for those that are held up.

Weights share CPUs only while CPUs are short: no process is kept from an idle one, as a quota would. Needs cgroup v2
with the cpu controller. Dry-run unless the agent is configured to write.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from carico_agent import plugin_api
from carico_agent.plugin_api import Change, Metric, Outcome, Range, Refuse, View, Writer

from .held_up import ComponentCounters, held_up, read_counters
from .weights import Weight, stepped

ANSWERING = ("kube-apiserver", "etcd")


@dataclass(frozen=True)
class ControlPlaneSettings:
    """Gives components of the control plane that are held up a larger cpu.weight."""

    groups: dict[str, str] = field(default_factory=dict)
    """Cgroups by component, like { etcd = "etcd.service" }: a systemd unit, or a path below the cgroup root. Components
    that run as Pods of kube-system are found by name and need not be listed."""

    components: tuple[str, ...] = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager")
    """Which components to look for among the Pods of kube-system."""

    base: dict[str, int] = field(default_factory=dict)
    """cpu.weight at rest by component, from 1 to 10000. Not named: what stands there when the plugin begins."""

    max_factor: Annotated[float, Range(1, 100)] = 8.0
    """A weight is never raised to more than this many times its base."""

    calm_s: Annotated[float, Range(1, 86_400)] = 600.0
    """A component that is not held up for this long [s] gets one step of its weight taken back."""


@dataclass(slots=True)
class _WatchedComponent:
    """One component's cgroup. The inode is its identity."""

    cgroup: str
    inode: int
    base: int
    weight: Weight
    counters: ComponentCounters | None = None
    ratio: float | None = None
    outcome: Outcome | None = None


class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "control_plane"
    Settings: ClassVar[type] = ControlPlaneSettings
    period_s: ClassVar[float] = 60.0

    def __init__(self, settings: ControlPlaneSettings) -> None:
        super().__init__(settings)
        for component, base in settings.base.items():
            if not 1 <= base <= 10_000:
                raise Refuse(f"base.{component}: {base} is not between 1 and 10000")
        self._watched: dict[str, _WatchedComponent] = {}
        self._missing: dict[str, str] = {}

    def start(self, view: View) -> None:
        if "cpu" not in (view.read(view.node.cgroup_root, "cgroup.controllers") or "").split():
            raise Refuse("no cpu controller of cgroup v2: boot with systemd.unified_cgroup_hierarchy=1")

    def tick(self, view: View, writer: Writer) -> None:
        self._find(view, writer)
        for component, one in self._watched.items():
            counters = read_counters(view, one.cgroup)
            one.ratio = held_up(one.counters, counters)
            one.counters = counters
            one.weight = stepped(one.weight, one.ratio, view.now_s, component in ANSWERING, self.settings.calm_s)
        self._write(writer)

    def _find(self, view: View, writer: Writer) -> None:
        """Cgroups by component; one that was reborn begins anew."""
        found: dict[str, str] = {}
        for component in self.settings.components:
            pod = next(
                (p for p in view.pods if p.namespace == "kube-system" and fnmatchcase(p.name, f"{component}*")), None
            )
            if pod is not None:
                found[component] = pod.cgroup
        for component, place in self.settings.groups.items():
            found[component] = _folder(view, place)
        self._missing = {}
        for component, cgroup in found.items():
            self._inspect(view, writer, component, cgroup)
        self._watched = {
            name: one for name, one in self._watched.items() if name in found and name not in self._missing
        }

    def _inspect(self, view: View, writer: Writer, component: str, cgroup: str) -> None:
        inode = _inode(cgroup)
        now = view.read(cgroup, "cpu.weight")
        if inode is None or now is None:
            self._missing[component] = f"{cgroup} has no cpu.weight: it does not run, or its cpu controller is off"
            return
        old = self._watched.get(component)
        if old is None or old.inode != inode:
            stood = writer.original(cgroup, inode, "cpu.weight") or now
            base = self.settings.base.get(component) or int(stood)
            self._watched[component] = _WatchedComponent(cgroup, inode, base, Weight(since_s=view.now_s))

    def _write(self, writer: Writer) -> None:
        changes, written = [], []
        for component, one in self._watched.items():
            factor = min(one.weight.factor, self.settings.max_factor)
            value = str(max(1, min(10_000, round(one.base * factor))))
            if factor == 1 and component not in self.settings.base:
                if writer.original(one.cgroup, one.inode, "cpu.weight") is not None:
                    one.outcome = writer.undo(one.cgroup, one.inode, "cpu.weight", "not held up any more")
                continue
            ratio = "unknown" if one.ratio is None else f"{one.ratio:.0%}"
            changes.append(
                Change(one.cgroup, one.inode, "cpu.weight", value, f"{component}: held up {ratio} of the time")
            )
            written.append(one)
        for one, outcome in zip(written, writer.write(changes) if changes else [], strict=True):
            one.outcome = outcome

    def report(self) -> dict[str, Any]:
        rows = {
            component: {
                "cgroup": one.cgroup,
                "held_up_ratio": one.ratio,
                "factor": min(one.weight.factor, self.settings.max_factor),
                "base": one.base,
                "says": f"{one.outcome.state} {one.outcome.detail}".strip() if one.outcome else "",
            }
            for component, one in self._watched.items()
        }
        return {"components": rows, "missing": self._missing}

    def metrics(self) -> Iterable[Metric]:
        for component, one in self._watched.items():
            labels = {"component": component}
            yield Metric("weight_factor", one.weight.factor, labels, "cpu.weight over its base.")
            if one.ratio is not None:
                yield Metric("held_up_ratio", one.ratio, labels, "Share of the time or periods it was held up.")


def _inode(cgroup: str) -> int | None:
    try:
        return os.stat(cgroup).st_ino
    except OSError:
        return None


def _folder(view: View, place: str) -> str:
    """The cgroup's folder: a unit lives in system.slice."""
    inside = f"system.slice/{place}" if place.endswith((".service", ".scope")) and "/" not in place else place
    return f"{view.node.cgroup_root}/{inside.strip('/')}"
