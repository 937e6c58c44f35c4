"""The memory controller's files. memory.max is not among them: lowering it kills."""

from carico_agent.node.plugin_host.knobs.kinds import KnobKind, whole


def in_pages(text: str, page_bytes: int) -> str:
    """The kernel keeps whole pages.

    >>> in_pages("1000000", 4096), in_pages("max", 4096)
    ('999424', 'max')
    """
    return "max" if text == "max" else str(whole(text) // page_bytes * page_bytes)


KNOBS = (
    KnobKind("memory.high", "memory", in_pages),
    KnobKind("memory.low", "memory", in_pages),
    KnobKind("memory.min", "memory", in_pages),
    KnobKind("memory.reclaim", "memory", in_pages, action=True),
)
