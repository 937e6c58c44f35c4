"""The words in which people read a status: how many more fit, of which workload, and what something takes.

One place for the line in the foreground, `carico status` and `carico top`, so that all of them say the same.
"""

from collections.abc import Iterable
from datetime import datetime

from carico_agent.node.publish.status import Amounts, Status, WorkloadStatus

MAX_WORKLOADS = 3
"""Named in a sentence; the tables show all."""
LONG_S = 12 * 3600.0
"""From this horizon on a sentence names the time of the peak [s]."""
MIB, GIB = 2**20, 2**30


def next_workloads(status: Status) -> list[WorkloadStatus]:
    """Workloads that may arrive, the likeliest first; per-node Pods are on every node already."""
    able = [workload for workload in status.workloads if not workload.per_node]
    return sorted(able, key=lambda workload: (-workload.arrivals, -workload.pods, workload.workload))


def room_sentence(status: Status) -> str:
    """How many more Pods fit, by workload where workloads are known; the words of docs/number.md.

    >>> web = WorkloadStatus("shop/web", 2, {"cpu": 0.1}, 5.3, "cpu", arrivals=0.9, trusted=True)
    >>> cache = WorkloadStatus("shop/cache", 1, {"cpu": 0.02}, 24.9, "cpu", arrivals=0.1, trusted=True)
    >>> status = Status(pod_capacity=5.24, low=4.8, high=5.6, mode="measured", limiting="cpu", workloads=(cache, web))
    >>> room_sentence(status)
    'room for 5 more like shop/web, 24 like shop/cache; next Pod: 5.2 [4.8–5.6], measured, limited by cpu'
    >>> room_sentence(Status(pod_capacity=5.2, low=2.7, high=9.3, mode="measured", limiting="cpu", mix_changed="a → b"))
    'Pod-Capacity 5.2 [2.7–9.3] measured, limited by cpu; mix changed: a → b'
    """
    named = [workload for workload in next_workloads(status) if workload.trusted and workload.fits is not None]
    answer = interval(status.pod_capacity, status.low, status.high)
    mix = f"; mix changed: {status.mix_changed}" if status.mix_changed else ""
    if not named:
        return f"Pod-Capacity {answer} {how(status)}{mix}"
    first, *others = (f"{int(workload.fits or 0)} {{}}like {workload.workload}" for workload in named[:MAX_WORKLOADS])
    like = [first.format("more "), *(other.format("") for other in others)]
    more = len(named) - MAX_WORKLOADS
    rest = f", {more} other workloads" if more > 0 else ""
    return f"room for {', '.join(like)}{rest}; next Pod: {answer}, {how(status)}{mix}"


def ahead_sentence(status: Status) -> str:
    """How many still fit at the peak of the running Pods; the time of day is in the reader's time zone.

    >>> from dataclasses import replace
    >>> status = Status(time="2026-11-18T20:00:00Z", pod_capacity=5.2, pod_capacity_held=3.1, horizon_s=86400.0)
    >>> ahead_sentence(replace(status, outlook="first day"))
    'room for 5 now, 3 for the next day (estimated: less than one day observed)'
    >>> ahead_sentence(replace(status, outlook="known", horizon_s=120.0))
    'room for 5 now, 3 for the next 2 min'
    """
    if status.pod_capacity is None:
        return ""
    now = f"room for {int(status.pod_capacity)} now"
    if status.pod_capacity_held is None or status.horizon_s is None:
        return f"{now}; no forecast for the coming hours yet"
    for_s = f"{now}, {int(status.pod_capacity_held)} for the next {duration(status.horizon_s)}"
    if status.outlook != "known":
        return f"{for_s} (estimated: less than one day observed)"
    if status.peak_time is None or status.horizon_s < LONG_S:
        return for_s
    peak, today = (datetime.fromisoformat(text).astimezone() for text in (status.peak_time, status.time))
    day = "today" if peak.date() == today.date() else "tomorrow"
    return f"{now}, {int(status.pod_capacity_held)} through {day}'s peak ({peak:%H:%M})"


