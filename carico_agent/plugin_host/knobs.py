"""The cgroup v2 files we may write: how each spells its values, and which of two values is the larger.

Values are compared in the kernel's own spelling (memory in whole pages, CPUs as ranges), so that what is read back
can be recognised as what was written even when the agent died between the two.
"""

from carico_agent.plugin_api import format_cpus, parse_cpus

INFINITE = float("inf")

SETTINGS = ("cpu.max", "cpu.max.burst", "cpu.weight", "cpuset.cpus", "memory.high", "memory.low", "memory.min")
"""What can be set and put back. memory.max is not among them: lowering it kills."""

ACTIONS = ("memory.reclaim",)
"""What is done once and leaves nothing to put back."""


def canon(key: str, text: str, page_bytes: int) -> str:
    """`text` as the kernel would print it; ValueError when it is no value of this file.

    >>> canon("memory.high", "1000000", 4096), canon("cpuset.cpus", "3,1,0,2", 4096), canon("cpu.max", "max 9000", 4096)
    ('999424', '0-3', 'max 9000')
    """
    text = text.strip()
    if key == "cpuset.cpus":
        return format_cpus(parse_cpus(text))
    if key == "cpu.max":
        quota, period = text.split()
        return f"{quota if quota == 'max' else _count(quota)} {_count(period)}"
    if key in ("cpu.max.burst", "cpu.weight"):
        return str(_count(text))
    if key.startswith("memory."):
        return "max" if text == "max" else str(_count(text) // page_bytes * page_bytes)
    raise ValueError(f"{key} is not a file we write")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def larger(key: str, old: str, new: str) -> str:
    """The value that allows what both allow: what is written first when a tree changes (FACTS.md C: union top-down).

    >>> larger("memory.high", "4096", "max"), larger("cpuset.cpus", "0-1", "1-2"), larger("cpuset.cpus", "", "3")
    ('max', '0-2', '')
    """
    if key == "cpuset.cpus":  # empty means "as my parent"
        return format_cpus(parse_cpus(old) | parse_cpus(new)) if old and new else ""
    return old if size(key, old) >= size(key, new) else new


def size(key: str, value: str) -> float:
    """How much a value allows, comparable within one file."""
    if key == "cpuset.cpus":
        return len(parse_cpus(value)) or INFINITE
    first, *rest = value.split()
    amount = INFINITE if first == "max" else float(first)
    return amount / float(rest[0]) if rest else amount


def step_ratio(key: str, old: str, new: str) -> float:
    """By which share of itself a number would change; infinite where that means nothing.

    >>> step_ratio("memory.high", "1000", "1100"), step_ratio("cpuset.cpus", "0", "1")
    (0.1, inf)
    """
    before, after = size(key, old), size(key, new)
    if key == "cpuset.cpus" or INFINITE in (before, after) or before == 0:
        return INFINITE
    return abs(after - before) / before


def depth(cgroup: str) -> int:
    return cgroup.rstrip("/").count("/")
