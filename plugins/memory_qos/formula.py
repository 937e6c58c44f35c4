"""KEP-2570: where memory.high stands between request and limit. Bytes in, bytes out.

Source: KEP-2570 (Memory QoS with cgroup v2).
"""

from dataclasses import dataclass
from typing import Literal

Class = Literal["guaranteed", "burstable", "besteffort"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a Pod asked for. `request` may be observed instead (`source` says which)."""

    request: int
    limit: int | None
    source: str


def memory_high(request: int, limit: int | None, allocatable: int, factor: float, page: int) -> int | None:
    """memory.high, or None when there is to be none.

    >>> memory_high(request=1 << 30, limit=2 << 30, allocatable=8 << 30, factor=0.9, page=4096)
    2040107008
    >>> memory_high(1 << 30, 1 << 30, 8 << 30, 0.9, 4096) is None
    True
    """
    if limit is not None and request >= limit:  # Guaranteed: memory.max alone decides
        return None
    ceiling = allocatable if limit is None else limit
    # memory.high = floor[(request + factor × ((limit or node allocatable) − request)) / page] × page
    high = int((request + factor * (ceiling - request)) / page) * page
    return high if high > request else None


def protection(sizes: Sizes, qos: Class, page: int) -> tuple[str, int] | None:
    """Guaranteed: memory.min = request. Burstable: memory.low = request. Best effort: none."""
    if qos == "besteffort" or sizes.request <= 0:
        return None
    return ("memory.min" if qos == "guaranteed" else "memory.low"), sizes.request // page * page


def class_of(sizes: Sizes | None) -> Class:
    """Where no kubelet says it: as Kubernetes would."""
    if sizes is None or sizes.request <= 0:
        return "besteffort"
    return "guaranteed" if sizes.limit == sizes.request else "burstable"
