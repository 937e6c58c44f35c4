"""/proc/diskstats: milliseconds each physical disk was busy since boot (column 13, io_ticks).

Physical are the disks with a /sys/block/NAME/device. Partitions, loop, zram, device mapper and md would count the same
work twice, or work that no disk does.
"""

from collections.abc import Collection

from carico_agent.node.sampling.root import Absent, Root


def parse(data: bytes, wanted: Collection[str] | None = None) -> dict[str, int]:
    """Busy milliseconds by disk; of the wanted ones, or of all. Short lines (partitions before 2.6.25) have none.

    >>> parse(b" 254 0 vda 30004 7577 2101866 9293 8963 22194 2309408 8090 0 6692 17859\\n")
    {'vda': 6692}
    """
    busy_ms = {}
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            raise ValueError(f"/proc/diskstats is cut off: {line[:80]!r}")
        columns = line.split(None, 13)
        if len(columns) == 7:
            continue
        if len(columns) < 13:
            raise ValueError(f"/proc/diskstats: {line[:80]!r}")
        name = columns[2].decode("utf-8", "backslashreplace")
        if wanted is None or name in wanted:
            value = int(columns[12])
            if not 0 <= value < 1 << 64:
                raise ValueError(f"/proc/diskstats: {name} {value}")
            busy_ms[name] = value
    return busy_ms


class DiskReader:
    def __init__(self, root: Root) -> None:
        self.physical = frozenset(name for name in root.list("sys/block") if root.exists(f"sys/block/{name}/device"))
        if not self.physical:
            raise Absent("io.disks: no physical disk in sys/block; mount sysfs, or io is pressure alone")
        self._file = root.open("proc/diskstats", "mount proc, or set node.root to where the host's is")
        self.read, self.close = self._file.read_records, self._file.close

    def parse(self, data: bytes) -> dict[str, int]:
        return parse(data, self.physical)
