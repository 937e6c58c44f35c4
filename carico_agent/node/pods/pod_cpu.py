"""CPU time of one Pod since its start, from its groups: cpu.stat (v2) or cpuacct.usage (v1).

Why not the counters of all Pods (usage.py): a report asks about one Pod, and two small files cost 15 µs.
"""

from collections.abc import Iterable
from math import nan

from carico_agent.node.pods.cgroups import Group
from carico_agent.node.pods.small_files import read_once


def parse_v2(text: bytes) -> float:
    """
    >>> parse_v2(b"usage_usec 2500000\\nuser_usec 1\\n")
    2.5
    """
    name, value, *_ = text.split(None, 2)
    if name != b"usage_usec":
        raise ValueError(f"not cpu.stat: {text[:80]!r}")
    return _counter(value) / 1e6


def parse_v1(text: bytes) -> float:
    """
    >>> parse_v1(b"2500000000\\n")
    2.5
    """
    return _counter(text) / 1e9


def _counter(text: bytes) -> int:
    """The kernel counts in 64 bits; what is longer is no counter (and no float)."""
    value = int(text)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"not a counter: {text[:80]!r}")
    return value


def read(groups: Iterable[Group]) -> float:
    """CPU seconds of all `groups`; NaN when one of them cannot be read, or there are none."""
    used_s, found = 0.0, False
    for group in groups:
        found = True
        try:
            used_s += _read(group)
        except (OSError, ValueError):
            return nan
    return used_s if found else nan


def _read(group: Group) -> float:
    if "cpuacct" in group.controllers:
        return parse_v1(read_once(f"{group.controllers['cpuacct']}/cpuacct.usage"))
    return parse_v2(read_once(f"{group.unified}/cpu.stat"))
