"""The words in which people read a status: how many more fit, of which workload, and what something takes.

One place for the line in the foreground, `carico status` and `carico top`, so that all of them say the same.
"""

from collections.abc import Iterable

from carico_agent.node.publish.status import Amounts, Status, WorkloadStatus

MAX_WORKLOADS = 3
"""Named in a sentence; the tables show all."""
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
    """
    named = [workload for workload in next_workloads(status) if workload.trusted and workload.fits is not None]
    answer = interval(status.pod_capacity, status.low, status.high)
    if not named:
        return f"Pod-Capacity {answer} {how(status)}"
    first, *others = (f"{int(workload.fits or 0)} {{}}like {workload.workload}" for workload in named[:MAX_WORKLOADS])
    like = [first.format("more "), *(other.format("") for other in others)]
    more = len(named) - MAX_WORKLOADS
    return f"room for {', '.join(like)}{f', {more} other workloads' if more > 0 else ''}; next Pod: {answer}, {how(status)}"


def why_learning(status: Status) -> str:
    """Why the number is not trusted yet, and what it is then.

    >>> why_learning(Status(usage={"cpu": 0.1}))
    'nothing that works was seen here yet: the number is a guess, one Pod keeps one core busy'
    >>> web = WorkloadStatus("shop/web", 2, {}, 5.0, "cpu", arrivals=0.4, trusted=True)
    >>> why_learning(Status(workloads=(web, WorkloadStatus("shop/waits", 3, {}, 4.0, "cpu", arrivals=0.6))))
    '60% of the Pods that come here have not worked yet: no more are promised than if each kept one core busy'
    """
    guess = "the number is a guess, one Pod keeps one core busy"
    if unknown := [name for name, value in status.usage.items() if value is None]:
        return f"{', '.join(unknown)} cannot be read now: {guess}"
    if status.pods and not status.measured:
        return f"Pods are not measured one by one here, and what one takes is not clear: {guess}"
    workloads = next_workloads(status)
    asleep = sum(workload.arrivals for workload in workloads if not workload.trusted)
    if asleep and any(workload.trusted for workload in workloads):
        of = f"{asleep:.0%} of the Pods that come here have not worked yet"
        return f"{of}: no more are promised than if each kept one core busy"
    return f"nothing that works was seen here yet: {guess}"


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
