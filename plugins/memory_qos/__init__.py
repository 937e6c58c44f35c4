"""memory_qos: memory.high between request and limit (KEP-2570), taken back at once when it hurts.

The kubelet's own MemoryQoS knows requests; this one also works where there is no kubelet, or where no user wrote
requests: then the observed working set stands in for them. Opt-in by class, dry-run unless configured.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from carico_agent import plugin_api
from carico_agent.plugin_api import (
    Change,
    Metric,
    Outcome,
    PodView,
    Range,
    Refuse,
    View,
    Writer,
    parse_flat,
    parse_quantity,
    parse_stall,
)

from .ancestors import Place, ineffective, protect_above
from .formula import Class, Sizes, class_of, memory_high, protection
from .guard import Guard, Signs, Tolerance

PRESSURE = "memory.pressure"
REQUEST, LIMIT = "carico.dev/memory-request", "carico.dev/memory-limit"
PROTECTION = ("memory.min", "memory.low")
MOSTLY = 0.5
STAT_EVERY_S = 15.0


@dataclass(frozen=True)
class MemoryQosSettings:
    """Keeps Pods below memory.high so that one that grows is slowed down before the node runs out of memory."""

    factor: Annotated[float, Range(0.0, 1.0)] = 0.9
    """Where memory.high stands between request (0) and limit (1); the kubelet's memoryThrottlingFactor."""

    mode: Literal["high", "reclaim"] = "high"
    """"high" sets memory.high. "reclaim" is the gentle way: it asks for at most reclaim_step_bytes per second to be
    freed from Pods above that line (memory.reclaim, Linux 5.19) and leaves nothing behind."""

    pods: tuple[str, ...] = ("*",)
    """Which Pods, by name or namespace/name; * and ? are wildcards."""

    requests: dict[str, str] = field(default_factory=dict)
    """Requests by Pod name or pattern, like { "web-*" = "256Mi" }; stronger than labels and annotations."""

    limits: dict[str, str] = field(default_factory=dict)
    """Limits by Pod name or pattern. Not named: memory.max of the Pod."""

    observe_s: Annotated[float, Range(0.0, 604_800.0)] = 600.0
    """Without a known request the largest working set of this long [s] stands in for it."""

    margin_ratio: Annotated[float, Range(0.0, 10.0)] = 0.15
    """What is added to an observed working set."""

    protect: bool = False
    """Also set memory.min (Guaranteed) or memory.low (Burstable) to the request, and the groups above to the sum of
    what is protected below them: the kernel gives a group no more than its parent has."""

    force_without_swap: bool = False
    """Set memory.high even on nodes without swap for Pods whose memory is mostly anonymous. Such a Pod cannot be
    reclaimed: it stands still instead of being killed."""

    harm_full_ratio: Annotated[float, Range(0.0, 1.0)] = 0.1
    """Undo when all tasks of a Pod stood still for more than this share of the time."""

    harm_scan_per_s: Annotated[float, Range(0.0, 1e9)] = 1000.0
    """Undo when the kernel looks at more pages per second than this and frees less than a tenth of them."""

    back_off_s: Annotated[float, Range(1.0, 86_400.0)] = 300.0
    """After harm leave the Pod alone for this long [s]; doubled each time."""

    reclaim_step_bytes: Annotated[int, Range(4096, 1 << 40)] = 16 << 20
    """In mode "reclaim": the most to free from one Pod at once."""


@dataclass(slots=True)
class _GuardedPod:
    """One Pod by its cgroup's inode: what was seen, decided and suffered."""

    pod: str
    first_s: float
    guard: Guard
    peak: int = 0
    sizes: Sizes | None = None
    high: int | None = None
    stat: Mapping[str, int] = field(default_factory=dict)
    met: int = -1
    stat_s: float = -STAT_EVERY_S
    harms: int = 0
    rest_until_s: float = 0.0
    note: str = ""
    notes: list[str] = field(default_factory=list)


