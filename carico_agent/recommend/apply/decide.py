"""Which running Pods are resized, and which not yet: pure.

A raised request needs room twice: by requests, or the kubelet defers the resize, and by what the node measures, or the
Pod gets a promise that the node cannot keep. Lowered requests always fit.

    fits now            the kubelet does it at once
    would wait          the node is big enough, but not free enough: by requests, or by measured room
    needs another node  the Pod would not even fit on its node alone
    refused             Kubernetes or a rule of ours forbids it
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

from carico_agent.recommend.advice import Advice, Recommendation
from carico_agent.recommend.commands._output import cpu_quantity, memory_quantity, why_no_resize
from carico_agent.recommend.workload import OwnerObject

FITS, WAITS, ELSEWHERE, REFUSED, NOTHING = "fits now", "would wait", "needs another node", "refused", "nothing to do"
Amounts = dict[str, float]
"""cpu [cores] and memory [bytes]."""


@dataclass(frozen=True, slots=True)
class LiveContainer:
    name: str
    requests: Amounts
    limits: Amounts
    restarts_for: frozenset[str] = frozenset()
    """Resources whose change restarts it (resizePolicy)."""
    restarts: int = 0
    oom_killed: bool = False
    """Its last end was an OOM kill."""


@dataclass(frozen=True, slots=True)
class LivePod:
    namespace: str
    name: str
    uid: str
    node: str
    owner: OwnerObject
    qos: str
    containers: Mapping[str, LiveContainer]
    pending: str = ""
    """Why a resize of it waits: Deferred or Infeasible."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ResizeRoom:
    """One node: what it offers, what is requested of it, and what it measures as free (NaN: not published)."""

    allocatable: Amounts
    requested: Amounts
    measured: Amounts = field(default_factory=lambda: {"cpu": nan, "memory": nan})


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """Within which bounds Pods are resized."""

    min_change: float = 0.1
    """Smaller relative changes are not worth a resize."""
    max_step: float = 0.5
    """A request is lowered by at most this share at a time; it is raised as far as is needed."""
    restarts: bool = False
    """Also containers that a change restarts."""
    min_confidence_days: float = 0.0
    hpa: bool = False


@dataclass(frozen=True)
class PodResize:
    """What happens to one Pod. `before` and `after`: by container, its `requests` and `limits` as quantities."""

    pod: LivePod
    verdict: str
    why: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    delta: Amounts = field(default_factory=lambda: {"cpu": 0.0, "memory": 0.0})
    throttled_ratio: float = 0.0
    oom_kills: int = 0
    """Of the workload until now."""


def decide(
    rows: Iterable[Recommendation],
    pods: Sequence[LivePod],
    rooms: Mapping[str, ResizeRoom],
    rules: ApplyRules,
    left_alone: Mapping[str, str] | None = None,
) -> list[PodResize]:
    """One answer per Pod of a workload with a recommendation. `left_alone`: UIDs and why. Room that one Pod takes is
    gone for the next."""
    by_owner: dict[tuple[str, str, str], list[Recommendation]] = {}
    for row in rows:
        by_owner.setdefault(_identity(row.workload), []).append(row)
    taken: dict[str, Amounts] = {}
    found = []
    for pod in sorted(pods, key=lambda pod: pod.key):
        if containers := by_owner.get(_identity(pod.owner)):
            change = _decide(pod, containers, rooms.get(pod.node), rules, taken, (left_alone or {}).get(pod.uid, ""))
            found.append(change)
    return found


def _identity(owner: OwnerObject) -> tuple[str, str, str]:
    return owner.namespace, owner.kind, owner.name


def _decide(
    pod: LivePod,
    rows: Sequence[Recommendation],
    room: ResizeRoom | None,
    rules: ApplyRules,
    taken: dict[str, Amounts],
    alone: str,
) -> PodResize:
    change = wanted(pod, rows, rules)
    if not change.after:
        return change
    if why := alone or _refusal(pod, rows, rules, change):
        return _with(change, REFUSED, why)
    if room is None:
        return _with(change, REFUSED, f"node {pod.node} is not known")
    held = taken.setdefault(pod.node, {"cpu": 0.0, "memory": 0.0})
    verdict, why = verdict_of(change, pod, room, held)
    if verdict == FITS:
        for name in held:
            held[name] += max(change.delta[name], 0.0)
    return _with(change, verdict, why)


def _with(change: PodResize, verdict: str, why: str) -> PodResize:
    return replace(change, verdict=verdict, why=why)


