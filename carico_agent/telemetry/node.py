"""All signals of this node, read at one tick.

A read has three outcomes: a value; absent (the node never has it: said once in `absent`, not tried again); failed
(counted in `failed`, None in the reading, tried again at the next tick).

Cost of one read of cpu, pressure and memory on the development machine (2 cores, Linux 6.18): 28 µs when it is quiet,
18 of them in the kernel; 46 to 50 µs (median) while others use the machine. `read_cost_s` measures it.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from .diskstats import DiskReader
from .link import LinkReader
from .meminfo import OLD_KERNEL, MemoryReader
from .pressure import PressureReader
from .reading import Reading
from .root import Absent, Root
from .stat import Stat, StatReader

T = TypeVar("T")
NO_PRESSURE = "; until then the number of runnable tasks stands in, which is coarser"


class NodeReader:
    """Reads cpu and memory, and io and network if asked to. Never fails: what is not there is named in `absent`."""

    def __init__(self, root: Root, io: bool = False, network: bool = False) -> None:
        self.resources: tuple[str, ...] = ("cpu", "memory", *(["io"] if io else []), *(["network"] if network else []))
        self.absent: dict[str, str] = {}
        self.failed: dict[str, int] = Counter()
        self._stat = self._have("cpu", lambda: StatReader(root))
        self._pressure = self._have("cpu.pressure", lambda: PressureReader(root, "cpu"))
        self._memory = self._have("memory", lambda: MemoryReader(root))
        self._io_pressure = self._have("io.pressure", lambda: PressureReader(root, "io")) if io else None
        self._disks = self._have("io.disks", lambda: DiskReader(root)) if io else None
        self._links = self._have("network", lambda: LinkReader(root)) if network else None
        self._first_look()

    def _have(self, signal: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except Absent as reason:
            self.absent[signal] = str(reason)
        except OSError as error:  # neither missing nor forbidden; it would not get better by itself
            self.absent[signal] = f"{signal}: {error}"
        return None

    def _first_look(self) -> None:
        """What can only be known from the contents; then the verdict is final."""
        if "cpu.pressure" in self.absent:
            self.absent["cpu.pressure"] += NO_PRESSURE
        if self._links:
            self.absent.update({f"network.{name}": why for name, why in self._links.unknown.items()})
        memory = self._try("memory", self._memory.read) if self._memory else None
        if memory and memory.estimated:
            self.absent["memory.available"] = OLD_KERNEL
        stat = self._try("cpu", self._stat.read) if self._stat else None
        self.cores = stat.cores if stat else os.cpu_count() or 1
        self._lacks = tuple(self.absent)

    def _try(self, signal: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ValueError, Absent):  # Absent: it was there when the agent began
            self.failed[signal] += 1
            return None

    def read(self, t: float) -> Reading:
        """One reading, said to be of time `t` [monotonic s]; take `t` right before."""
        stat, runnable = self._read_stat()
        pressure = self._try("cpu.pressure", self._pressure.read) if self._pressure else None
        memory = self._try("memory", self._memory.read) if self._memory else None
        io_pressure = self._try("io.pressure", self._io_pressure.read) if self._io_pressure else None
        links = self._links
        return Reading(
            t,
            stat.cores if stat else None,
            stat.total if stat else None,
            stat.idle if stat else None,
            pressure.some_usec if pressure else None,
            runnable,
            memory.total_kb if memory else None,
            memory.available_kb if memory else None,
            io_pressure.some_usec if io_pressure else None,
            self._try("io.disks", self._disks.read) if self._disks else None,
            self._try("network", lambda: links.read(t)) if links else None,
            self._lacks,
        )

    def _read_stat(self) -> tuple[Stat | None, int | None]:
        if self._stat is None:
            return None, None
        if self._pressure is not None:
            return self._try("cpu", self._stat.read), None
        return self._try("cpu", self._stat.read_with_runnable) or (None, None)

    def close(self) -> None:
        for reader in (self._stat, self._pressure, self._memory, self._io_pressure, self._disks, self._links):
            if reader is not None:
                reader.close()


def read_cost_s(reader: NodeReader, ticks: int = 1000) -> tuple[float, float]:
    """Median and best time of one read [s], for `lab/bench`."""
    took_s = []
    for _ in range(ticks):
        started_s = time.perf_counter()
        reader.read(started_s)
        took_s.append(time.perf_counter() - started_s)
    return sorted(took_s)[ticks // 2], min(took_s)
