"""What a node publishes of itself, read from its Node object and its placement Lease.

The number stands on the Node object, and that its agent is alive in the Lease. Whatever does not read as it should
was written by another client: the node then publishes nothing.
"""

import json
import time
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.names import POD_CAPACITY, SLOTS, STATUS, WORKLOADS
from carico_agent.lib.kube.placement_lease import EXTENDERS_LEASES, MALFORMED, MAX_TTL_S, LeaseRecord, lease_record
from carico_agent.lib.kube.pods import whole
from carico_agent.lib.kube.workloads import NodeWorkloads, decode
from carico_agent.lib.net.times import parse_rfc3339
from carico_agent.plugin_api.formats import parse_quantity

MAX_LEFTS = 32
"""Jobs whose work is published one by one."""


@dataclass(frozen=True, slots=True)
class PublishedWork:
    """What the jobs of a node still need, as it publishes it."""

    jobs: int = 0
    """Pods whose work left is known."""
    left_s: float = 0.0
    """Of all of them [CPU seconds]."""
    lefts_s: tuple[float, ...] = ()
    """Of each, those with most first."""
    run_s: float = nan
    """What one needs from its start to its end [CPU seconds]."""
    contention_s: float = 0.0
    expected_contention_s: float = 0.0
    at_limit: int = 0
    """By ProCon's rules."""


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What one node publishes of itself; places NaN when it publishes nothing."""

    name: str
    places: float = nan
    age_s: float = inf
    ttl_s: float = 0.0
    cores: float = inf
    resource: int | None = None
    cpu: float = nan
    """Allocatable [cores]."""
    memory: float = nan
    """The same [bytes]."""
    work: PublishedWork = PublishedWork()
    workloads: NodeWorkloads | None = None
    """Its room and what workloads take of it."""
    rise: str = ""
    """Under which id its placement Lease offers this (kube/placement_lease.py)."""
    pod_capacity: float = nan


def read_node(node: Object, wall_s: float | None = None, resource: str = "") -> PublishedNode:
    """A Node object's annotations. The age is by this machine's clock; a node whose clock is ahead is of age 0.

    >>> notes = {"carico.dev/slots": "8", "carico.dev/status": '{"time":"2024-01-01T00:00:00Z","ttl_s":150,"places":7}'}
    >>> node = {"metadata": {"name": "a", "annotations": notes}, "status": {"capacity": {"cpu": "4"}}}
    >>> read = read_node(node, 1704067210.0)
    >>> read.places, read.age_s, read.ttl_s, read.cores, read.resource
    (7.0, 10.0, 150.0, 4.0, None)
    """
    meta, have = node["metadata"], node.get("status") or {}
    annotations = meta.get("annotations") or {}
    allocatable = have.get("allocatable") or {}
    amount = allocatable.get(resource)
    unpublished = PublishedNode(
        meta["name"],
        cores=_amount(have.get("capacity") or {}, "cpu", inf),
        resource=None if amount is None else whole(amount),
        cpu=_amount(allocatable, "cpu"),
        memory=_amount(allocatable, "memory"),
    )
    if SLOTS not in annotations:
        return unpublished
    try:
        status = json.loads(annotations.get(STATUS) or "{}")
        published_s = parse_rfc3339(status["time"])
        counted = status.get("places")
        places = float(annotations[SLOTS] if counted is None else counted)
        said_s = float(status["ttl_s"])
        ttl_s = min(said_s, MAX_TTL_S)
        pod_capacity = float(annotations.get(POD_CAPACITY, nan))
        if not isfinite(places) or not isfinite(said_s):
            raise ValueError
    except MALFORMED:  # another client wrote it
        return unpublished
    age_s = max(0.0, (time.time() if wall_s is None else wall_s) - published_s)
    return replace(
        unpublished,
        places=places,
        age_s=age_s,
        ttl_s=ttl_s,
        pod_capacity=pod_capacity if isfinite(pod_capacity) else nan,
        work=_work(status),
        workloads=decode(annotations.get(WORKLOADS) or ""),
        rise=str(status.get("rise") or ""),
    )


@dataclass(frozen=True, slots=True)
class SeenLease:
    """One Lease in the namespace of the placement Leases: a node's, or one of the extenders' own."""

    name: str
    """That of its node, or one of EXTENDERS_LEASES."""
    age_s: float = inf
    """Since its agent renewed it."""
    ttl_s: float = 0.0
    record: LeaseRecord = field(default_factory=LeaseRecord)
    """All of a node's Lease."""
    of_extenders: Object | None = None
    """The object itself, if it is one of the extenders' own."""


def read_lease(lease: Object, wall_s: float | None = None) -> SeenLease:
    """The age is by this machine's clock; the Lease of an agent whose clock is ahead is of age 0."""
    name = lease["metadata"]["name"]
    if name in EXTENDERS_LEASES:
        return SeenLease(name, of_extenders=lease)
    record = lease_record(lease)
    age_s = max(0.0, (time.time() if wall_s is None else wall_s) - record.renewed_s)
    return SeenLease(name, age_s, record.ttl_s, record)


def _work(status: Object) -> PublishedWork:
    """What its jobs still need, out of the status annotation; nothing where there is none, or no numbers.

    >>> _work({"work": {"jobs": 2, "sum_s": 90.5, "run_s": 60}}).left_s, _work({"work": {"jobs": -1}}).jobs
    (90.5, 0)
    """
    work = status.get("work")
    if not isinstance(work, dict) or not isinstance(work.get("jobs"), int):
        return PublishedWork()
    lefts = work.get("lefts_s")
    try:
        return PublishedWork(
            int(_in_range(work["jobs"], 1e6)),
            _in_range(work.get("sum_s"), 1e15),
            tuple(_in_range(one, 1e9) for one in (lefts if isinstance(lefts, list) else [])[:MAX_LEFTS]),
            _in_range(work["run_s"], 1e9) if "run_s" in work else nan,
            _in_range(work.get("c_s", 0.0), 1e15),
            _in_range(work.get("c1_s", 0.0), 1e15),
            int(work.get("limit") is True),
        )
    except ValueError:
        return PublishedWork()


def _in_range(value: object, largest: float) -> float:
    """An integer of JSON may have any number of digits. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise ValueError
    return float(value)


def _amount(amounts: Object, name: str, unknown: float = nan) -> float:
    """A quantity out of a node's capacity or allocatable; `unknown` when there is none.

    >>> _amount({"cpu": "3500m"}, "cpu"), _amount({"memory": "4Ki"}, "memory"), _amount({"cpu": "0"}, "cpu", inf)
    (3.5, 4096.0, inf)
    """
    try:
        amount = float(parse_quantity(str(amounts.get(name, ""))))
    except ValueError:
        return unknown
    return amount if amount > 0 else unknown
