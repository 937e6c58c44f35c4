"""/proc/stat: CPU time since boot in ticks of 1/100 s, and how many tasks are runnable now.

The first eight columns are disjoint and are the total; guest and guest_nice are already inside user and nice. Steal
counts as used: what the hypervisor took, no Pod can have. At 10 Hz two cores make about 20 ticks per sample, so
one reading is coarse to 5 %; the filter behind smooths it.

Idle is idle + iowait, added before any difference is made: the kernel moves waiting time between the two after the
fact (iowait alone goes backwards, proc(5) says so), and the sum is what stays put.

The kernel prints all of it for a `pread` of any length (seq_file, one record), so a short read saves only the copy. The
CPU lines say how many CPUs are online; what follows them is not read, but for the runnable tasks where they are needed.
"""

from dataclasses import dataclass

from carico_agent.node.sampling.root import SMALL_BYTES, KernelFile, Root

LARGEST = 1 << 64


@dataclass(slots=True)  # not frozen: that alone would cost 1 µs per tick
class Stat:
    """`total` and `idle` in ticks; `cores` is the number of online CPUs."""

    total: int
    idle: int
    cores: int


def parse(data: bytes) -> Stat:
    r"""
    >>> parse(b"cpu  5 0 3 80 10 0 1 1 0 0\ncpu0 5 0 3 80 10 0 1 1 0 0\nintr 9 0\n")
    Stat(total=100, idle=90, cores=1)
    """
    end = data.find(b"\n")
    if end < 0 or not data.startswith(b"cpu "):
        raise ValueError(f"/proc/stat does not begin with a cpu line: {data[:40]!r}")
    ticks = [*map(int, data[4:end].split(None, 8)[:8])]
    total = sum(ticks)
    if len(ticks) < 4 or min(ticks) < 0 or total >= LARGEST:
        raise ValueError(f"/proc/stat: {data[:end]!r} is not user, nice, system, idle, ...")
    idle = ticks[3] + ticks[4] if len(ticks) > 4 else ticks[3]  # before Linux 2.6 there was no iowait
    last = data.find(b"\nintr")
    cores = data.count(b"\ncpu", 0, last if last > 0 else len(data))
    return Stat(total, idle, cores or 1)


def parse_runnable(data: bytes) -> int:
    r"""Tasks running or waiting for a CPU at this instant, throttled ones not among them.

    >>> parse_runnable(b"cpu  1 2 3 4\nprocs_running 3\nprocs_blocked 0\n")
    3
    """
    start = data.rfind(b"\nprocs_running ")
    end = data.find(b"\n", start + 1)
    if start < 0 or end < 0:
        raise ValueError("/proc/stat has no line procs_running")
    runnable = int(data[start + 15 : end])
    if not 0 <= runnable < LARGEST:
        raise ValueError(f"/proc/stat: procs_running {runnable}")
    return runnable


def open_file(root: Root, whole: bool = False) -> KernelFile:
    """`whole`: with the runnable tasks."""
    until = b"" if whole else b"\nintr"
    return root.open("proc/stat", "mount proc, or set node.root to where the host's is", SMALL_BYTES, until)
