"""/proc/meminfo: how much memory the node has and how much is left, in kB.

Why MemAvailable and not the paper's MemFree + Buffers + Cached: Cached contains tmpfs and shared memory, which cannot
be dropped (a node with 8 GB in /dev/shm would call them free), and it ignores the watermarks below which the kernel
refuses. MemAvailable (Linux 3.14) is the kernel's own answer to "how much can a new program get without swapping".
Older kernels: MemFree + Buffers + Cached − Shmem, and NodeReader.absent says so.
"""

from dataclasses import dataclass

from carico_agent.node.sampling.root import SMALL_BYTES, KernelFile, Root

OLD_KERNEL = "memory.available: Linux 3.14 or newer has MemAvailable; using MemFree + Buffers + Cached - Shmem"


@dataclass(slots=True)
class Memory:
    total_kb: int
    available_kb: int
    estimated: bool = False
    """True: this kernel has no MemAvailable and the value was put together."""


def parse(data: bytes) -> Memory:
    r"""
    >>> parse(b"MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  700 kB\n")
    Memory(total_kb=1000, available_kb=700, estimated=False)
    """
    total_kb = _kb(data, b"MemTotal:")
    if total_kb == 0:
        raise ValueError("/proc/meminfo: MemTotal is 0")
    available_kb = _kb(data, b"\nMemAvailable:", -1)
    if available_kb >= 0:
        return Memory(total_kb, available_kb)
    reclaimable_kb = _kb(data, b"\nBuffers:") + _kb(data, b"\nCached:") - _kb(data, b"\nShmem:", 0)
    return Memory(total_kb, _kb(data, b"\nMemFree:") + max(reclaimable_kb, 0), estimated=True)


def _kb(data: bytes, key: bytes, default: int | None = None) -> int:
    start = data.find(key)
    if start < 0:
        if default is not None:
            return default
        raise ValueError(f"/proc/meminfo has no {key.decode().strip()}")
    start += len(key)
    value = int(data[start : data.index(b" kB\n", start)])
    if not 0 <= value < 1 << 64:
        raise ValueError(f"/proc/meminfo: {key.decode().strip()} {value} kB")
    return value


def open_file(root: Root) -> KernelFile:
    """What follows MemAvailable, the third line, is not read; older kernels, which lack it, need all."""
    where = "mount proc, or set node.root to where the host's is"
    return root.open("proc/meminfo", where, SMALL_BYTES, until=b"\nMemAvailable:")
