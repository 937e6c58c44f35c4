"""Status: what a node says about itself, as one type from the model to every reader.

The model's Estimate becomes a Status once per update; the socket, the metrics, the status file, the Node object, the
line for humans and the plugins all read this type. `as_json` is the one place that makes JSON of it, and `from_json`
reads it back (for `carico status` and `carico top`).

Why unknown numbers are None here and NaN in the model: arithmetic needs NaN, JSON knows only null. The change happens
once, in `status_of`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from carico_agent.lib.net.times import rfc3339

if TYPE_CHECKING:  # numpy takes 0.1 s to load, and `carico status` needs none
    from carico_agent.core import Estimate, WorkloadEstimate

VERSION = 1
MOVED_PODS, MOVED_RATIO = 0.05, 0.01
"""An answer has moved when it differs by more than half of what the Kubernetes publisher heeds, and by this part."""
MODES = ("learning", "measured", "predicted")
OUTLOOKS = ("unknown", "first day", "known")

Amounts = Mapping[str, float | None]
"""Resource (or signal) → a number, None where it is unknown."""


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """One workload on this node: what one costs, and how many more of it fit."""

    workload: str
    pods: int
    """Running now."""
    cost: Amounts
    """Usage of one Pod per resource, as a share of the node."""
    fits: float | None
    """How many more of this workload fit."""
    limiting: str | None
    per_node: bool = False
    """Runs once on every node: it is not what arrives next."""
    low: float | None = None
    high: float | None = None
    spread: Amounts = field(default_factory=dict)
    """Standard deviation of one Pod around its cost."""
    arrivals: float = 0.0
    """Chance that the next Pod to arrive is of this workload, 0 to 1."""
    trusted: bool = False
    """False: nothing is known yet about its cost but the prior."""


@dataclass(frozen=True, slots=True)
class FederationStatus:
    """The conversation with the aggregation server."""

    condition: str = ""
    peers: int = 0
    age_s: float | None = None
    """Age of the cluster's view [s]; None: there is none."""


@dataclass(frozen=True, slots=True)
class SamplingStatus:
    """How often the kernel is read."""

    period_s: float | None = None
    """Time between samples [s]; None in a replay."""
    slowed: str | None = None
    """Why that is longer than configured."""


@dataclass(frozen=True, slots=True)
class WorkStatus:
    """The work left on a node, as far as its jobs report it (docs/progress.md)."""

    jobs: int = 0
    """Pods whose work left is known."""
    unknown: int = 0
    """Pods that have reported, of which nothing is known now: stale, or too new."""
    uncertain: int = 0
    """Of `jobs`, those whose estimate is uncertain."""
    total_s: float = 0.0
    """What all of them still need [CPU seconds]."""
    longest_s: float = 0.0
    """What the one with most still needs [CPU seconds]."""
    lefts_s: tuple[int, ...] = ()
    """What each of them still needs, at most 32, those with most first [CPU seconds]."""
    run_s: float | None = None
    """What one of them needs from its start to its end, on the average [CPU seconds]."""
    contention_s: float = 0.0
    expected_contention_s: float = 0.0
    at_limit: bool = False
    """By ProCon's rules, for the policy procon."""
    top: tuple[tuple[str, float, str], ...] = ()
    """At most 8 jobs, those that end last first: name, share that is done, expected end (RFC 3339 or empty)."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a node at one instant. The order of the fields is the order in JSON."""

    version: int = VERSION
    sequence: int = 0
    """Number of this status since the agent started; `LatestStatus` gives it."""
    ttl_s: float = 0.0
    """For how long it is valid [s]; `LatestStatus` gives it."""
    node: str = ""
    time: str = ""
    """When it was made (RFC 3339)."""
    pod_capacity: float | None = None
    low: float | None = None
    high: float | None = None
    slots: float | None = None
    """Pods counted + Pod-Capacity, both of this instant."""
    pods: int = 0
    mode: str = "learning"
    limiting: str | None = None
    method: str = "measured"
    """Of [model]. With carico the next three and `sigma` and `direction` are known."""
    capacity: float | None = None
    """Capacity k, in units of the workload seen lately: `sigma` × `direction`."""
    baseline: float | None = None
    per_pod_cost: float | None = None
    cost_vector: Amounts = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)
    sigma: float | None = None
    direction: Amounts = field(default_factory=dict)
    signals: Amounts = field(default_factory=dict)
    host: Amounts = field(default_factory=dict)
    """Usage that is no Pod's, per resource; empty until Pods are measured one by one."""
    room: Amounts = field(default_factory=dict)
    """What is left per resource; empty until Pods are measured one by one."""
    pods_measured: bool = False
    """Every Pod is measured one by one."""
    pod_capacity_held: float | None = None
    """How many more Pods fit and still have room in `horizon_s` from now; None: unknown."""
    held_low: float | None = None
    held_high: float | None = None
    horizon_s: float | None = None
    """For how long that holds [s]: as long as the next Pod stays."""
    outlook: str = "unknown"
    """What is known about the coming hours: unknown, first day (until a day was seen) or known."""
    peak_time: str | None = None
    """When the Pods that run now will use most (RFC 3339)."""
    room_held: Amounts = field(default_factory=dict)
    """What is left per resource at that time; empty while unknown."""
    sizes: Amounts = field(default_factory=dict)
    """What a share of 1 is per resource: twice the cores for the cpu, bytes for memory."""
    limits: Amounts = field(default_factory=dict)
    """Share at which a resource counts as full, by who runs here."""
    workloads: tuple[WorkloadStatus, ...] = ()
    mix_changed: str = ""
    """Which workload arrives more or less often than some minutes ago, where that moved Pod-Capacity by a quarter."""
    work: WorkStatus = WorkStatus()
    reserved: int = 0
    """Pods that reservations hold room for."""
    available: int = 0
    """Whole Pods that may still be reserved."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Signal → why this node does not offer it."""
    runtime: str = ""
    federation: FederationStatus = FederationStatus()
    sampling: SamplingStatus = SamplingStatus()
    publishers: Mapping[str, str] = field(default_factory=dict)
    """Publisher → its condition."""


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent's other parts add to an estimate; the fields are those of Status."""

    sizes: Amounts = field(default_factory=dict)
    work: WorkStatus = WorkStatus()
    reserved: int = 0
    available: int = 0
    absent: Mapping[str, str] = field(default_factory=dict)
    runtime: str = ""
    federation: FederationStatus = FederationStatus()
    sampling: SamplingStatus = SamplingStatus()
    publishers: Mapping[str, str] = field(default_factory=dict)


