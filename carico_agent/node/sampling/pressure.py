"""/proc/pressure/{cpu,io}: stall totals in microseconds since boot. Needs CONFIG_PSI (Linux 4.20).

Why the totals and not avg10: the averages are updated every two seconds and remember ten; a total collects what
happened up to the very read, so 10 Hz samples carry 10 Hz information, and splitting an interval loses nothing.
"""

from dataclasses import dataclass

from carico_agent.node.sampling.root import SMALL_BYTES, Absent, KernelFile, Root, absence
from carico_agent.plugin_api.formats import parse_stall_total

REMEDY = "boot with psi=1 (needs Linux 4.20 or newer with CONFIG_PSI; in a container, mount the host's proc)"


@dataclass(slots=True)
class Pressure:
    """Time during which at least one task waited."""

    some_usec: int


def parse(data: bytes) -> Pressure:
    r"""
    >>> parse(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    Pressure(some_usec=4711)
    """
    some_usec = parse_stall_total(data)
    if some_usec is None:
        raise ValueError(f"not a pressure file: {data[:80]!r}")
    return Pressure(some_usec)


def open_file(root: Root, resource: str) -> KernelFile:
    """Pressure of one resource, "cpu" or "io". With psi=0 some kernels show the file and refuse the read."""
    try:
        file = root.open(f"proc/pressure/{resource}", REMEDY, SMALL_BYTES)
        file.read()
    except OSError as error:
        raise absence(error, f"{resource}.pressure", REMEDY) from error
    except Absent as reason:
        raise Absent(str(reason).replace(f"proc/pressure/{resource}", f"{resource}.pressure", 1)) from reason
    return file