class Plugin(plugin_api.Plugin):
    name: ClassVar[str] = "memory_qos"
    Settings: ClassVar[type] = MemoryQosSettings
    period_s: ClassVar[float] = 1.0

    def __init__(self, settings: MemoryQosSettings) -> None:
        super().__init__(settings)
        for table in (settings.requests, settings.limits):
            for pattern, text in table.items():
                _amount(text, pattern)
        self._watched: dict[int, _GuardedPod] = {}
        self._above: set[Place] = set()
        self.undone = 0

    def start(self, view: View) -> None:
        if "memory" not in (view.read(view.node.cgroup_root, "cgroup.controllers") or "").split():
            raise Refuse("no memory controller in cgroup v2: there is no memory.high to set")

    def tick(self, view: View, writer: Writer) -> None:
        chosen = [pod for pod in view.pods if _named(pod, self.settings.pods) is not None]
        self._watched = {pod.inode: self._watched.get(pod.inode) or self._new(pod, view) for pod in chosen}
        changes: list[Change] = []
        for pod in chosen:
            watched = self._watched[pod.inode]
            if not self._harmed(view, pod, watched, writer):
                changes += self._changes(view, pod, watched, self._stat(view, pod, watched))
        protecting = [change for change in changes if change.key in PROTECTION]
        for outcome in writer.write([*changes, *self._protect_above(protecting, view, writer)]):
            self._on_outcome(outcome, writer)
        for change in protecting:
            if why := ineffective(change, view):
                self._watched[change.inode].notes.append(why)

    def _protect_above(self, protecting: list[Change], view: View, writer: Writer) -> list[Change]:
        """Of the groups above; one that has no protected Pod below it any more gets its own value back."""
        made = protect_above(protecting, view, writer)
        now = {(change.cgroup, change.inode, change.key) for change in made}
        for place in self._above - now:
            writer.undo(*place, "no protected Pod is below it")
        self._above = now
        return made

    def _new(self, pod: PodView, view: View) -> _GuardedPod:
        tolerance = Tolerance(self.settings.harm_full_ratio, self.settings.harm_scan_per_s, 0.1)
        return _GuardedPod(pod.full_name, view.now_s, Guard(tolerance))

    def _stat(self, view: View, pod: PodView, watched: _GuardedPod) -> Mapping[str, int]:
        """memory.stat, not at every tick: the kernel adds it up over all CPUs, which makes it the dearest file here."""
        if view.now_s - watched.stat_s >= STAT_EVERY_S:
            watched.stat, watched.stat_s = parse_flat(view.read(pod.cgroup, "memory.stat")), view.now_s
            working = (pod.usage.memory_current or 0) - watched.stat.get("inactive_file", 0)
            watched.peak = max(watched.peak, working)
        return watched.stat

    # -- what to set -------------------------------------------------------------------------------------------------

    def _changes(self, view: View, pod: PodView, watched: _GuardedPod, stat: Mapping[str, int]) -> list[Change]:
        watched.notes = []
        watched.sizes = sizes = self._sizes(view, pod, watched)
        if sizes is None:
            watched.note = "its request is not known; observing its working set"
            return []
        if view.now_s < watched.rest_until_s:
            watched.note = f"left alone for {watched.rest_until_s - view.now_s:.0f} s more after harm"
            return []
        high = memory_high(
            sizes.request, sizes.limit, view.node.memory_total_bytes, self.settings.factor, view.node.page_bytes
        )
        changes = self._protection(view, pod, sizes) if self.settings.protect else []
        if high is None:
            watched.note = "no memory.high: request and limit are the same"
        elif self.settings.mode == "reclaim":
            changes += self._reclaim(pod, watched, high)
        elif (reason := self._frozen_by(view, stat)) is not None:
            watched.note = reason
        else:
            reason = (
                f"request {sizes.request} ({sizes.source}), limit {sizes.limit or 'none'}, "
                f"factor {self.settings.factor}"
            )
            watched.note = f"memory.high = {high}: {reason}"
            changes.append(Change(pod.cgroup, pod.inode, "memory.high", str(high), reason))
        return changes

    def _sizes(self, view: View, pod: PodView, watched: _GuardedPod) -> Sizes | None:
        """Configuration first, then what the Pod says, then what the kubelet's cgroup says, then what was observed."""
        limit = self._limit(view, pod, watched)
        if (pattern := _named(pod, tuple(self.settings.requests))) is not None:
            return Sizes(int(parse_quantity(self.settings.requests[pattern])), limit, "configuration")
        if (note := _says(pod, REQUEST, watched)) is not None:
            return Sizes(note, limit, "annotation")
        if pod.memory_request is not None:
            return Sizes(pod.memory_request, limit, "the API server")
        if pod.qos == "guaranteed" and limit is not None:
            return Sizes(limit, limit, "its class")
        if view.now_s - watched.first_s < self.settings.observe_s or watched.peak <= 0:
            return None
        observed = int(watched.peak * (1 + self.settings.margin_ratio))
        return Sizes(min(observed, limit or observed), limit, "observed")

    def _limit(self, view: View, pod: PodView, watched: _GuardedPod) -> int | None:
        if (pattern := _named(pod, tuple(self.settings.limits))) is not None:
            return int(parse_quantity(self.settings.limits[pattern]))
        if (note := _says(pod, LIMIT, watched)) is not None:
            return note
        if pod.memory_limit is not None:
            return pod.memory_limit
        text = view.read(pod.cgroup, "memory.max") or "max"
        return None if text == "max" else int(text)

    def _frozen_by(self, view: View, stat: Mapping[str, int]) -> str | None:
        """Anonymous memory can only go to swap. Without swap, memory.high stops such a Pod instead of shrinking it."""
        anon, file = stat.get("anon", 0), stat.get("file", 0)
        if self.settings.force_without_swap or view.node.swap_total_bytes > 0 or anon <= MOSTLY * (anon + file):
            return None
        return (
            f"no memory.high: {anon / max(anon + file, 1):.0%} of its memory is anonymous and the node has no swap "
            "(force_without_swap = true to set it all the same)"
        )

    def _reclaim(self, pod: PodView, watched: _GuardedPod, high: int) -> list[Change]:
        over = (pod.usage.memory_current or 0) - high
        watched.note = f"{over} bytes above its line" if over > 0 else "below its line"
        step = str(min(over, self.settings.reclaim_step_bytes))
        return [Change(pod.cgroup, pod.inode, "memory.reclaim", step, watched.note)] if over > 0 else []

    def _protection(self, view: View, pod: PodView, sizes: Sizes) -> list[Change]:
        qos: Class = class_of(sizes) if pod.qos == "unknown" else pod.qos
        wanted = protection(sizes, qos, view.node.page_bytes) if sizes.source != "observed" else None
        if wanted is None:
            return []
        key, value = wanted
        return [Change(pod.cgroup, pod.inode, key, str(value), f"class {qos}, request {sizes.request}")]

    # -- harm --------------------------------------------------------------------------------------------------------

    def _harmed(self, view: View, pod: PodView, watched: _GuardedPod, writer: Writer) -> bool:
        if watched.high is None:
            return False
        met = parse_flat(view.read(pod.cgroup, "memory.events")).get("high", 0)
        if met == watched.met and watched.stat_s + STAT_EVERY_S > view.now_s:
            return False  # memory.high was not met since the last look: nothing can hurt
        watched.met = met
        stat, stall = parse_flat(view.read(pod.cgroup, "memory.stat")), parse_stall(view.read(pod.cgroup, PRESSURE))
        current = view.read(pod.cgroup, "memory.current") or "0"
        signs = Signs(
            view.now_s,
            met,
            stall.full_usec if stall else 0,
            stat.get("pgscan", 0),
            stat.get("pgsteal", 0),
            int(current),
        )
        harm = watched.guard.harm(signs, watched.high)
        if harm is None:
            return False
        outcome = writer.undo(pod.cgroup, pod.inode, "memory.high", f"harm: {harm}")
        watched.harms += 1
        watched.rest_until_s = view.now_s + self.settings.back_off_s * 2 ** min(watched.harms - 1, 10)
        watched.note = f"memory.high undone ({outcome.state}): {harm}"
        if outcome.state != "failed":  # a failed undo is tried again in the next tick
            watched.high, watched.guard = None, self._new(pod, view).guard
            self.undone += 1
        return True

    def _on_outcome(self, outcome: Outcome, writer: Writer) -> None:
        change = outcome.change
        watched = self._watched.get(change.inode)
        if watched is None:
            return
        if change.key == "memory.high" and writer.original(change.cgroup, change.inode, change.key) is not None:
            watched.high = int(change.value) if outcome.state in ("written", "pending", "unchanged") else watched.high
        if outcome.state in ("refused", "failed", "dry-run", "pending"):
            watched.notes.append(f"{outcome.change.key}: {outcome.state}: {outcome.detail}")

    # -- reporting ---------------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        return {
            "undone": self.undone,
            "pods": [
                {
                    "pod": w.pod,
                    "says": w.note,
                    "notes": w.notes,
                    "memory_high": w.high,
                    "harms": w.harms,
                    "request": w.sizes.request if w.sizes else None,
                    "source": w.sizes.source if w.sizes else None,
                    "limit": w.sizes.limit if w.sizes else None,
                    "peak_working_set": w.peak,
                }
                for w in self._watched.values()
            ],
        }

    def metrics(self) -> Iterable[Metric]:
        yield Metric("memory_high_undone_total", self.undone, {}, "memory.high taken back because it hurt.", "counter")
        yield Metric(
            "memory_high_pods",
            sum(w.high is not None for w in self._watched.values()),
            {},
            "Pods with a memory.high of ours.",
        )


def _named(pod: PodView, patterns: tuple[str, ...]) -> str | None:
    """The first pattern that names this Pod."""
    return next((p for p in patterns if fnmatchcase(pod.full_name if "/" in p else pod.name, p)), None)


def _says(pod: PodView, key: str, watched: _GuardedPod) -> int | None:
    """What the Pod's own annotation or label asks for; nonsense there is its problem, not ours."""
    text = pod.annotations.get(key) or pod.labels.get(key)
    try:
        return None if text is None else int(parse_quantity(text))
    except ValueError as error:
        watched.notes.append(f"{key}: {error}")
        return None


def _amount(text: str, where: str) -> int:
    try:
        return int(parse_quantity(text))
    except ValueError as error:
        raise Refuse(f"{where}: {error}") from error
