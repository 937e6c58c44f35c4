"""Which CPUs go together: whole sockets and NUMA nodes first, then L3 groups, then whole cores, then threads.

The order of the kubelet's static CPU manager, with one rule on top: among equals take from the group that
is already broken, so that whole groups stay whole for the next who needs one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from carico_agent.plugin_api import Cpu

LEVELS: tuple[tuple[str, Callable[[Cpu], int]], ...] = (
    ("socket", lambda cpu: cpu.socket),
    ("NUMA node", lambda cpu: cpu.numa),
    ("L3 group", lambda cpu: cpu.l3),
    ("core", lambda cpu: cpu.core),
)


def take(topology: Iterable[Cpu], free: frozenset[int], count: int, whole_cores: bool = False) -> frozenset[int] | None:
    """`count` CPUs out of `free` that sit well together; None when there are not enough.

    whole_cores: give out whole cores only (the kubelet's full-pcpus-only); a count that would leave half a core over
    gets None.

    >>> cpus = [Cpu(cpu=i, core=i // 2, l3=i // 4, numa=i // 4, socket=0) for i in range(8)]
    >>> sorted(take(cpus, frozenset({1, 2, 3, 4, 5, 6, 7}), 4))
    [4, 5, 6, 7]
    >>> sorted(take(cpus, frozenset({1, 2, 3, 4, 5, 6, 7}), 1))
    [1]
    """
    known = list(topology)
    left = [cpu for cpu in known if cpu.cpu in free]
    if whole_cores:
        sizes = _sizes(known, LEVELS[-1][1])
        left = [cpu for members in _whole(left, sizes, LEVELS[-1][1]) for cpu in members]
    taken: list[int] = []
    for _, group_of in LEVELS:
        taken += _take_whole(known, left, count - len(taken), group_of)
        left = [cpu for cpu in left if cpu.cpu not in taken]
    if whole_cores and len(taken) < count:
        return None
    taken += _threads(left, taken, known, count - len(taken))
    return frozenset(taken) if len(taken) == count else None


def _take_whole(known: list[Cpu], left: list[Cpu], wanted: int, group_of: Callable[[Cpu], int]) -> list[int]:
    """As many whole groups as fit into `wanted`, from the fullest parent on."""
    taken: list[int] = []
    for members in _whole(left, _sizes(known, group_of), group_of):
        if len(members) <= wanted - len(taken):
            taken += [cpu.cpu for cpu in members]
    return taken


def _whole(left: list[Cpu], sizes: dict[int, int], group_of: Callable[[Cpu], int]) -> list[list[Cpu]]:
    groups = defaultdict(list)
    for cpu in left:
        groups[group_of(cpu)].append(cpu)
    free_in_numa = _sizes(left, lambda cpu: cpu.numa)
    whole = [members for name, members in groups.items() if len(members) == sizes[name]]
    return sorted(whole, key=lambda members: (free_in_numa[members[0].numa], members[0].cpu))


def _threads(left: list[Cpu], taken: list[int], known: list[Cpu], wanted: int) -> list[int]:
    """Single threads: of cores that are broken already, near what was taken."""
    near = {cpu.numa for cpu in known if cpu.cpu in taken}
    free_in_core, free_in_numa = _sizes(left, lambda cpu: cpu.core), _sizes(left, lambda cpu: cpu.numa)

    def rank(cpu: Cpu) -> tuple[bool, int, int, int]:
        return cpu.numa not in near, free_in_core[cpu.core], free_in_numa[cpu.numa], cpu.cpu

    return [cpu.cpu for cpu in sorted(left, key=rank)[:wanted]]


def _sizes(cpus: Iterable[Cpu], group_of: Callable[[Cpu], int]) -> dict[int, int]:
    sizes: dict[int, int] = defaultdict(int)
    for cpu in cpus:
        sizes[group_of(cpu)] += 1
    return sizes


def shape(topology: Iterable[Cpu], cpus: frozenset[int]) -> str:
    """What was given, in words.

    >>> shape([Cpu(i, i // 2, 0, 0, 0) for i in range(4)], frozenset({2, 3}))
    '1 whole core'
    """
    known = list(topology)
    mine = [cpu for cpu in known if cpu.cpu in cpus]
    for name, group_of in LEVELS:
        whole = _whole(mine, _sizes(known, group_of), group_of)
        if whole and sum(map(len, whole)) == len(mine):
            return f"{len(whole)} whole {name}{'s' if len(whole) > 1 else ''}"
    return f"{len(mine)} threads"
