"""/proc/zoneinfo: free pages that lie in the CPUs' own lists, which no line of /proc/meminfo counts.

Since Linux 6.7 these lists grow with use: after 2.3 GB were freed on the development machine (2 cores, 24 GB),
MemAvailable rose by 0.9 GB, and by 16 MB a second from then on; the rest was here. A process that allocates gets them
at once, so they are available.

Read once a second: the text grows with the number of CPUs (5 KB and 32 µs here).
"""

import os

from carico_agent.node.sampling.root import KernelFile, Root

EVERY_S = 1.0
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
COUNT = b" count:"


def parse(data: bytes) -> int:
    r"""All CPUs' free pages [kB].

    >>> parse(b"Node 0, zone Normal\n    cpu: 0\n       count:    10\n    cpu: 1\n       count:    5\n") // PAGE_KB
    15
    """
    if not data.startswith(b"Node ") or not data.endswith(b"\n"):
        raise ValueError(f"not a whole /proc/zoneinfo: {data[:40]!r}")
    pages, at = 0, data.find(COUNT)
    while at >= 0:
        pages += int(data[at + len(COUNT) : data.index(b"\n", at)])
        at = data.find(COUNT, at + 1)
    if not 0 <= pages < 1 << 52:
        raise ValueError(f"/proc/zoneinfo: {pages} pages")
    return pages * PAGE_KB


def open_file(root: Root) -> KernelFile:
    return root.open("proc/zoneinfo", "not on this kernel; freed memory may show late")