NO_FACTS = AgentFacts()


@dataclass(frozen=True, slots=True)
class Ahead:
    """The estimate that holds for hours, and when its peak is [unix s], NaN: unknown."""

    estimate: "Estimate"
    peak_t: float


def known(value: float, digits: int = 6) -> float | None:
    """A finite number, rounded; None for NaN and infinity, which JSON does not know."""
    return round(float(value), digits) if isfinite(value) else None


def by_name(names: Iterable[str], values: Iterable[float]) -> dict[str, float | None]:
    return {name: known(value) for name, value in zip(names, values, strict=True)}


def status_of(
    node: str,
    resources: tuple[str, ...],
    e: "Estimate",
    detail: Mapping[str, float],
    facts: AgentFacts = NO_FACTS,
    ahead: Ahead | None = None,
    workloads: "tuple[WorkloadStatus, ...] | None" = None,
) -> Status:
    """The status of an estimate, its signals (`detail`), what else the agent knows and what holds for hours. The table
    of workloads is the estimate's own unless it is given."""
    if workloads is None:
        workloads = tuple(workload_status(resources, workload) for workload in e.workloads)
    return Status(
        node=node,
        time=rfc3339(),
        pod_capacity=known(e.pod_capacity, 3),
        low=known(e.low, 3),
        high=known(e.high, 3),
        slots=known(e.slots, 3),
        pods=e.pods,
        mode=e.mode,
        limiting=e.limiting,
        capacity=known(e.capacity),
        baseline=known(e.baseline),
        per_pod_cost=known(e.per_pod_cost),
        cost_vector=by_name(resources, e.cost_vector),
        usage=by_name(resources, e.usage),
        sigma=known(e.sigma),
        method="carico" if e.direction else "measured",
        direction=by_name(resources, e.direction) if e.direction else {},
        signals={key: known(value) for key, value in detail.items()},
        pods_measured=e.measured,
        host=by_name(resources, e.host) if e.measured else {},
        room=by_name(resources, e.room) if e.measured else {},
        sizes=facts.sizes,
        limits=by_name(resources, e.limits) if e.limits else {},
        workloads=workloads,
        mix_changed=e.mix_changed,
        work=facts.work,
        reserved=facts.reserved,
        available=facts.available,
        absent=facts.absent,
        runtime=facts.runtime,
        federation=facts.federation,
        sampling=facts.sampling,
        publishers=facts.publishers,
        **({} if ahead is None else _held(resources, ahead)),
    )


