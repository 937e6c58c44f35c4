"""The CPU controller's files."""

from carico_agent.node.plugin_host.knobs.kinds import KnobKind, whole


def quota(text: str, page_bytes: int) -> str:
    """Microseconds, or max, per period.

    >>> quota("50000 100000", 4096), quota("max 9000", 4096)
    ('50000 100000', 'max 9000')
    """
    most, period = text.split()
    return f"{most if most == 'max' else whole(most)} {whole(period)}"


def microseconds(text: str, page_bytes: int) -> str:
    return str(whole(text))


def weight(text: str, page_bytes: int) -> str:
    """Shares of the CPU relative to siblings, 1 to 10000.

    >>> weight("0100", 4096)
    '100'
    """
    shares = whole(text)
    if not 1 <= shares <= 10_000:
        raise ValueError(f"cpu.weight: {shares} is not between 1 and 10000")
    return str(shares)


KNOBS = (
    KnobKind("cpu.max", "cpu", quota),
    KnobKind("cpu.max.burst", "cpu", microseconds),
    KnobKind("cpu.weight", "cpu", weight),
)
