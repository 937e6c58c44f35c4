"""The cgroup v2 files we may write: how each spells its values, and which of two values is the larger.

Values are compared in the kernel's own spelling (memory in whole pages, CPUs as ranges), so that what is read back
can be recognised as what was written even when the agent died between the two.

One controller, one file here: a module's KNOBS are found by themselves, also by the restore zipapp, which carries this
folder. What is not among them is never written, whatever a journal says.
"""

import importlib
import pkgutil

from carico_agent.node.plugin_host.knobs.kinds import INFINITE, KnobKind

KNOBS: dict[str, KnobKind] = {
    knob.key: knob
    for _, name, _ in pkgutil.iter_modules(__path__)
    for knob in getattr(importlib.import_module(f"{__name__}.{name}"), "KNOBS", ())
}


def is_setting(key: str) -> bool:
    """Whether `key` can be set and put back."""
    return key in KNOBS and not KNOBS[key].action


def is_action(key: str) -> bool:
    """Whether `key` is done once and leaves nothing to put back."""
    return key in KNOBS and KNOBS[key].action


def canon(key: str, text: str, page_bytes: int) -> str:
    """`text` as the kernel would print it; ValueError when it is no value of this file.

    >>> canon("memory.high", "1000000", 4096), canon("cpuset.cpus", "3,1,0,2", 4096), canon("cpu.max", "max 9000", 4096)
    ('999424', '0-3', 'max 9000')
    """
    if key not in KNOBS:
        raise ValueError(f"{key} is not a file we write")
    return KNOBS[key].canon(text.strip(), page_bytes)


def larger(key: str, old: str, new: str) -> str:
    """The value that allows what both allow: what is written first when a tree of groups changes, parents first.

    >>> larger("memory.high", "4096", "max"), larger("cpuset.cpus", "0-1", "1-2"), larger("cpuset.cpus", "", "3")
    ('max', '0-2', '')
    """
    return KNOBS[key].larger(old, new)


def step_ratio(key: str, old: str, new: str) -> float:
    """By which share of itself a number would change; infinite where that means nothing.

    >>> step_ratio("memory.high", "1000", "1100"), step_ratio("cpuset.cpus", "0", "1")
    (0.1, inf)
    """
    knob = KNOBS[key]
    before, after = knob.size(old), knob.size(new)
    if not knob.graded or INFINITE in (before, after) or before == 0:
        return INFINITE
    return abs(after - before) / before


def depth(cgroup: str) -> int:
    return cgroup.rstrip("/").count("/")
