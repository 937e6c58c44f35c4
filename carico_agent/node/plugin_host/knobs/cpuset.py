"""Which CPUs a group may use. An empty list means: as my parent."""

from carico_agent.node.plugin_host.knobs.kinds import INFINITE, KnobKind
from carico_agent.plugin_api import format_cpus, parse_cpus


def ranges(text: str, page_bytes: int) -> str:
    return format_cpus(parse_cpus(text))


def count(text: str) -> float:
    return len(parse_cpus(text)) or INFINITE


def union(old: str, new: str) -> str:
    return format_cpus(parse_cpus(old) | parse_cpus(new)) if old and new else ""


KNOBS = (KnobKind("cpuset.cpus", "cpuset", ranges, count, union, graded=False),)
