"""LISTs by resource, from the API server's metrics: where they are read, their size, and whether they fit into memory.

Source of the memory bound: *MerKury* equation (3), m = m_0 + (L_q·m_q + L_e·m_e)/n_r. A LIST that waits holds nothing
yet, so that of the sum the LISTs that execute are left, each with the size of what it reads. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from carico_agent.plane.allocation import memory_bytes
from carico_agent.plane.components import levels
from carico_agent.plane.window import Window

BYTES_PER_SEAT = 100_000
"""By which kube-apiserver 1.34 and newer reckon the width of a LIST from etcd. One from the watch cache is streamed."""
FULL_RATIO = 0.8


@dataclass(frozen=True, slots=True)
class ResourceLists:
    """LISTs of one resource in one window."""

    resource: str
    etcd_per_s: float
    """Read from etcd, pages included."""
    etcd_objects: float
    """Objects that etcd read for one of them."""
    cache_per_s: float
    cache_objects: float
    failed_per_s: float
    """Consistent reads that the watch cache could not answer in time."""
    stored_bytes: float | None
    """Of all its objects, as the server estimates (1.34 and newer)."""

    @property
    def objects_per_s(self) -> float:
        """Objects that the server went through each second: what its LISTs cost."""
        return self.etcd_per_s * self.etcd_objects + self.cache_per_s * self.cache_objects


def resource_lists(window: Window) -> list[ResourceLists]:
    """By resource, the costliest first. Empty before 1.23, which does not count them."""
    etcd, cache = _grown(window, "apiserver_storage_list_total"), _grown(window, "apiserver_cache_list_total")
    read = _grown(window, "apiserver_storage_list_fetched_objects_total")
    found = _grown(window, "apiserver_cache_list_fetched_objects_total")
    failed = {
        resource: value
        for (resource, success), value in window.counted.get("apiserver_watch_cache_consistent_read_total", {}).items()
        if success == "false"
    }
    sizes = {name: value for (name,), value in window.gauges.get("apiserver_resource_size_estimate_bytes", {}).items()}
    rows = [
        ResourceLists(
            name,
            etcd.get(name, 0.0) / window.length_s,
            _each(read.get(name, 0.0), etcd.get(name, 0.0)),
            cache.get(name, 0.0) / window.length_s,
            _each(found.get(name, 0.0), cache.get(name, 0.0)),
            failed.get(name, 0.0) / window.length_s,
            sizes.get(name),
        )
        for name in {**etcd, **cache}
        if etcd.get(name, 0.0) + cache.get(name, 0.0) > 0
    ]
    return sorted(rows, key=lambda one: one.objects_per_s, reverse=True)


def _grown(window: Window, family: str) -> dict[str, float]:
    return {resource: value for (resource,), value in window.counted.get(family, {}).items()}


def _each(whole: float, count: float) -> float:
    return whole / count if count else 0.0


@dataclass(frozen=True, slots=True)
class ListMemory:
    """What the server would need if the seats of its largest level were all taken by the largest LIST from etcd."""

    resident_bytes: float
    resource: str
    list_bytes: float
    lists: int
    """That may execute at once, by the seats of the largest level and the width of such a LIST."""
    worst_bytes: float


def list_memory(window: Window, seats_per_list: Mapping[str, float] | None = None) -> ListMemory | None:
    """None where the metrics do not say. `seats_per_list`: width by level."""
    resident = window.now("process_resident_memory_bytes")
    sizes, limited = window.gauges.get("apiserver_resource_size_estimate_bytes", {}), levels(window)
    if resident is None or not sizes or not limited:
        return None
    (resource,), size = max(sizes.items(), key=lambda pair: pair[1])
    level = max(limited, key=lambda name: limited[name])
    width = max(1.0, (seats_per_list or {}).get(level, 0.0), min(0.15 * limited[level], size / BYTES_PER_SEAT))
    lists = max(1, int(limited[level] / width))
    return ListMemory(resident, resource, size, lists, memory_bytes(resident, 0, 0, lists, size, 1))


def memory_warning(seen: ListMemory | None, limit_bytes: float | None) -> str:
    """In words; empty: it fits, or that is not known."""
    if seen is None or limit_bytes is None or seen.worst_bytes <= FULL_RATIO * limit_bytes:
        return ""
    return (
        f"memory: {seen.lists} LISTs of {seen.resource} at once ({_mb(seen.list_bytes)} each, read from etcd) need "
        f"{_mb(seen.worst_bytes)} with the {_mb(seen.resident_bytes)} in use; the server has {_mb(limit_bytes)}"
    )


def _mb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
