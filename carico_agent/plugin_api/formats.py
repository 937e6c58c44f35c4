"""Texts of the kernel and of Kubernetes that several packages read: one parser of each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stall:
    """Stall totals of one resource in microseconds (PSI); they only grow."""

    some_usec: int
    full_usec: int = 0


def parse_stall_total(data: bytes, line: bytes = b"some") -> int | None:
    """The total of one line of a pressure file [usec], None where that line is missing; raises ValueError.

    Linux has no `full` line for the CPU before 5.13. A line without its end may hold half a number.

    >>> parse_stall_total(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=42\\n")
    42
    """
    begin = 0 if data.startswith(line) else data.find(b"\n" + line) + 1
    if begin == 0 and not data.startswith(line):
        return None
    end = data.find(b"\n", begin)
    start = data.find(b" total=", begin, end)
    if end < 0 or start < 0:
        raise ValueError(f"not a pressure file: {data[:80]!r}")
    total_usec = int(data[start + 7 : end])
    if not 0 <= total_usec < 1 << 64:
        raise ValueError(f"pressure total {total_usec}")
    return total_usec


def parse_stall(text: str | None) -> Stall | None:
    """Both totals of a pressure file as a plugin's view reads it; None where it is missing. Raises ValueError.

    >>> parse_stall("some avg10=0.00 avg60=0.00 total=12\\nfull avg10=0.00 avg60=0.00 total=7")
    Stall(some_usec=12, full_usec=7)
    """
    if not text:
        return None
    data = text.encode() + b"\n"
    some_usec = parse_stall_total(data)
    if some_usec is None:
        raise ValueError(f"not a pressure file: {text[:80]!r}")
    return Stall(some_usec, parse_stall_total(data, b"full") or 0)


def parse_flat(text: str | None) -> dict[str, int]:
    """A "flat keyed" cgroup file (cpu.stat, memory.stat, memory.events); {} when it is not there.

    >>> parse_flat("low 0\\nhigh 12")
    {'low': 0, 'high': 12}
    """
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


MAX_CPUS = 1 << 16  # Linux knows at most 8192; a damaged line must not fill the memory


def parse_cpus(text: str) -> frozenset[int]:
    """A kernel list of CPUs.

    >>> sorted(parse_cpus("0-2,5"))
    [0, 1, 2, 5]
    """
    cpus: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if part:
            if not 0 <= int(first) <= int(last or first) < MAX_CPUS:
                raise ValueError(f"not a list of CPUs: {text[:80]!r}")
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The kernel's way to write a list of CPUs.

    >>> format_cpus({5, 0, 1, 2})
    '0-2,5'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


_SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{suffix: 1000.0**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: 1024.0**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def parse_quantity(text: str) -> float:
    """A Kubernetes quantity: cores, bytes or a count; raises ValueError.

    >>> [parse_quantity(text) for text in ("250m", "256Mi", "1.5G", "12e6", "2")]
    [0.25, 268435456.0, 1500000000.0, 12000000.0, 2.0]
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a Kubernetes quantity; write it like 250m or 256Mi")
    return float(match[1]) * _SUFFIXES[match[2]]


_QUANTITY = re.compile(
    r"(\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?)" f"({'|'.join(sorted(_SUFFIXES, key=len, reverse=True))})"
)