def unit_sentence(status: Status) -> str:
    """Capacity k and the workload it is counted in, where the method is carico; else nothing.

    >>> unit = {"cpu": 0.8, "memory": 0.6}
    >>> unit_sentence(Status(method="carico", capacity=1.5, baseline=4.0, per_pod_cost=0.5, sigma=0.5, direction=unit))
    'Capacity 1.50 units of cpu 40.0 %, memory 30.0 %; Baseline 4.00, one Pod costs 0.50'
    """
    if status.method != "carico" or status.capacity is None or status.sigma is None:
        return ""
    unit = ", ".join(f"{name} {100 * status.sigma * (share or 0.0):.1f} %" for name, share in status.direction.items())
    return (
        f"Capacity {status.capacity:.2f} units of {unit}; Baseline {status.baseline or 0.0:.2f}, "
        f"one Pod costs {status.per_pod_cost or 0.0:.2f}"
    )


def duration(seconds: float) -> str:
    """
    >>> duration(90.0), duration(7200.0), duration(86400.0), duration(200000.0)
    ('90 s', '2 h', 'day', '2.3 days')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 86400:
        return f"{seconds / 3600:.3g} h"
    return "day" if seconds == 86400 else f"{seconds / 86400:.2g} days"


def why_learning(status: Status) -> str:
    """Why the mode is `learning`, and what the number assumes meanwhile.

    >>> why_learning(Status(usage={"cpu": 0.1}))
    'no busy Pod has been observed yet: the number assumes that one Pod keeps one core busy'
    >>> web = WorkloadStatus("shop/web", 2, {}, 5.0, "cpu", arrivals=0.4, trusted=True)
    >>> why_learning(Status(workloads=(web, WorkloadStatus("shop/waits", 3, {}, 4.0, "cpu", arrivals=0.6))))
    '60% of recent arrivals have not been busy yet, so each is assumed to need one core'
    """
    assumed = "the number assumes that one Pod keeps one core busy"
    if unknown := [name for name, value in status.usage.items() if value is None]:
        return f"the agent cannot read {', '.join(unknown)} now: {assumed}"
    if status.pods and not status.pods_measured:
        return f"the agent does not measure Pods one by one here, and cannot tell what one takes: {assumed}"
    workloads = next_workloads(status)
    asleep = sum(workload.arrivals for workload in workloads if not workload.trusted)
    if asleep and any(workload.trusted for workload in workloads):
        return f"{asleep:.0%} of recent arrivals have not been busy yet, so each is assumed to need one core"
    return f"no busy Pod has been observed yet: {assumed}"


def how(status: Status) -> str:
    """The mode and what limits."""
    return f"{status.mode}, {f'limited by {status.limiting}' if status.limiting else 'no limit seen'}"


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """
    >>> interval(3.21, 2.5, None), interval(None, None, None)
    ('3.2 [2.5–∞]', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{value:.1f} [{'?' if low is None else f'{low:.1f}'}–{'∞' if high is None else f'{high:.1f}'}]"


def takes(amounts: Amounts, sizes: Amounts) -> str:
    """Shares of the node in their own units.

    >>> takes({"cpu": 0.125, "memory": 0.25, "io": 0.1}, {"cpu": 4.0, "memory": 2**30, "io": 1.0})
    '0.50 cores, 256 MiB, io 10.0%'
    >>> takes({"cpu": 0.125, "memory": None}, {})
    'cpu 12.5%'
    """
    return ", ".join(_amounts(amounts, sizes))


def cores_wanted(status: Status, share: float) -> str:
    """What is wanted of the CPU, in cores that this machine has, and where it counts as full.

    >>> cores_wanted(Status(sizes={"cpu": 4.0}, limits={"cpu": 0.5}), 0.625)
    '2.50 cores wanted of 2, full at 2.0'
    """
    size, limit = status.sizes.get("cpu") or 0.0, status.limits.get("cpu")
    full = f", full at {limit * size:.1f}" if limit else ""
    return f"{share * size:.2f} cores wanted of {size / 2:g}{full}"


def _amounts(amounts: Amounts, sizes: Amounts) -> Iterable[str]:
    for name, share in amounts.items():
        size = sizes.get(name)
        if share is None:
            continue
        if name == "cpu" and size:
            yield f"{share * size:.2f} cores"
        elif name == "memory" and size:
            yield in_bytes(share * size)
        else:
            yield f"{name} {share:.1%}"


def in_bytes(value: float) -> str:
    """
    >>> in_bytes(5 * 2**20), in_bytes(48 * 2**30)
    ('5 MiB', '48.0 GiB')
    """
    return f"{value / GIB:.1f} GiB" if value >= 10 * GIB else f"{value / MIB:.0f} MiB"