def _refusal(pod: LivePod, rows: Sequence[Recommendation], rules: ApplyRules, change: PodResize) -> str:
    if pod.pending:
        return f"an earlier resize waits ({pod.pending})"
    if why := why_no_resize("Pod" if pod.owner.kind != "Node" else "Node", rows):
        return why
    if not rules.hpa and (hpa := next((row.hpa for row in rows if row.hpa), "")):
        return f"{hpa}; --allow-hpa includes it"
    restarted = [
        f"{name} ({resource})"
        for name, after in change.after.items()
        for resource in pod.containers[name].restarts_for
        if _differs(change.before[name], after, resource)
    ]
    if restarted and not rules.restarts:
        return f"its resizePolicy restarts {', '.join(restarted)}; --allow-restart includes it"
    if (days := min(row.confidence_days for row in rows)) < rules.min_confidence_days:
        return f"{days:.2g} days observed, {rules.min_confidence_days:g} are asked for"
    return ""


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], resource: str) -> bool:
    return any(
        (before.get(w) or {}).get(resource) != (after.get(w) or {}).get(resource) for w in ("requests", "limits")
    )


def verdict_of(change: PodResize, pod: LivePod, room: ResizeRoom, taken: Amounts) -> tuple[str, str]:
    """Whether the node has what is added; `taken`: what was given away in this round."""
    whole = {r: sum(one.requests.get(r, 0.0) for one in pod.containers.values()) for r in ("cpu", "memory")}
    for resource, added in change.delta.items():
        if added <= 0:
            continue
        shown = _shown(resource)
        have, held = room.allocatable.get(resource, 0.0), room.requested.get(resource, 0.0)
        if whole[resource] + added > have:
            return ELSEWHERE, f"{resource}: {shown(whole[resource] + added)} is more than the node's {shown(have)}"
        if held + taken[resource] + added > have + 1e-9:
            free = max(have - held - taken[resource], 0.0)
            return WAITS, f"{resource}: {shown(free)} free by requests, {shown(added)} more are needed"
        measured = room.measured.get(resource, nan)
        if isfinite(measured) and measured - taken[resource] < added:
            free = max(measured - taken[resource], 0.0)
            return WAITS, f"{resource}: {shown(free)} free as measured, {shown(added)} more are needed"
    published = all(isfinite(room.measured.get(resource, nan)) for resource in ("cpu", "memory"))
    return FITS, "" if published else "by requests alone: the node publishes no room"


def _shown(resource: str) -> Any:
    return cpu_quantity if resource == "cpu" else memory_quantity


def wanted(pod: LivePod, rows: Sequence[Recommendation], rules: ApplyRules) -> PodResize:
    """What would change, whatever the node has."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    delta = {"cpu": 0.0, "memory": 0.0}
    for row in rows:
        live = pod.containers.get(row.container)
        if live is None:
            continue
        new = {"requests": {}, "limits": {}}  # type: dict[str, dict[str, str]]
        for resource, advice in (("cpu", row.cpu), ("memory", row.memory)):
            target = _step(live, resource, advice, rules)
            if target is None:
                continue
            new["requests"][resource] = _shown(resource)(target)
            delta[resource] += target - live.requests.get(resource, 0.0)
            limit = _limit(live, resource, advice, target, pod.qos)
            if limit is not None:
                new["limits"][resource] = _shown(resource)(limit)
        if new["requests"]:
            after[row.container] = {name: amounts for name, amounts in new.items() if amounts}
            before[row.container] = _as_they_are(live, after[row.container])
    ratio = max((row.throttled_ratio for row in rows), default=0.0)
    kills = sum(row.oom_kills for row in rows)
    return PodResize(pod, NOTHING if not after else FITS, "", before, after, delta, ratio, kills)


def _step(live: LiveContainer, resource: str, advice: Advice, rules: ApplyRules) -> float | None:
    """The request of this round; None: none, or not worth it."""
    now = live.requests.get(resource)
    if advice.request is None or now is None or not now:
        return None
    target = max(advice.request, now * (1 - rules.max_step)) if advice.request < now else advice.request
    return target if abs(target - now) > rules.min_change * now else None


def _limit(live: LiveContainer, resource: str, advice: Advice, request: float, qos: str) -> float | None:
    now = live.limits.get(resource)
    if now is None:
        return None
    if qos == "Guaranteed":
        return request
    if advice.limit is not None:
        return max(advice.limit, request)
    return request if request > now else None


def _as_they_are(live: LiveContainer, after: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, as they stand now: what a rollback writes."""
    have = {"requests": live.requests, "limits": live.limits}
    return {
        what: {resource: _shown(resource)(have[what][resource]) for resource in amounts}
        for what, amounts in after.items()
    }


def worth_first(changes: Iterable[PodResize]) -> list[PodResize]:
    """Those that fit, raises before cuts: a container that is short comes first."""
    fitting = [change for change in changes if change.verdict == FITS]
    return sorted(fitting, key=lambda change: -max(change.delta["cpu"], change.delta["memory"] / 4e9, -inf))