def moved(status: Status, now: "Estimate") -> bool:
    """Whether a scheduler may act otherwise on this answer than on that status."""
    if (status.pods, status.mode, status.limiting) != (now.pods, now.mode, now.limiting):
        return True
    if status.pod_capacity is None or not isfinite(now.pod_capacity):
        return (status.pod_capacity is None) == isfinite(now.pod_capacity)
    by = abs(now.pod_capacity - status.pod_capacity)
    return by > max(MOVED_PODS, MOVED_RATIO * status.pod_capacity)


def _held(resources: tuple[str, ...], ahead: Ahead) -> dict[str, Any]:
    """The fields of Status that hold for hours."""
    e = ahead.estimate
    if not isfinite(e.pod_capacity):
        return {"horizon_s": e.horizon_s, "outlook": e.outlook}
    return {
        "pod_capacity_held": known(e.pod_capacity, 3),
        "held_low": known(e.low, 3),
        "held_high": known(e.high, 3),
        "horizon_s": round(e.horizon_s, 1),
        "outlook": e.outlook,
        "peak_time": rfc3339(ahead.peak_t, digits="seconds") if isfinite(ahead.peak_t) else None,
        "room_held": by_name(resources, e.room),
    }


def workload_status(resources: tuple[str, ...], workload: "WorkloadEstimate") -> WorkloadStatus:
    return WorkloadStatus(
        workload=workload.workload,
        pods=workload.pods,
        cost=by_name(resources, workload.cost),
        fits=known(workload.fits, 3),
        limiting=workload.limiting,
        per_node=workload.per_node,
        low=known(workload.low, 3),
        high=known(workload.high, 3),
        spread=by_name(resources, workload.spread),
        arrivals=round(workload.arrivals, 4),
        trusted=workload.trusted,
    )


_NESTED: tuple[type[Any], ...] = (Status, WorkloadStatus, FederationStatus, SamplingStatus, WorkStatus)
_NAMES = {one: tuple(item.name for item in fields(one)) for one in _NESTED}
_WHEN_KNOWN = ("host", "room", "workloads", "mix_changed", "sizes", "limits", "room_held")
"""Left out of the JSON while they are empty."""


def as_json(status: Status) -> dict[str, Any]:
    """The body of /v1/status, but for the age, which is every reader's own.

    >>> body = as_json(Status(node="a", pod_capacity=3.2, publishers={"kubernetes": "published"}))
    >>> body["pod_capacity"], body["high"], body["kubernetes"], "workloads" in body
    (3.2, None, 'published', False)
    """
    body: dict[str, Any] = {name: getattr(status, name) for name in _NAMES[Status]}
    for name in ("federation", "sampling", "workloads", "work"):
        body[name] = _plain(body[name])
    for name in _WHEN_KNOWN:
        if not body[name]:
            del body[name]
    if "kubernetes" in status.publishers:
        body["kubernetes"] = status.publishers["kubernetes"]
    return body


def _plain(value: Any) -> Any:
    if names := _NAMES.get(type(value)):
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(one) for one in value] if type(value) is tuple else value


def from_json(body: Mapping[str, Any]) -> Status:
    """The status an agent sent, perhaps one of another version: unknown fields are ignored, missing ones are unknown.

    >>> web = WorkloadStatus("shop/web", 2, {"cpu": 0.1}, 3.0, "cpu")
    >>> status = Status(node="a", usage={"cpu": 0.5}, workloads=(web,))
    >>> from_json(as_json(status)) == status
    True
    """
    read: Status = _read(Status, body)
    return replace(
        read,
        federation=_read(FederationStatus, body.get("federation") or {}),
        sampling=_read(SamplingStatus, body.get("sampling") or {}),
        work=_read_work(body.get("work") or {}),
        workloads=tuple(_read(WorkloadStatus, one) for one in body.get("workloads") or ()),
    )


def _read_work(body: Mapping[str, Any]) -> WorkStatus:
    read: WorkStatus = _read(WorkStatus, body)
    return replace(read, lefts_s=tuple(read.lefts_s), top=tuple((name, ratio, end) for name, ratio, end in read.top))


def _read(cls: type[Any], body: Mapping[str, Any]) -> Any:
    return cls(**{name: body[name] for name in _NAMES[cls] if name in body})
